//! Argument structs of the kernels. Generated from hip/abi.h by hip/bindings.sh; do not edit.
#![allow(missing_docs, non_camel_case_types, clippy::unreadable_literal)]

pub type u32_ = ::core::ffi::c_uint;
pub type u64_ = ::core::ffi::c_ulonglong;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct CanaryArgs {
    pub words: u64_,
    pub seed: u64_,
    pub mismatches: u64_,
    pub count: u32_,
    pub phase: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CanaryArgs"][::core::mem::size_of::<CanaryArgs>() - 32usize];
    ["Alignment of CanaryArgs"][::core::mem::align_of::<CanaryArgs>() - 8usize];
    ["Offset of field: CanaryArgs::words"][::core::mem::offset_of!(CanaryArgs, words) - 0usize];
    ["Offset of field: CanaryArgs::seed"][::core::mem::offset_of!(CanaryArgs, seed) - 8usize];
    ["Offset of field: CanaryArgs::mismatches"][::core::mem::offset_of!(CanaryArgs, mismatches) - 16usize];
    ["Offset of field: CanaryArgs::count"][::core::mem::offset_of!(CanaryArgs, count) - 24usize];
    ["Offset of field: CanaryArgs::phase"][::core::mem::offset_of!(CanaryArgs, phase) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GroupedNormArgs {
    pub out: u64_,
    pub input: u64_,
    pub weight: u64_,
    pub groups: u32_,
    pub width: u32_,
    pub eps: f32,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GroupedNormArgs"][::core::mem::size_of::<GroupedNormArgs>() - 40usize];
    ["Alignment of GroupedNormArgs"][::core::mem::align_of::<GroupedNormArgs>() - 8usize];
    ["Offset of field: GroupedNormArgs::out"][::core::mem::offset_of!(GroupedNormArgs, out) - 0usize];
    ["Offset of field: GroupedNormArgs::input"][::core::mem::offset_of!(GroupedNormArgs, input) - 8usize];
    ["Offset of field: GroupedNormArgs::weight"][::core::mem::offset_of!(GroupedNormArgs, weight) - 16usize];
    ["Offset of field: GroupedNormArgs::groups"][::core::mem::offset_of!(GroupedNormArgs, groups) - 24usize];
    ["Offset of field: GroupedNormArgs::width"][::core::mem::offset_of!(GroupedNormArgs, width) - 28usize];
    ["Offset of field: GroupedNormArgs::eps"][::core::mem::offset_of!(GroupedNormArgs, eps) - 32usize];
    ["Offset of field: GroupedNormArgs::unused"][::core::mem::offset_of!(GroupedNormArgs, unused) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct HyperWriteArgs {
    pub wide: u64_,
    pub inject: u64_,
    pub y: u64_,
    pub normed: u64_,
    pub weight: u64_,
    pub streams: u32_,
    pub hidden: u32_,
    pub eps: f32,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of HyperWriteArgs"][::core::mem::size_of::<HyperWriteArgs>() - 56usize];
    ["Alignment of HyperWriteArgs"][::core::mem::align_of::<HyperWriteArgs>() - 8usize];
    ["Offset of field: HyperWriteArgs::wide"][::core::mem::offset_of!(HyperWriteArgs, wide) - 0usize];
    ["Offset of field: HyperWriteArgs::inject"][::core::mem::offset_of!(HyperWriteArgs, inject) - 8usize];
    ["Offset of field: HyperWriteArgs::y"][::core::mem::offset_of!(HyperWriteArgs, y) - 16usize];
    ["Offset of field: HyperWriteArgs::normed"][::core::mem::offset_of!(HyperWriteArgs, normed) - 24usize];
    ["Offset of field: HyperWriteArgs::weight"][::core::mem::offset_of!(HyperWriteArgs, weight) - 32usize];
    ["Offset of field: HyperWriteArgs::streams"][::core::mem::offset_of!(HyperWriteArgs, streams) - 40usize];
    ["Offset of field: HyperWriteArgs::hidden"][::core::mem::offset_of!(HyperWriteArgs, hidden) - 44usize];
    ["Offset of field: HyperWriteArgs::eps"][::core::mem::offset_of!(HyperWriteArgs, eps) - 48usize];
    ["Offset of field: HyperWriteArgs::unused"][::core::mem::offset_of!(HyperWriteArgs, unused) - 52usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct HyperGateArgs {
    pub x: u64_,
    pub inject: u64_,
    pub normed: u64_,
    pub low: u64_,
    pub raw: u64_,
    pub up: u64_,
    pub scales: u64_,
    pub rows: u32_,
    pub streams: u32_,
    pub hidden: u32_,
    pub rank: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of HyperGateArgs"][::core::mem::size_of::<HyperGateArgs>() - 72usize];
    ["Alignment of HyperGateArgs"][::core::mem::align_of::<HyperGateArgs>() - 8usize];
    ["Offset of field: HyperGateArgs::x"][::core::mem::offset_of!(HyperGateArgs, x) - 0usize];
    ["Offset of field: HyperGateArgs::inject"][::core::mem::offset_of!(HyperGateArgs, inject) - 8usize];
    ["Offset of field: HyperGateArgs::normed"][::core::mem::offset_of!(HyperGateArgs, normed) - 16usize];
    ["Offset of field: HyperGateArgs::low"][::core::mem::offset_of!(HyperGateArgs, low) - 24usize];
    ["Offset of field: HyperGateArgs::raw"][::core::mem::offset_of!(HyperGateArgs, raw) - 32usize];
    ["Offset of field: HyperGateArgs::up"][::core::mem::offset_of!(HyperGateArgs, up) - 40usize];
    ["Offset of field: HyperGateArgs::scales"][::core::mem::offset_of!(HyperGateArgs, scales) - 48usize];
    ["Offset of field: HyperGateArgs::rows"][::core::mem::offset_of!(HyperGateArgs, rows) - 56usize];
    ["Offset of field: HyperGateArgs::streams"][::core::mem::offset_of!(HyperGateArgs, streams) - 60usize];
    ["Offset of field: HyperGateArgs::hidden"][::core::mem::offset_of!(HyperGateArgs, hidden) - 64usize];
    ["Offset of field: HyperGateArgs::rank"][::core::mem::offset_of!(HyperGateArgs, rank) - 68usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct HyperLowArgs {
    pub low: u64_,
    pub inject: u64_,
    pub raw: u64_,
    pub rows: u32_,
    pub streams: u32_,
    pub rank: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of HyperLowArgs"][::core::mem::size_of::<HyperLowArgs>() - 40usize];
    ["Alignment of HyperLowArgs"][::core::mem::align_of::<HyperLowArgs>() - 8usize];
    ["Offset of field: HyperLowArgs::low"][::core::mem::offset_of!(HyperLowArgs, low) - 0usize];
    ["Offset of field: HyperLowArgs::inject"][::core::mem::offset_of!(HyperLowArgs, inject) - 8usize];
    ["Offset of field: HyperLowArgs::raw"][::core::mem::offset_of!(HyperLowArgs, raw) - 16usize];
    ["Offset of field: HyperLowArgs::rows"][::core::mem::offset_of!(HyperLowArgs, rows) - 24usize];
    ["Offset of field: HyperLowArgs::streams"][::core::mem::offset_of!(HyperLowArgs, streams) - 28usize];
    ["Offset of field: HyperLowArgs::rank"][::core::mem::offset_of!(HyperLowArgs, rank) - 32usize];
    ["Offset of field: HyperLowArgs::unused"][::core::mem::offset_of!(HyperLowArgs, unused) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct HyperMixArgs {
    pub x: u64_,
    pub normed: u64_,
    pub gate: u64_,
    pub streams: u32_,
    pub hidden: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of HyperMixArgs"][::core::mem::size_of::<HyperMixArgs>() - 32usize];
    ["Alignment of HyperMixArgs"][::core::mem::align_of::<HyperMixArgs>() - 8usize];
    ["Offset of field: HyperMixArgs::x"][::core::mem::offset_of!(HyperMixArgs, x) - 0usize];
    ["Offset of field: HyperMixArgs::normed"][::core::mem::offset_of!(HyperMixArgs, normed) - 8usize];
    ["Offset of field: HyperMixArgs::gate"][::core::mem::offset_of!(HyperMixArgs, gate) - 16usize];
    ["Offset of field: HyperMixArgs::streams"][::core::mem::offset_of!(HyperMixArgs, streams) - 24usize];
    ["Offset of field: HyperMixArgs::hidden"][::core::mem::offset_of!(HyperMixArgs, hidden) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct HeadNormRopeArgs {
    pub out: u64_,
    pub input: u64_,
    pub weight: u64_,
    pub cos: u64_,
    pub sin: u64_,
    pub heads: u32_,
    pub count: u32_,
    pub dim: u32_,
    pub half: u32_,
    pub row_stride: u32_,
    pub head_stride: u32_,
    pub eps: f32,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of HeadNormRopeArgs"][::core::mem::size_of::<HeadNormRopeArgs>() - 72usize];
    ["Alignment of HeadNormRopeArgs"][::core::mem::align_of::<HeadNormRopeArgs>() - 8usize];
    ["Offset of field: HeadNormRopeArgs::out"][::core::mem::offset_of!(HeadNormRopeArgs, out) - 0usize];
    ["Offset of field: HeadNormRopeArgs::input"][::core::mem::offset_of!(HeadNormRopeArgs, input) - 8usize];
    ["Offset of field: HeadNormRopeArgs::weight"][::core::mem::offset_of!(HeadNormRopeArgs, weight) - 16usize];
    ["Offset of field: HeadNormRopeArgs::cos"][::core::mem::offset_of!(HeadNormRopeArgs, cos) - 24usize];
    ["Offset of field: HeadNormRopeArgs::sin"][::core::mem::offset_of!(HeadNormRopeArgs, sin) - 32usize];
    ["Offset of field: HeadNormRopeArgs::heads"][::core::mem::offset_of!(HeadNormRopeArgs, heads) - 40usize];
    ["Offset of field: HeadNormRopeArgs::count"][::core::mem::offset_of!(HeadNormRopeArgs, count) - 44usize];
    ["Offset of field: HeadNormRopeArgs::dim"][::core::mem::offset_of!(HeadNormRopeArgs, dim) - 48usize];
    ["Offset of field: HeadNormRopeArgs::half"][::core::mem::offset_of!(HeadNormRopeArgs, half) - 52usize];
    ["Offset of field: HeadNormRopeArgs::row_stride"][::core::mem::offset_of!(HeadNormRopeArgs, row_stride) - 56usize];
    ["Offset of field: HeadNormRopeArgs::head_stride"]
        [::core::mem::offset_of!(HeadNormRopeArgs, head_stride) - 60usize];
    ["Offset of field: HeadNormRopeArgs::eps"][::core::mem::offset_of!(HeadNormRopeArgs, eps) - 64usize];
    ["Offset of field: HeadNormRopeArgs::unused"][::core::mem::offset_of!(HeadNormRopeArgs, unused) - 68usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct EmbedArgs {
    pub wide: u64_,
    pub table: u64_,
    pub scales: u64_,
    pub ids: u64_,
    pub streams: u32_,
    pub hidden: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of EmbedArgs"][::core::mem::size_of::<EmbedArgs>() - 40usize];
    ["Alignment of EmbedArgs"][::core::mem::align_of::<EmbedArgs>() - 8usize];
    ["Offset of field: EmbedArgs::wide"][::core::mem::offset_of!(EmbedArgs, wide) - 0usize];
    ["Offset of field: EmbedArgs::table"][::core::mem::offset_of!(EmbedArgs, table) - 8usize];
    ["Offset of field: EmbedArgs::scales"][::core::mem::offset_of!(EmbedArgs, scales) - 16usize];
    ["Offset of field: EmbedArgs::ids"][::core::mem::offset_of!(EmbedArgs, ids) - 24usize];
    ["Offset of field: EmbedArgs::streams"][::core::mem::offset_of!(EmbedArgs, streams) - 32usize];
    ["Offset of field: EmbedArgs::hidden"][::core::mem::offset_of!(EmbedArgs, hidden) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GemvPart {
    pub y: u64_,
    pub w: u64_,
    pub scales: u64_,
    pub outputs: u32_,
    pub row_offset: u32_,
    pub split: u32_,
    pub first: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GemvPart"][::core::mem::size_of::<GemvPart>() - 40usize];
    ["Alignment of GemvPart"][::core::mem::align_of::<GemvPart>() - 8usize];
    ["Offset of field: GemvPart::y"][::core::mem::offset_of!(GemvPart, y) - 0usize];
    ["Offset of field: GemvPart::w"][::core::mem::offset_of!(GemvPart, w) - 8usize];
    ["Offset of field: GemvPart::scales"][::core::mem::offset_of!(GemvPart, scales) - 16usize];
    ["Offset of field: GemvPart::outputs"][::core::mem::offset_of!(GemvPart, outputs) - 24usize];
    ["Offset of field: GemvPart::row_offset"][::core::mem::offset_of!(GemvPart, row_offset) - 28usize];
    ["Offset of field: GemvPart::split"][::core::mem::offset_of!(GemvPart, split) - 32usize];
    ["Offset of field: GemvPart::first"][::core::mem::offset_of!(GemvPart, first) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GemvArgs {
    pub x: u64_,
    pub rows: u32_,
    pub inputs: u32_,
    pub count: u32_,
    pub unused: u32_,
    pub parts: [GemvPart; 5usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GemvArgs"][::core::mem::size_of::<GemvArgs>() - 224usize];
    ["Alignment of GemvArgs"][::core::mem::align_of::<GemvArgs>() - 8usize];
    ["Offset of field: GemvArgs::x"][::core::mem::offset_of!(GemvArgs, x) - 0usize];
    ["Offset of field: GemvArgs::rows"][::core::mem::offset_of!(GemvArgs, rows) - 8usize];
    ["Offset of field: GemvArgs::inputs"][::core::mem::offset_of!(GemvArgs, inputs) - 12usize];
    ["Offset of field: GemvArgs::count"][::core::mem::offset_of!(GemvArgs, count) - 16usize];
    ["Offset of field: GemvArgs::unused"][::core::mem::offset_of!(GemvArgs, unused) - 20usize];
    ["Offset of field: GemvArgs::parts"][::core::mem::offset_of!(GemvArgs, parts) - 24usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GemmRowsArgs {
    pub out: u64_,
    pub factors: u64_,
    pub x: u64_,
    pub inputs: u32_,
    pub stride: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GemmRowsArgs"][::core::mem::size_of::<GemmRowsArgs>() - 32usize];
    ["Alignment of GemmRowsArgs"][::core::mem::align_of::<GemmRowsArgs>() - 8usize];
    ["Offset of field: GemmRowsArgs::out"][::core::mem::offset_of!(GemmRowsArgs, out) - 0usize];
    ["Offset of field: GemmRowsArgs::factors"][::core::mem::offset_of!(GemmRowsArgs, factors) - 8usize];
    ["Offset of field: GemmRowsArgs::x"][::core::mem::offset_of!(GemmRowsArgs, x) - 16usize];
    ["Offset of field: GemmRowsArgs::inputs"][::core::mem::offset_of!(GemmRowsArgs, inputs) - 24usize];
    ["Offset of field: GemmRowsArgs::stride"][::core::mem::offset_of!(GemmRowsArgs, stride) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GemmArgs {
    pub y: u64_,
    pub x: u64_,
    pub factors: u64_,
    pub w: u64_,
    pub scales: u64_,
    pub rows: u32_,
    pub outputs: u32_,
    pub inputs: u32_,
    pub y_stride: u32_,
    pub row_offset: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GemmArgs"][::core::mem::size_of::<GemmArgs>() - 64usize];
    ["Alignment of GemmArgs"][::core::mem::align_of::<GemmArgs>() - 8usize];
    ["Offset of field: GemmArgs::y"][::core::mem::offset_of!(GemmArgs, y) - 0usize];
    ["Offset of field: GemmArgs::x"][::core::mem::offset_of!(GemmArgs, x) - 8usize];
    ["Offset of field: GemmArgs::factors"][::core::mem::offset_of!(GemmArgs, factors) - 16usize];
    ["Offset of field: GemmArgs::w"][::core::mem::offset_of!(GemmArgs, w) - 24usize];
    ["Offset of field: GemmArgs::scales"][::core::mem::offset_of!(GemmArgs, scales) - 32usize];
    ["Offset of field: GemmArgs::rows"][::core::mem::offset_of!(GemmArgs, rows) - 40usize];
    ["Offset of field: GemmArgs::outputs"][::core::mem::offset_of!(GemmArgs, outputs) - 44usize];
    ["Offset of field: GemmArgs::inputs"][::core::mem::offset_of!(GemmArgs, inputs) - 48usize];
    ["Offset of field: GemmArgs::y_stride"][::core::mem::offset_of!(GemmArgs, y_stride) - 52usize];
    ["Offset of field: GemmArgs::row_offset"][::core::mem::offset_of!(GemmArgs, row_offset) - 56usize];
    ["Offset of field: GemmArgs::unused"][::core::mem::offset_of!(GemmArgs, unused) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct KvPlanes {
    pub keys: u64_,
    pub values: u64_,
    pub raw: u64_,
    pub blocks: u64_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of KvPlanes"][::core::mem::size_of::<KvPlanes>() - 32usize];
    ["Alignment of KvPlanes"][::core::mem::align_of::<KvPlanes>() - 8usize];
    ["Offset of field: KvPlanes::keys"][::core::mem::offset_of!(KvPlanes, keys) - 0usize];
    ["Offset of field: KvPlanes::values"][::core::mem::offset_of!(KvPlanes, values) - 8usize];
    ["Offset of field: KvPlanes::raw"][::core::mem::offset_of!(KvPlanes, raw) - 16usize];
    ["Offset of field: KvPlanes::blocks"][::core::mem::offset_of!(KvPlanes, blocks) - 24usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct QsaPrepareArgs {
    pub queries: u64_,
    pub index_queries: u64_,
    pub planes: u64_,
    pub sequence: u64_,
    pub positions: u64_,
    pub query_gate: u64_,
    pub keys: u64_,
    pub values: u64_,
    pub index_query: u64_,
    pub index_key: u64_,
    pub query_norm: u64_,
    pub key_norm: u64_,
    pub index_query_norm: u64_,
    pub index_key_norm: u64_,
    pub cos: u64_,
    pub sin: u64_,
    pub block_cos: u64_,
    pub block_sin: u64_,
    pub rows: u32_,
    pub heads: u32_,
    pub kv_heads: u32_,
    pub dim: u32_,
    pub index_heads: u32_,
    pub index_dim: u32_,
    pub half: u32_,
    pub ratio: u32_,
    pub eps: f32,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QsaPrepareArgs"][::core::mem::size_of::<QsaPrepareArgs>() - 184usize];
    ["Alignment of QsaPrepareArgs"][::core::mem::align_of::<QsaPrepareArgs>() - 8usize];
    ["Offset of field: QsaPrepareArgs::queries"][::core::mem::offset_of!(QsaPrepareArgs, queries) - 0usize];
    ["Offset of field: QsaPrepareArgs::index_queries"][::core::mem::offset_of!(QsaPrepareArgs, index_queries) - 8usize];
    ["Offset of field: QsaPrepareArgs::planes"][::core::mem::offset_of!(QsaPrepareArgs, planes) - 16usize];
    ["Offset of field: QsaPrepareArgs::sequence"][::core::mem::offset_of!(QsaPrepareArgs, sequence) - 24usize];
    ["Offset of field: QsaPrepareArgs::positions"][::core::mem::offset_of!(QsaPrepareArgs, positions) - 32usize];
    ["Offset of field: QsaPrepareArgs::query_gate"][::core::mem::offset_of!(QsaPrepareArgs, query_gate) - 40usize];
    ["Offset of field: QsaPrepareArgs::keys"][::core::mem::offset_of!(QsaPrepareArgs, keys) - 48usize];
    ["Offset of field: QsaPrepareArgs::values"][::core::mem::offset_of!(QsaPrepareArgs, values) - 56usize];
    ["Offset of field: QsaPrepareArgs::index_query"][::core::mem::offset_of!(QsaPrepareArgs, index_query) - 64usize];
    ["Offset of field: QsaPrepareArgs::index_key"][::core::mem::offset_of!(QsaPrepareArgs, index_key) - 72usize];
    ["Offset of field: QsaPrepareArgs::query_norm"][::core::mem::offset_of!(QsaPrepareArgs, query_norm) - 80usize];
    ["Offset of field: QsaPrepareArgs::key_norm"][::core::mem::offset_of!(QsaPrepareArgs, key_norm) - 88usize];
    ["Offset of field: QsaPrepareArgs::index_query_norm"]
        [::core::mem::offset_of!(QsaPrepareArgs, index_query_norm) - 96usize];
    ["Offset of field: QsaPrepareArgs::index_key_norm"]
        [::core::mem::offset_of!(QsaPrepareArgs, index_key_norm) - 104usize];
    ["Offset of field: QsaPrepareArgs::cos"][::core::mem::offset_of!(QsaPrepareArgs, cos) - 112usize];
    ["Offset of field: QsaPrepareArgs::sin"][::core::mem::offset_of!(QsaPrepareArgs, sin) - 120usize];
    ["Offset of field: QsaPrepareArgs::block_cos"][::core::mem::offset_of!(QsaPrepareArgs, block_cos) - 128usize];
    ["Offset of field: QsaPrepareArgs::block_sin"][::core::mem::offset_of!(QsaPrepareArgs, block_sin) - 136usize];
    ["Offset of field: QsaPrepareArgs::rows"][::core::mem::offset_of!(QsaPrepareArgs, rows) - 144usize];
    ["Offset of field: QsaPrepareArgs::heads"][::core::mem::offset_of!(QsaPrepareArgs, heads) - 148usize];
    ["Offset of field: QsaPrepareArgs::kv_heads"][::core::mem::offset_of!(QsaPrepareArgs, kv_heads) - 152usize];
    ["Offset of field: QsaPrepareArgs::dim"][::core::mem::offset_of!(QsaPrepareArgs, dim) - 156usize];
    ["Offset of field: QsaPrepareArgs::index_heads"][::core::mem::offset_of!(QsaPrepareArgs, index_heads) - 160usize];
    ["Offset of field: QsaPrepareArgs::index_dim"][::core::mem::offset_of!(QsaPrepareArgs, index_dim) - 164usize];
    ["Offset of field: QsaPrepareArgs::half"][::core::mem::offset_of!(QsaPrepareArgs, half) - 168usize];
    ["Offset of field: QsaPrepareArgs::ratio"][::core::mem::offset_of!(QsaPrepareArgs, ratio) - 172usize];
    ["Offset of field: QsaPrepareArgs::eps"][::core::mem::offset_of!(QsaPrepareArgs, eps) - 176usize];
    ["Offset of field: QsaPrepareArgs::unused"][::core::mem::offset_of!(QsaPrepareArgs, unused) - 180usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct QsaScoreArgs {
    pub scores: u64_,
    pub queries: u64_,
    pub planes: u64_,
    pub sequence: u64_,
    pub positions: u64_,
    pub first: u32_,
    pub count: u32_,
    pub max_blocks: u32_,
    pub heads: u32_,
    pub dim: u32_,
    pub ratio: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QsaScoreArgs"][::core::mem::size_of::<QsaScoreArgs>() - 64usize];
    ["Alignment of QsaScoreArgs"][::core::mem::align_of::<QsaScoreArgs>() - 8usize];
    ["Offset of field: QsaScoreArgs::scores"][::core::mem::offset_of!(QsaScoreArgs, scores) - 0usize];
    ["Offset of field: QsaScoreArgs::queries"][::core::mem::offset_of!(QsaScoreArgs, queries) - 8usize];
    ["Offset of field: QsaScoreArgs::planes"][::core::mem::offset_of!(QsaScoreArgs, planes) - 16usize];
    ["Offset of field: QsaScoreArgs::sequence"][::core::mem::offset_of!(QsaScoreArgs, sequence) - 24usize];
    ["Offset of field: QsaScoreArgs::positions"][::core::mem::offset_of!(QsaScoreArgs, positions) - 32usize];
    ["Offset of field: QsaScoreArgs::first"][::core::mem::offset_of!(QsaScoreArgs, first) - 40usize];
    ["Offset of field: QsaScoreArgs::count"][::core::mem::offset_of!(QsaScoreArgs, count) - 44usize];
    ["Offset of field: QsaScoreArgs::max_blocks"][::core::mem::offset_of!(QsaScoreArgs, max_blocks) - 48usize];
    ["Offset of field: QsaScoreArgs::heads"][::core::mem::offset_of!(QsaScoreArgs, heads) - 52usize];
    ["Offset of field: QsaScoreArgs::dim"][::core::mem::offset_of!(QsaScoreArgs, dim) - 56usize];
    ["Offset of field: QsaScoreArgs::ratio"][::core::mem::offset_of!(QsaScoreArgs, ratio) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct QsaSelectArgs {
    pub blocks: u64_,
    pub counts: u64_,
    pub candidates: u64_,
    pub scores: u64_,
    pub positions: u64_,
    pub first: u32_,
    pub count: u32_,
    pub max_blocks: u32_,
    pub budget: u32_,
    pub ratio: u32_,
    pub parts: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QsaSelectArgs"][::core::mem::size_of::<QsaSelectArgs>() - 64usize];
    ["Alignment of QsaSelectArgs"][::core::mem::align_of::<QsaSelectArgs>() - 8usize];
    ["Offset of field: QsaSelectArgs::blocks"][::core::mem::offset_of!(QsaSelectArgs, blocks) - 0usize];
    ["Offset of field: QsaSelectArgs::counts"][::core::mem::offset_of!(QsaSelectArgs, counts) - 8usize];
    ["Offset of field: QsaSelectArgs::candidates"][::core::mem::offset_of!(QsaSelectArgs, candidates) - 16usize];
    ["Offset of field: QsaSelectArgs::scores"][::core::mem::offset_of!(QsaSelectArgs, scores) - 24usize];
    ["Offset of field: QsaSelectArgs::positions"][::core::mem::offset_of!(QsaSelectArgs, positions) - 32usize];
    ["Offset of field: QsaSelectArgs::first"][::core::mem::offset_of!(QsaSelectArgs, first) - 40usize];
    ["Offset of field: QsaSelectArgs::count"][::core::mem::offset_of!(QsaSelectArgs, count) - 44usize];
    ["Offset of field: QsaSelectArgs::max_blocks"][::core::mem::offset_of!(QsaSelectArgs, max_blocks) - 48usize];
    ["Offset of field: QsaSelectArgs::budget"][::core::mem::offset_of!(QsaSelectArgs, budget) - 52usize];
    ["Offset of field: QsaSelectArgs::ratio"][::core::mem::offset_of!(QsaSelectArgs, ratio) - 56usize];
    ["Offset of field: QsaSelectArgs::parts"][::core::mem::offset_of!(QsaSelectArgs, parts) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct QsaAttendArgs {
    pub partial: u64_,
    pub partial_sums: u64_,
    pub queries: u64_,
    pub planes: u64_,
    pub sequence: u64_,
    pub positions: u64_,
    pub blocks: u64_,
    pub counts: u64_,
    pub heads: u32_,
    pub kv_heads: u32_,
    pub max_blocks: u32_,
    pub splits: u32_,
    pub split_entries: u32_,
    pub ratio: u32_,
    pub dim: u32_,
    pub scale: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QsaAttendArgs"][::core::mem::size_of::<QsaAttendArgs>() - 96usize];
    ["Alignment of QsaAttendArgs"][::core::mem::align_of::<QsaAttendArgs>() - 8usize];
    ["Offset of field: QsaAttendArgs::partial"][::core::mem::offset_of!(QsaAttendArgs, partial) - 0usize];
    ["Offset of field: QsaAttendArgs::partial_sums"][::core::mem::offset_of!(QsaAttendArgs, partial_sums) - 8usize];
    ["Offset of field: QsaAttendArgs::queries"][::core::mem::offset_of!(QsaAttendArgs, queries) - 16usize];
    ["Offset of field: QsaAttendArgs::planes"][::core::mem::offset_of!(QsaAttendArgs, planes) - 24usize];
    ["Offset of field: QsaAttendArgs::sequence"][::core::mem::offset_of!(QsaAttendArgs, sequence) - 32usize];
    ["Offset of field: QsaAttendArgs::positions"][::core::mem::offset_of!(QsaAttendArgs, positions) - 40usize];
    ["Offset of field: QsaAttendArgs::blocks"][::core::mem::offset_of!(QsaAttendArgs, blocks) - 48usize];
    ["Offset of field: QsaAttendArgs::counts"][::core::mem::offset_of!(QsaAttendArgs, counts) - 56usize];
    ["Offset of field: QsaAttendArgs::heads"][::core::mem::offset_of!(QsaAttendArgs, heads) - 64usize];
    ["Offset of field: QsaAttendArgs::kv_heads"][::core::mem::offset_of!(QsaAttendArgs, kv_heads) - 68usize];
    ["Offset of field: QsaAttendArgs::max_blocks"][::core::mem::offset_of!(QsaAttendArgs, max_blocks) - 72usize];
    ["Offset of field: QsaAttendArgs::splits"][::core::mem::offset_of!(QsaAttendArgs, splits) - 76usize];
    ["Offset of field: QsaAttendArgs::split_entries"][::core::mem::offset_of!(QsaAttendArgs, split_entries) - 80usize];
    ["Offset of field: QsaAttendArgs::ratio"][::core::mem::offset_of!(QsaAttendArgs, ratio) - 84usize];
    ["Offset of field: QsaAttendArgs::dim"][::core::mem::offset_of!(QsaAttendArgs, dim) - 88usize];
    ["Offset of field: QsaAttendArgs::scale"][::core::mem::offset_of!(QsaAttendArgs, scale) - 92usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct QsaMergeArgs {
    pub out: u64_,
    pub partial: u64_,
    pub partial_sums: u64_,
    pub query_gate: u64_,
    pub positions: u64_,
    pub counts: u64_,
    pub heads: u32_,
    pub kv_heads: u32_,
    pub splits: u32_,
    pub split_entries: u32_,
    pub ratio: u32_,
    pub dim: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QsaMergeArgs"][::core::mem::size_of::<QsaMergeArgs>() - 72usize];
    ["Alignment of QsaMergeArgs"][::core::mem::align_of::<QsaMergeArgs>() - 8usize];
    ["Offset of field: QsaMergeArgs::out"][::core::mem::offset_of!(QsaMergeArgs, out) - 0usize];
    ["Offset of field: QsaMergeArgs::partial"][::core::mem::offset_of!(QsaMergeArgs, partial) - 8usize];
    ["Offset of field: QsaMergeArgs::partial_sums"][::core::mem::offset_of!(QsaMergeArgs, partial_sums) - 16usize];
    ["Offset of field: QsaMergeArgs::query_gate"][::core::mem::offset_of!(QsaMergeArgs, query_gate) - 24usize];
    ["Offset of field: QsaMergeArgs::positions"][::core::mem::offset_of!(QsaMergeArgs, positions) - 32usize];
    ["Offset of field: QsaMergeArgs::counts"][::core::mem::offset_of!(QsaMergeArgs, counts) - 40usize];
    ["Offset of field: QsaMergeArgs::heads"][::core::mem::offset_of!(QsaMergeArgs, heads) - 48usize];
    ["Offset of field: QsaMergeArgs::kv_heads"][::core::mem::offset_of!(QsaMergeArgs, kv_heads) - 52usize];
    ["Offset of field: QsaMergeArgs::splits"][::core::mem::offset_of!(QsaMergeArgs, splits) - 56usize];
    ["Offset of field: QsaMergeArgs::split_entries"][::core::mem::offset_of!(QsaMergeArgs, split_entries) - 60usize];
    ["Offset of field: QsaMergeArgs::ratio"][::core::mem::offset_of!(QsaMergeArgs, ratio) - 64usize];
    ["Offset of field: QsaMergeArgs::dim"][::core::mem::offset_of!(QsaMergeArgs, dim) - 68usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct QsaPackArgs {
    pub k_out: u64_,
    pub v_out: u64_,
    pub planes: u64_,
    pub sequence: u32_,
    pub first: u32_,
    pub tokens: u32_,
    pub kv_heads: u32_,
    pub dim: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QsaPackArgs"][::core::mem::size_of::<QsaPackArgs>() - 48usize];
    ["Alignment of QsaPackArgs"][::core::mem::align_of::<QsaPackArgs>() - 8usize];
    ["Offset of field: QsaPackArgs::k_out"][::core::mem::offset_of!(QsaPackArgs, k_out) - 0usize];
    ["Offset of field: QsaPackArgs::v_out"][::core::mem::offset_of!(QsaPackArgs, v_out) - 8usize];
    ["Offset of field: QsaPackArgs::planes"][::core::mem::offset_of!(QsaPackArgs, planes) - 16usize];
    ["Offset of field: QsaPackArgs::sequence"][::core::mem::offset_of!(QsaPackArgs, sequence) - 24usize];
    ["Offset of field: QsaPackArgs::first"][::core::mem::offset_of!(QsaPackArgs, first) - 28usize];
    ["Offset of field: QsaPackArgs::tokens"][::core::mem::offset_of!(QsaPackArgs, tokens) - 32usize];
    ["Offset of field: QsaPackArgs::kv_heads"][::core::mem::offset_of!(QsaPackArgs, kv_heads) - 36usize];
    ["Offset of field: QsaPackArgs::dim"][::core::mem::offset_of!(QsaPackArgs, dim) - 40usize];
    ["Offset of field: QsaPackArgs::unused"][::core::mem::offset_of!(QsaPackArgs, unused) - 44usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GatherAttendArgs {
    pub out: u64_,
    pub q: u64_,
    pub gate: u64_,
    pub k: u64_,
    pub v: u64_,
    pub blocks: u64_,
    pub counts: u64_,
    pub positions: u64_,
    pub heads: u32_,
    pub kv_heads: u32_,
    pub max_blocks: u32_,
    pub gate_row_stride: u32_,
    pub gate_head_stride: u32_,
    pub scale: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GatherAttendArgs"][::core::mem::size_of::<GatherAttendArgs>() - 88usize];
    ["Alignment of GatherAttendArgs"][::core::mem::align_of::<GatherAttendArgs>() - 8usize];
    ["Offset of field: GatherAttendArgs::out"][::core::mem::offset_of!(GatherAttendArgs, out) - 0usize];
    ["Offset of field: GatherAttendArgs::q"][::core::mem::offset_of!(GatherAttendArgs, q) - 8usize];
    ["Offset of field: GatherAttendArgs::gate"][::core::mem::offset_of!(GatherAttendArgs, gate) - 16usize];
    ["Offset of field: GatherAttendArgs::k"][::core::mem::offset_of!(GatherAttendArgs, k) - 24usize];
    ["Offset of field: GatherAttendArgs::v"][::core::mem::offset_of!(GatherAttendArgs, v) - 32usize];
    ["Offset of field: GatherAttendArgs::blocks"][::core::mem::offset_of!(GatherAttendArgs, blocks) - 40usize];
    ["Offset of field: GatherAttendArgs::counts"][::core::mem::offset_of!(GatherAttendArgs, counts) - 48usize];
    ["Offset of field: GatherAttendArgs::positions"][::core::mem::offset_of!(GatherAttendArgs, positions) - 56usize];
    ["Offset of field: GatherAttendArgs::heads"][::core::mem::offset_of!(GatherAttendArgs, heads) - 64usize];
    ["Offset of field: GatherAttendArgs::kv_heads"][::core::mem::offset_of!(GatherAttendArgs, kv_heads) - 68usize];
    ["Offset of field: GatherAttendArgs::max_blocks"][::core::mem::offset_of!(GatherAttendArgs, max_blocks) - 72usize];
    ["Offset of field: GatherAttendArgs::gate_row_stride"]
        [::core::mem::offset_of!(GatherAttendArgs, gate_row_stride) - 76usize];
    ["Offset of field: GatherAttendArgs::gate_head_stride"]
        [::core::mem::offset_of!(GatherAttendArgs, gate_head_stride) - 80usize];
    ["Offset of field: GatherAttendArgs::scale"][::core::mem::offset_of!(GatherAttendArgs, scale) - 84usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct PleSegment {
    pub window: u64_,
    pub first: u32_,
    pub rows: u32_,
    pub pending: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PleSegment"][::core::mem::size_of::<PleSegment>() - 24usize];
    ["Alignment of PleSegment"][::core::mem::align_of::<PleSegment>() - 8usize];
    ["Offset of field: PleSegment::window"][::core::mem::offset_of!(PleSegment, window) - 0usize];
    ["Offset of field: PleSegment::first"][::core::mem::offset_of!(PleSegment, first) - 8usize];
    ["Offset of field: PleSegment::rows"][::core::mem::offset_of!(PleSegment, rows) - 12usize];
    ["Offset of field: PleSegment::pending"][::core::mem::offset_of!(PleSegment, pending) - 16usize];
    ["Offset of field: PleSegment::unused"][::core::mem::offset_of!(PleSegment, unused) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct PleGateArgs {
    pub gated: u64_,
    pub normed: u64_,
    pub key: u64_,
    pub value: u64_,
    pub wide: u64_,
    pub norm_key: u64_,
    pub norm_query: u64_,
    pub norm_conv: u64_,
    pub streams: u32_,
    pub hidden: u32_,
    pub eps: f32,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PleGateArgs"][::core::mem::size_of::<PleGateArgs>() - 80usize];
    ["Alignment of PleGateArgs"][::core::mem::align_of::<PleGateArgs>() - 8usize];
    ["Offset of field: PleGateArgs::gated"][::core::mem::offset_of!(PleGateArgs, gated) - 0usize];
    ["Offset of field: PleGateArgs::normed"][::core::mem::offset_of!(PleGateArgs, normed) - 8usize];
    ["Offset of field: PleGateArgs::key"][::core::mem::offset_of!(PleGateArgs, key) - 16usize];
    ["Offset of field: PleGateArgs::value"][::core::mem::offset_of!(PleGateArgs, value) - 24usize];
    ["Offset of field: PleGateArgs::wide"][::core::mem::offset_of!(PleGateArgs, wide) - 32usize];
    ["Offset of field: PleGateArgs::norm_key"][::core::mem::offset_of!(PleGateArgs, norm_key) - 40usize];
    ["Offset of field: PleGateArgs::norm_query"][::core::mem::offset_of!(PleGateArgs, norm_query) - 48usize];
    ["Offset of field: PleGateArgs::norm_conv"][::core::mem::offset_of!(PleGateArgs, norm_conv) - 56usize];
    ["Offset of field: PleGateArgs::streams"][::core::mem::offset_of!(PleGateArgs, streams) - 64usize];
    ["Offset of field: PleGateArgs::hidden"][::core::mem::offset_of!(PleGateArgs, hidden) - 68usize];
    ["Offset of field: PleGateArgs::eps"][::core::mem::offset_of!(PleGateArgs, eps) - 72usize];
    ["Offset of field: PleGateArgs::unused"][::core::mem::offset_of!(PleGateArgs, unused) - 76usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct PleConvArgs {
    pub wide: u64_,
    pub gated: u64_,
    pub normed: u64_,
    pub weights: u64_,
    pub segments: u64_,
    pub sequence: u64_,
    pub width: u32_,
    pub taps: u32_,
    pub dilation: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PleConvArgs"][::core::mem::size_of::<PleConvArgs>() - 64usize];
    ["Alignment of PleConvArgs"][::core::mem::align_of::<PleConvArgs>() - 8usize];
    ["Offset of field: PleConvArgs::wide"][::core::mem::offset_of!(PleConvArgs, wide) - 0usize];
    ["Offset of field: PleConvArgs::gated"][::core::mem::offset_of!(PleConvArgs, gated) - 8usize];
    ["Offset of field: PleConvArgs::normed"][::core::mem::offset_of!(PleConvArgs, normed) - 16usize];
    ["Offset of field: PleConvArgs::weights"][::core::mem::offset_of!(PleConvArgs, weights) - 24usize];
    ["Offset of field: PleConvArgs::segments"][::core::mem::offset_of!(PleConvArgs, segments) - 32usize];
    ["Offset of field: PleConvArgs::sequence"][::core::mem::offset_of!(PleConvArgs, sequence) - 40usize];
    ["Offset of field: PleConvArgs::width"][::core::mem::offset_of!(PleConvArgs, width) - 48usize];
    ["Offset of field: PleConvArgs::taps"][::core::mem::offset_of!(PleConvArgs, taps) - 52usize];
    ["Offset of field: PleConvArgs::dilation"][::core::mem::offset_of!(PleConvArgs, dilation) - 56usize];
    ["Offset of field: PleConvArgs::unused"][::core::mem::offset_of!(PleConvArgs, unused) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct PleSlideArgs {
    pub normed: u64_,
    pub segments: u64_,
    pub width: u32_,
    pub history: u32_,
    pub revocable: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of PleSlideArgs"][::core::mem::size_of::<PleSlideArgs>() - 32usize];
    ["Alignment of PleSlideArgs"][::core::mem::align_of::<PleSlideArgs>() - 8usize];
    ["Offset of field: PleSlideArgs::normed"][::core::mem::offset_of!(PleSlideArgs, normed) - 0usize];
    ["Offset of field: PleSlideArgs::segments"][::core::mem::offset_of!(PleSlideArgs, segments) - 8usize];
    ["Offset of field: PleSlideArgs::width"][::core::mem::offset_of!(PleSlideArgs, width) - 16usize];
    ["Offset of field: PleSlideArgs::history"][::core::mem::offset_of!(PleSlideArgs, history) - 20usize];
    ["Offset of field: PleSlideArgs::revocable"][::core::mem::offset_of!(PleSlideArgs, revocable) - 24usize];
    ["Offset of field: PleSlideArgs::unused"][::core::mem::offset_of!(PleSlideArgs, unused) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct StreamAddArgs {
    pub wide: u64_,
    pub shared: u64_,
    pub streams: u32_,
    pub hidden: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of StreamAddArgs"][::core::mem::size_of::<StreamAddArgs>() - 24usize];
    ["Alignment of StreamAddArgs"][::core::mem::align_of::<StreamAddArgs>() - 8usize];
    ["Offset of field: StreamAddArgs::wide"][::core::mem::offset_of!(StreamAddArgs, wide) - 0usize];
    ["Offset of field: StreamAddArgs::shared"][::core::mem::offset_of!(StreamAddArgs, shared) - 8usize];
    ["Offset of field: StreamAddArgs::streams"][::core::mem::offset_of!(StreamAddArgs, streams) - 16usize];
    ["Offset of field: StreamAddArgs::hidden"][::core::mem::offset_of!(StreamAddArgs, hidden) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct CopyRowsArgs {
    pub out: u64_,
    pub input: u64_,
    pub rows: u64_,
    pub width: u32_,
    pub out_stride: u32_,
    pub input_stride: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of CopyRowsArgs"][::core::mem::size_of::<CopyRowsArgs>() - 40usize];
    ["Alignment of CopyRowsArgs"][::core::mem::align_of::<CopyRowsArgs>() - 8usize];
    ["Offset of field: CopyRowsArgs::out"][::core::mem::offset_of!(CopyRowsArgs, out) - 0usize];
    ["Offset of field: CopyRowsArgs::input"][::core::mem::offset_of!(CopyRowsArgs, input) - 8usize];
    ["Offset of field: CopyRowsArgs::rows"][::core::mem::offset_of!(CopyRowsArgs, rows) - 16usize];
    ["Offset of field: CopyRowsArgs::width"][::core::mem::offset_of!(CopyRowsArgs, width) - 24usize];
    ["Offset of field: CopyRowsArgs::out_stride"][::core::mem::offset_of!(CopyRowsArgs, out_stride) - 28usize];
    ["Offset of field: CopyRowsArgs::input_stride"][::core::mem::offset_of!(CopyRowsArgs, input_stride) - 32usize];
    ["Offset of field: CopyRowsArgs::unused"][::core::mem::offset_of!(CopyRowsArgs, unused) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct SampleCount {
    pub id: u32_,
    pub count: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SampleCount"][::core::mem::size_of::<SampleCount>() - 8usize];
    ["Alignment of SampleCount"][::core::mem::align_of::<SampleCount>() - 4usize];
    ["Offset of field: SampleCount::id"][::core::mem::offset_of!(SampleCount, id) - 0usize];
    ["Offset of field: SampleCount::count"][::core::mem::offset_of!(SampleCount, count) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct SampleBias {
    pub id: u32_,
    pub bias: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SampleBias"][::core::mem::size_of::<SampleBias>() - 8usize];
    ["Alignment of SampleBias"][::core::mem::align_of::<SampleBias>() - 4usize];
    ["Offset of field: SampleBias::id"][::core::mem::offset_of!(SampleBias, id) - 0usize];
    ["Offset of field: SampleBias::bias"][::core::mem::offset_of!(SampleBias, bias) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct SampleParams {
    pub history: u64_,
    pub bias: u64_,
    pub mask: u64_,
    pub seed: u64_,
    pub step: u64_,
    pub history_count: u32_,
    pub bias_count: u32_,
    pub temperature: f32,
    pub top_k: u32_,
    pub top_p: f32,
    pub min_p: f32,
    pub repetition_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub top_count: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SampleParams"][::core::mem::size_of::<SampleParams>() - 80usize];
    ["Alignment of SampleParams"][::core::mem::align_of::<SampleParams>() - 8usize];
    ["Offset of field: SampleParams::history"][::core::mem::offset_of!(SampleParams, history) - 0usize];
    ["Offset of field: SampleParams::bias"][::core::mem::offset_of!(SampleParams, bias) - 8usize];
    ["Offset of field: SampleParams::mask"][::core::mem::offset_of!(SampleParams, mask) - 16usize];
    ["Offset of field: SampleParams::seed"][::core::mem::offset_of!(SampleParams, seed) - 24usize];
    ["Offset of field: SampleParams::step"][::core::mem::offset_of!(SampleParams, step) - 32usize];
    ["Offset of field: SampleParams::history_count"][::core::mem::offset_of!(SampleParams, history_count) - 40usize];
    ["Offset of field: SampleParams::bias_count"][::core::mem::offset_of!(SampleParams, bias_count) - 44usize];
    ["Offset of field: SampleParams::temperature"][::core::mem::offset_of!(SampleParams, temperature) - 48usize];
    ["Offset of field: SampleParams::top_k"][::core::mem::offset_of!(SampleParams, top_k) - 52usize];
    ["Offset of field: SampleParams::top_p"][::core::mem::offset_of!(SampleParams, top_p) - 56usize];
    ["Offset of field: SampleParams::min_p"][::core::mem::offset_of!(SampleParams, min_p) - 60usize];
    ["Offset of field: SampleParams::repetition_penalty"]
        [::core::mem::offset_of!(SampleParams, repetition_penalty) - 64usize];
    ["Offset of field: SampleParams::presence_penalty"]
        [::core::mem::offset_of!(SampleParams, presence_penalty) - 68usize];
    ["Offset of field: SampleParams::frequency_penalty"]
        [::core::mem::offset_of!(SampleParams, frequency_penalty) - 72usize];
    ["Offset of field: SampleParams::top_count"][::core::mem::offset_of!(SampleParams, top_count) - 76usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct SampleResult {
    pub id: u32_,
    pub status: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SampleResult"][::core::mem::size_of::<SampleResult>() - 8usize];
    ["Alignment of SampleResult"][::core::mem::align_of::<SampleResult>() - 4usize];
    ["Offset of field: SampleResult::id"][::core::mem::offset_of!(SampleResult, id) - 0usize];
    ["Offset of field: SampleResult::status"][::core::mem::offset_of!(SampleResult, status) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct SampleAdjustArgs {
    pub adjusted: u64_,
    pub adjusted_maxima: u64_,
    pub maxima: u64_,
    pub sums: u64_,
    pub logits: u64_,
    pub params: u64_,
    pub vocabulary: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SampleAdjustArgs"][::core::mem::size_of::<SampleAdjustArgs>() - 56usize];
    ["Alignment of SampleAdjustArgs"][::core::mem::align_of::<SampleAdjustArgs>() - 8usize];
    ["Offset of field: SampleAdjustArgs::adjusted"][::core::mem::offset_of!(SampleAdjustArgs, adjusted) - 0usize];
    ["Offset of field: SampleAdjustArgs::adjusted_maxima"]
        [::core::mem::offset_of!(SampleAdjustArgs, adjusted_maxima) - 8usize];
    ["Offset of field: SampleAdjustArgs::maxima"][::core::mem::offset_of!(SampleAdjustArgs, maxima) - 16usize];
    ["Offset of field: SampleAdjustArgs::sums"][::core::mem::offset_of!(SampleAdjustArgs, sums) - 24usize];
    ["Offset of field: SampleAdjustArgs::logits"][::core::mem::offset_of!(SampleAdjustArgs, logits) - 32usize];
    ["Offset of field: SampleAdjustArgs::params"][::core::mem::offset_of!(SampleAdjustArgs, params) - 40usize];
    ["Offset of field: SampleAdjustArgs::vocabulary"][::core::mem::offset_of!(SampleAdjustArgs, vocabulary) - 48usize];
    ["Offset of field: SampleAdjustArgs::unused"][::core::mem::offset_of!(SampleAdjustArgs, unused) - 52usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct SampleDrawArgs {
    pub results: u64_,
    pub logits: u64_,
    pub maxima: u64_,
    pub params: u64_,
    pub vocabulary: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SampleDrawArgs"][::core::mem::size_of::<SampleDrawArgs>() - 40usize];
    ["Alignment of SampleDrawArgs"][::core::mem::align_of::<SampleDrawArgs>() - 8usize];
    ["Offset of field: SampleDrawArgs::results"][::core::mem::offset_of!(SampleDrawArgs, results) - 0usize];
    ["Offset of field: SampleDrawArgs::logits"][::core::mem::offset_of!(SampleDrawArgs, logits) - 8usize];
    ["Offset of field: SampleDrawArgs::maxima"][::core::mem::offset_of!(SampleDrawArgs, maxima) - 16usize];
    ["Offset of field: SampleDrawArgs::params"][::core::mem::offset_of!(SampleDrawArgs, params) - 24usize];
    ["Offset of field: SampleDrawArgs::vocabulary"][::core::mem::offset_of!(SampleDrawArgs, vocabulary) - 32usize];
    ["Offset of field: SampleDrawArgs::unused"][::core::mem::offset_of!(SampleDrawArgs, unused) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct SampleLogprobsArgs {
    pub chosen: u64_,
    pub top_ids: u64_,
    pub top: u64_,
    pub results: u64_,
    pub logits: u64_,
    pub maxima: u64_,
    pub sums: u64_,
    pub params: u64_,
    pub vocabulary: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of SampleLogprobsArgs"][::core::mem::size_of::<SampleLogprobsArgs>() - 72usize];
    ["Alignment of SampleLogprobsArgs"][::core::mem::align_of::<SampleLogprobsArgs>() - 8usize];
    ["Offset of field: SampleLogprobsArgs::chosen"][::core::mem::offset_of!(SampleLogprobsArgs, chosen) - 0usize];
    ["Offset of field: SampleLogprobsArgs::top_ids"][::core::mem::offset_of!(SampleLogprobsArgs, top_ids) - 8usize];
    ["Offset of field: SampleLogprobsArgs::top"][::core::mem::offset_of!(SampleLogprobsArgs, top) - 16usize];
    ["Offset of field: SampleLogprobsArgs::results"][::core::mem::offset_of!(SampleLogprobsArgs, results) - 24usize];
    ["Offset of field: SampleLogprobsArgs::logits"][::core::mem::offset_of!(SampleLogprobsArgs, logits) - 32usize];
    ["Offset of field: SampleLogprobsArgs::maxima"][::core::mem::offset_of!(SampleLogprobsArgs, maxima) - 40usize];
    ["Offset of field: SampleLogprobsArgs::sums"][::core::mem::offset_of!(SampleLogprobsArgs, sums) - 48usize];
    ["Offset of field: SampleLogprobsArgs::params"][::core::mem::offset_of!(SampleLogprobsArgs, params) - 56usize];
    ["Offset of field: SampleLogprobsArgs::vocabulary"]
        [::core::mem::offset_of!(SampleLogprobsArgs, vocabulary) - 64usize];
    ["Offset of field: SampleLogprobsArgs::unused"][::core::mem::offset_of!(SampleLogprobsArgs, unused) - 68usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GdnPlanes {
    pub state: u64_,
    pub window: u64_,
    pub keys: u64_,
    pub values: u64_,
    pub decay: u64_,
    pub strength: u64_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GdnPlanes"][::core::mem::size_of::<GdnPlanes>() - 48usize];
    ["Alignment of GdnPlanes"][::core::mem::align_of::<GdnPlanes>() - 8usize];
    ["Offset of field: GdnPlanes::state"][::core::mem::offset_of!(GdnPlanes, state) - 0usize];
    ["Offset of field: GdnPlanes::window"][::core::mem::offset_of!(GdnPlanes, window) - 8usize];
    ["Offset of field: GdnPlanes::keys"][::core::mem::offset_of!(GdnPlanes, keys) - 16usize];
    ["Offset of field: GdnPlanes::values"][::core::mem::offset_of!(GdnPlanes, values) - 24usize];
    ["Offset of field: GdnPlanes::decay"][::core::mem::offset_of!(GdnPlanes, decay) - 32usize];
    ["Offset of field: GdnPlanes::strength"][::core::mem::offset_of!(GdnPlanes, strength) - 40usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GdnSegment {
    pub first: u32_,
    pub rows: u32_,
    pub pending: u32_,
    pub chunk: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GdnSegment"][::core::mem::size_of::<GdnSegment>() - 16usize];
    ["Alignment of GdnSegment"][::core::mem::align_of::<GdnSegment>() - 4usize];
    ["Offset of field: GdnSegment::first"][::core::mem::offset_of!(GdnSegment, first) - 0usize];
    ["Offset of field: GdnSegment::rows"][::core::mem::offset_of!(GdnSegment, rows) - 4usize];
    ["Offset of field: GdnSegment::pending"][::core::mem::offset_of!(GdnSegment, pending) - 8usize];
    ["Offset of field: GdnSegment::chunk"][::core::mem::offset_of!(GdnSegment, chunk) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GdnConvArgs {
    pub mixed: u64_,
    pub strength: u64_,
    pub decay: u64_,
    pub planes: u64_,
    pub segments: u64_,
    pub qkv: u64_,
    pub b: u64_,
    pub a: u64_,
    pub taps: u64_,
    pub dt_bias: u64_,
    pub rate: u64_,
    pub tiles: u32_,
    pub tile: u32_,
    pub key_heads: u32_,
    pub value_heads: u32_,
    pub key_dim: u32_,
    pub value_dim: u32_,
    pub rewind: u32_,
    pub query_scale: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GdnConvArgs"][::core::mem::size_of::<GdnConvArgs>() - 120usize];
    ["Alignment of GdnConvArgs"][::core::mem::align_of::<GdnConvArgs>() - 8usize];
    ["Offset of field: GdnConvArgs::mixed"][::core::mem::offset_of!(GdnConvArgs, mixed) - 0usize];
    ["Offset of field: GdnConvArgs::strength"][::core::mem::offset_of!(GdnConvArgs, strength) - 8usize];
    ["Offset of field: GdnConvArgs::decay"][::core::mem::offset_of!(GdnConvArgs, decay) - 16usize];
    ["Offset of field: GdnConvArgs::planes"][::core::mem::offset_of!(GdnConvArgs, planes) - 24usize];
    ["Offset of field: GdnConvArgs::segments"][::core::mem::offset_of!(GdnConvArgs, segments) - 32usize];
    ["Offset of field: GdnConvArgs::qkv"][::core::mem::offset_of!(GdnConvArgs, qkv) - 40usize];
    ["Offset of field: GdnConvArgs::b"][::core::mem::offset_of!(GdnConvArgs, b) - 48usize];
    ["Offset of field: GdnConvArgs::a"][::core::mem::offset_of!(GdnConvArgs, a) - 56usize];
    ["Offset of field: GdnConvArgs::taps"][::core::mem::offset_of!(GdnConvArgs, taps) - 64usize];
    ["Offset of field: GdnConvArgs::dt_bias"][::core::mem::offset_of!(GdnConvArgs, dt_bias) - 72usize];
    ["Offset of field: GdnConvArgs::rate"][::core::mem::offset_of!(GdnConvArgs, rate) - 80usize];
    ["Offset of field: GdnConvArgs::tiles"][::core::mem::offset_of!(GdnConvArgs, tiles) - 88usize];
    ["Offset of field: GdnConvArgs::tile"][::core::mem::offset_of!(GdnConvArgs, tile) - 92usize];
    ["Offset of field: GdnConvArgs::key_heads"][::core::mem::offset_of!(GdnConvArgs, key_heads) - 96usize];
    ["Offset of field: GdnConvArgs::value_heads"][::core::mem::offset_of!(GdnConvArgs, value_heads) - 100usize];
    ["Offset of field: GdnConvArgs::key_dim"][::core::mem::offset_of!(GdnConvArgs, key_dim) - 104usize];
    ["Offset of field: GdnConvArgs::value_dim"][::core::mem::offset_of!(GdnConvArgs, value_dim) - 108usize];
    ["Offset of field: GdnConvArgs::rewind"][::core::mem::offset_of!(GdnConvArgs, rewind) - 112usize];
    ["Offset of field: GdnConvArgs::query_scale"][::core::mem::offset_of!(GdnConvArgs, query_scale) - 116usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GdnSlideArgs {
    pub planes: u64_,
    pub segments: u64_,
    pub qkv: u64_,
    pub channels: u32_,
    pub tile: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GdnSlideArgs"][::core::mem::size_of::<GdnSlideArgs>() - 32usize];
    ["Alignment of GdnSlideArgs"][::core::mem::align_of::<GdnSlideArgs>() - 8usize];
    ["Offset of field: GdnSlideArgs::planes"][::core::mem::offset_of!(GdnSlideArgs, planes) - 0usize];
    ["Offset of field: GdnSlideArgs::segments"][::core::mem::offset_of!(GdnSlideArgs, segments) - 8usize];
    ["Offset of field: GdnSlideArgs::qkv"][::core::mem::offset_of!(GdnSlideArgs, qkv) - 16usize];
    ["Offset of field: GdnSlideArgs::channels"][::core::mem::offset_of!(GdnSlideArgs, channels) - 24usize];
    ["Offset of field: GdnSlideArgs::tile"][::core::mem::offset_of!(GdnSlideArgs, tile) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GdnStepArgs {
    pub out: u64_,
    pub planes: u64_,
    pub segments: u64_,
    pub mixed: u64_,
    pub decay: u64_,
    pub strength: u64_,
    pub key_heads: u32_,
    pub value_heads: u32_,
    pub key_dim: u32_,
    pub value_dim: u32_,
    pub rewind: u32_,
    pub limit: u32_,
    pub tiled: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GdnStepArgs"][::core::mem::size_of::<GdnStepArgs>() - 80usize];
    ["Alignment of GdnStepArgs"][::core::mem::align_of::<GdnStepArgs>() - 8usize];
    ["Offset of field: GdnStepArgs::out"][::core::mem::offset_of!(GdnStepArgs, out) - 0usize];
    ["Offset of field: GdnStepArgs::planes"][::core::mem::offset_of!(GdnStepArgs, planes) - 8usize];
    ["Offset of field: GdnStepArgs::segments"][::core::mem::offset_of!(GdnStepArgs, segments) - 16usize];
    ["Offset of field: GdnStepArgs::mixed"][::core::mem::offset_of!(GdnStepArgs, mixed) - 24usize];
    ["Offset of field: GdnStepArgs::decay"][::core::mem::offset_of!(GdnStepArgs, decay) - 32usize];
    ["Offset of field: GdnStepArgs::strength"][::core::mem::offset_of!(GdnStepArgs, strength) - 40usize];
    ["Offset of field: GdnStepArgs::key_heads"][::core::mem::offset_of!(GdnStepArgs, key_heads) - 48usize];
    ["Offset of field: GdnStepArgs::value_heads"][::core::mem::offset_of!(GdnStepArgs, value_heads) - 52usize];
    ["Offset of field: GdnStepArgs::key_dim"][::core::mem::offset_of!(GdnStepArgs, key_dim) - 56usize];
    ["Offset of field: GdnStepArgs::value_dim"][::core::mem::offset_of!(GdnStepArgs, value_dim) - 60usize];
    ["Offset of field: GdnStepArgs::rewind"][::core::mem::offset_of!(GdnStepArgs, rewind) - 64usize];
    ["Offset of field: GdnStepArgs::limit"][::core::mem::offset_of!(GdnStepArgs, limit) - 68usize];
    ["Offset of field: GdnStepArgs::tiled"][::core::mem::offset_of!(GdnStepArgs, tiled) - 72usize];
    ["Offset of field: GdnStepArgs::unused"][::core::mem::offset_of!(GdnStepArgs, unused) - 76usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GdnScanArgs {
    pub out: u64_,
    pub planes: u64_,
    pub segments: u64_,
    pub mixed: u64_,
    pub decay: u64_,
    pub strength: u64_,
    pub keys: u64_,
    pub pairs: u64_,
    pub growth: u64_,
    pub chunks: u32_,
    pub key_heads: u32_,
    pub value_heads: u32_,
    pub key_dim: u32_,
    pub value_dim: u32_,
    pub limit: u32_,
    pub tiled: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GdnScanArgs"][::core::mem::size_of::<GdnScanArgs>() - 104usize];
    ["Alignment of GdnScanArgs"][::core::mem::align_of::<GdnScanArgs>() - 8usize];
    ["Offset of field: GdnScanArgs::out"][::core::mem::offset_of!(GdnScanArgs, out) - 0usize];
    ["Offset of field: GdnScanArgs::planes"][::core::mem::offset_of!(GdnScanArgs, planes) - 8usize];
    ["Offset of field: GdnScanArgs::segments"][::core::mem::offset_of!(GdnScanArgs, segments) - 16usize];
    ["Offset of field: GdnScanArgs::mixed"][::core::mem::offset_of!(GdnScanArgs, mixed) - 24usize];
    ["Offset of field: GdnScanArgs::decay"][::core::mem::offset_of!(GdnScanArgs, decay) - 32usize];
    ["Offset of field: GdnScanArgs::strength"][::core::mem::offset_of!(GdnScanArgs, strength) - 40usize];
    ["Offset of field: GdnScanArgs::keys"][::core::mem::offset_of!(GdnScanArgs, keys) - 48usize];
    ["Offset of field: GdnScanArgs::pairs"][::core::mem::offset_of!(GdnScanArgs, pairs) - 56usize];
    ["Offset of field: GdnScanArgs::growth"][::core::mem::offset_of!(GdnScanArgs, growth) - 64usize];
    ["Offset of field: GdnScanArgs::chunks"][::core::mem::offset_of!(GdnScanArgs, chunks) - 72usize];
    ["Offset of field: GdnScanArgs::key_heads"][::core::mem::offset_of!(GdnScanArgs, key_heads) - 76usize];
    ["Offset of field: GdnScanArgs::value_heads"][::core::mem::offset_of!(GdnScanArgs, value_heads) - 80usize];
    ["Offset of field: GdnScanArgs::key_dim"][::core::mem::offset_of!(GdnScanArgs, key_dim) - 84usize];
    ["Offset of field: GdnScanArgs::value_dim"][::core::mem::offset_of!(GdnScanArgs, value_dim) - 88usize];
    ["Offset of field: GdnScanArgs::limit"][::core::mem::offset_of!(GdnScanArgs, limit) - 92usize];
    ["Offset of field: GdnScanArgs::tiled"][::core::mem::offset_of!(GdnScanArgs, tiled) - 96usize];
    ["Offset of field: GdnScanArgs::unused"][::core::mem::offset_of!(GdnScanArgs, unused) - 100usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct GdnOutputArgs {
    pub out: u64_,
    pub o: u64_,
    pub z: u64_,
    pub weight: u64_,
    pub planes: u64_,
    pub segments: u64_,
    pub sequence: u64_,
    pub mixed: u64_,
    pub decay: u64_,
    pub strength: u64_,
    pub rows: u32_,
    pub key_heads: u32_,
    pub value_heads: u32_,
    pub key_dim: u32_,
    pub value_dim: u32_,
    pub rewind: u32_,
    pub eps: f32,
    pub silu: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GdnOutputArgs"][::core::mem::size_of::<GdnOutputArgs>() - 112usize];
    ["Alignment of GdnOutputArgs"][::core::mem::align_of::<GdnOutputArgs>() - 8usize];
    ["Offset of field: GdnOutputArgs::out"][::core::mem::offset_of!(GdnOutputArgs, out) - 0usize];
    ["Offset of field: GdnOutputArgs::o"][::core::mem::offset_of!(GdnOutputArgs, o) - 8usize];
    ["Offset of field: GdnOutputArgs::z"][::core::mem::offset_of!(GdnOutputArgs, z) - 16usize];
    ["Offset of field: GdnOutputArgs::weight"][::core::mem::offset_of!(GdnOutputArgs, weight) - 24usize];
    ["Offset of field: GdnOutputArgs::planes"][::core::mem::offset_of!(GdnOutputArgs, planes) - 32usize];
    ["Offset of field: GdnOutputArgs::segments"][::core::mem::offset_of!(GdnOutputArgs, segments) - 40usize];
    ["Offset of field: GdnOutputArgs::sequence"][::core::mem::offset_of!(GdnOutputArgs, sequence) - 48usize];
    ["Offset of field: GdnOutputArgs::mixed"][::core::mem::offset_of!(GdnOutputArgs, mixed) - 56usize];
    ["Offset of field: GdnOutputArgs::decay"][::core::mem::offset_of!(GdnOutputArgs, decay) - 64usize];
    ["Offset of field: GdnOutputArgs::strength"][::core::mem::offset_of!(GdnOutputArgs, strength) - 72usize];
    ["Offset of field: GdnOutputArgs::rows"][::core::mem::offset_of!(GdnOutputArgs, rows) - 80usize];
    ["Offset of field: GdnOutputArgs::key_heads"][::core::mem::offset_of!(GdnOutputArgs, key_heads) - 84usize];
    ["Offset of field: GdnOutputArgs::value_heads"][::core::mem::offset_of!(GdnOutputArgs, value_heads) - 88usize];
    ["Offset of field: GdnOutputArgs::key_dim"][::core::mem::offset_of!(GdnOutputArgs, key_dim) - 92usize];
    ["Offset of field: GdnOutputArgs::value_dim"][::core::mem::offset_of!(GdnOutputArgs, value_dim) - 96usize];
    ["Offset of field: GdnOutputArgs::rewind"][::core::mem::offset_of!(GdnOutputArgs, rewind) - 100usize];
    ["Offset of field: GdnOutputArgs::eps"][::core::mem::offset_of!(GdnOutputArgs, eps) - 104usize];
    ["Offset of field: GdnOutputArgs::silu"][::core::mem::offset_of!(GdnOutputArgs, silu) - 108usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeExpert {
    pub gate: u64_,
    pub up: u64_,
    pub down: u64_,
    pub gate_scales: u64_,
    pub up_scales: u64_,
    pub down_scales: u64_,
    pub up_offset: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeExpert"][::core::mem::size_of::<MoeExpert>() - 56usize];
    ["Alignment of MoeExpert"][::core::mem::align_of::<MoeExpert>() - 8usize];
    ["Offset of field: MoeExpert::gate"][::core::mem::offset_of!(MoeExpert, gate) - 0usize];
    ["Offset of field: MoeExpert::up"][::core::mem::offset_of!(MoeExpert, up) - 8usize];
    ["Offset of field: MoeExpert::down"][::core::mem::offset_of!(MoeExpert, down) - 16usize];
    ["Offset of field: MoeExpert::gate_scales"][::core::mem::offset_of!(MoeExpert, gate_scales) - 24usize];
    ["Offset of field: MoeExpert::up_scales"][::core::mem::offset_of!(MoeExpert, up_scales) - 32usize];
    ["Offset of field: MoeExpert::down_scales"][::core::mem::offset_of!(MoeExpert, down_scales) - 40usize];
    ["Offset of field: MoeExpert::up_offset"][::core::mem::offset_of!(MoeExpert, up_offset) - 48usize];
    ["Offset of field: MoeExpert::unused"][::core::mem::offset_of!(MoeExpert, unused) - 52usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeGroup {
    pub expert: u32_,
    pub rows: u32_,
    pub slots: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeGroup"][::core::mem::size_of::<MoeGroup>() - 16usize];
    ["Alignment of MoeGroup"][::core::mem::align_of::<MoeGroup>() - 4usize];
    ["Offset of field: MoeGroup::expert"][::core::mem::offset_of!(MoeGroup, expert) - 0usize];
    ["Offset of field: MoeGroup::rows"][::core::mem::offset_of!(MoeGroup, rows) - 4usize];
    ["Offset of field: MoeGroup::slots"][::core::mem::offset_of!(MoeGroup, slots) - 8usize];
    ["Offset of field: MoeGroup::unused"][::core::mem::offset_of!(MoeGroup, unused) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeTile {
    pub expert: u32_,
    pub first: u32_,
    pub count: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeTile"][::core::mem::size_of::<MoeTile>() - 16usize];
    ["Alignment of MoeTile"][::core::mem::align_of::<MoeTile>() - 4usize];
    ["Offset of field: MoeTile::expert"][::core::mem::offset_of!(MoeTile, expert) - 0usize];
    ["Offset of field: MoeTile::first"][::core::mem::offset_of!(MoeTile, first) - 4usize];
    ["Offset of field: MoeTile::count"][::core::mem::offset_of!(MoeTile, count) - 8usize];
    ["Offset of field: MoeTile::unused"][::core::mem::offset_of!(MoeTile, unused) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeRouteArgs {
    pub ids: u64_,
    pub weights: u64_,
    pub groups: u64_,
    pub logits: u64_,
    pub stride: u32_,
    pub rows: u32_,
    pub experts: u32_,
    pub top_k: u32_,
    pub normalise: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeRouteArgs"][::core::mem::size_of::<MoeRouteArgs>() - 56usize];
    ["Alignment of MoeRouteArgs"][::core::mem::align_of::<MoeRouteArgs>() - 8usize];
    ["Offset of field: MoeRouteArgs::ids"][::core::mem::offset_of!(MoeRouteArgs, ids) - 0usize];
    ["Offset of field: MoeRouteArgs::weights"][::core::mem::offset_of!(MoeRouteArgs, weights) - 8usize];
    ["Offset of field: MoeRouteArgs::groups"][::core::mem::offset_of!(MoeRouteArgs, groups) - 16usize];
    ["Offset of field: MoeRouteArgs::logits"][::core::mem::offset_of!(MoeRouteArgs, logits) - 24usize];
    ["Offset of field: MoeRouteArgs::stride"][::core::mem::offset_of!(MoeRouteArgs, stride) - 32usize];
    ["Offset of field: MoeRouteArgs::rows"][::core::mem::offset_of!(MoeRouteArgs, rows) - 36usize];
    ["Offset of field: MoeRouteArgs::experts"][::core::mem::offset_of!(MoeRouteArgs, experts) - 40usize];
    ["Offset of field: MoeRouteArgs::top_k"][::core::mem::offset_of!(MoeRouteArgs, top_k) - 44usize];
    ["Offset of field: MoeRouteArgs::normalise"][::core::mem::offset_of!(MoeRouteArgs, normalise) - 48usize];
    ["Offset of field: MoeRouteArgs::unused"][::core::mem::offset_of!(MoeRouteArgs, unused) - 52usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeListsArgs {
    pub entries: u64_,
    pub starts: u64_,
    pub tiles: u64_,
    pub ids: u64_,
    pub pairs: u32_,
    pub experts: u32_,
    pub tile_rows: u32_,
    pub max_tiles: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeListsArgs"][::core::mem::size_of::<MoeListsArgs>() - 48usize];
    ["Alignment of MoeListsArgs"][::core::mem::align_of::<MoeListsArgs>() - 8usize];
    ["Offset of field: MoeListsArgs::entries"][::core::mem::offset_of!(MoeListsArgs, entries) - 0usize];
    ["Offset of field: MoeListsArgs::starts"][::core::mem::offset_of!(MoeListsArgs, starts) - 8usize];
    ["Offset of field: MoeListsArgs::tiles"][::core::mem::offset_of!(MoeListsArgs, tiles) - 16usize];
    ["Offset of field: MoeListsArgs::ids"][::core::mem::offset_of!(MoeListsArgs, ids) - 24usize];
    ["Offset of field: MoeListsArgs::pairs"][::core::mem::offset_of!(MoeListsArgs, pairs) - 32usize];
    ["Offset of field: MoeListsArgs::experts"][::core::mem::offset_of!(MoeListsArgs, experts) - 36usize];
    ["Offset of field: MoeListsArgs::tile_rows"][::core::mem::offset_of!(MoeListsArgs, tile_rows) - 40usize];
    ["Offset of field: MoeListsArgs::max_tiles"][::core::mem::offset_of!(MoeListsArgs, max_tiles) - 44usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeGateUpArgs {
    pub hidden: u64_,
    pub shared_hidden: u64_,
    pub x: u64_,
    pub experts: u64_,
    pub groups: u64_,
    pub rows: u32_,
    pub top_k: u32_,
    pub inputs: u32_,
    pub inner: u32_,
    pub shared: u32_,
    pub shared_inner: u32_,
    pub shared_q8_0: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeGateUpArgs"][::core::mem::size_of::<MoeGateUpArgs>() - 72usize];
    ["Alignment of MoeGateUpArgs"][::core::mem::align_of::<MoeGateUpArgs>() - 8usize];
    ["Offset of field: MoeGateUpArgs::hidden"][::core::mem::offset_of!(MoeGateUpArgs, hidden) - 0usize];
    ["Offset of field: MoeGateUpArgs::shared_hidden"][::core::mem::offset_of!(MoeGateUpArgs, shared_hidden) - 8usize];
    ["Offset of field: MoeGateUpArgs::x"][::core::mem::offset_of!(MoeGateUpArgs, x) - 16usize];
    ["Offset of field: MoeGateUpArgs::experts"][::core::mem::offset_of!(MoeGateUpArgs, experts) - 24usize];
    ["Offset of field: MoeGateUpArgs::groups"][::core::mem::offset_of!(MoeGateUpArgs, groups) - 32usize];
    ["Offset of field: MoeGateUpArgs::rows"][::core::mem::offset_of!(MoeGateUpArgs, rows) - 40usize];
    ["Offset of field: MoeGateUpArgs::top_k"][::core::mem::offset_of!(MoeGateUpArgs, top_k) - 44usize];
    ["Offset of field: MoeGateUpArgs::inputs"][::core::mem::offset_of!(MoeGateUpArgs, inputs) - 48usize];
    ["Offset of field: MoeGateUpArgs::inner"][::core::mem::offset_of!(MoeGateUpArgs, inner) - 52usize];
    ["Offset of field: MoeGateUpArgs::shared"][::core::mem::offset_of!(MoeGateUpArgs, shared) - 56usize];
    ["Offset of field: MoeGateUpArgs::shared_inner"][::core::mem::offset_of!(MoeGateUpArgs, shared_inner) - 60usize];
    ["Offset of field: MoeGateUpArgs::shared_q8_0"][::core::mem::offset_of!(MoeGateUpArgs, shared_q8_0) - 64usize];
    ["Offset of field: MoeGateUpArgs::unused"][::core::mem::offset_of!(MoeGateUpArgs, unused) - 68usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeDownArgs {
    pub y: u64_,
    pub hidden: u64_,
    pub shared_hidden: u64_,
    pub weights: u64_,
    pub scale: u64_,
    pub experts: u64_,
    pub groups: u64_,
    pub rows: u32_,
    pub top_k: u32_,
    pub outputs: u32_,
    pub inner: u32_,
    pub shared: u32_,
    pub shared_inner: u32_,
    pub scale_stride: u32_,
    pub add: u32_,
    pub shared_q8_0: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeDownArgs"][::core::mem::size_of::<MoeDownArgs>() - 96usize];
    ["Alignment of MoeDownArgs"][::core::mem::align_of::<MoeDownArgs>() - 8usize];
    ["Offset of field: MoeDownArgs::y"][::core::mem::offset_of!(MoeDownArgs, y) - 0usize];
    ["Offset of field: MoeDownArgs::hidden"][::core::mem::offset_of!(MoeDownArgs, hidden) - 8usize];
    ["Offset of field: MoeDownArgs::shared_hidden"][::core::mem::offset_of!(MoeDownArgs, shared_hidden) - 16usize];
    ["Offset of field: MoeDownArgs::weights"][::core::mem::offset_of!(MoeDownArgs, weights) - 24usize];
    ["Offset of field: MoeDownArgs::scale"][::core::mem::offset_of!(MoeDownArgs, scale) - 32usize];
    ["Offset of field: MoeDownArgs::experts"][::core::mem::offset_of!(MoeDownArgs, experts) - 40usize];
    ["Offset of field: MoeDownArgs::groups"][::core::mem::offset_of!(MoeDownArgs, groups) - 48usize];
    ["Offset of field: MoeDownArgs::rows"][::core::mem::offset_of!(MoeDownArgs, rows) - 56usize];
    ["Offset of field: MoeDownArgs::top_k"][::core::mem::offset_of!(MoeDownArgs, top_k) - 60usize];
    ["Offset of field: MoeDownArgs::outputs"][::core::mem::offset_of!(MoeDownArgs, outputs) - 64usize];
    ["Offset of field: MoeDownArgs::inner"][::core::mem::offset_of!(MoeDownArgs, inner) - 68usize];
    ["Offset of field: MoeDownArgs::shared"][::core::mem::offset_of!(MoeDownArgs, shared) - 72usize];
    ["Offset of field: MoeDownArgs::shared_inner"][::core::mem::offset_of!(MoeDownArgs, shared_inner) - 76usize];
    ["Offset of field: MoeDownArgs::scale_stride"][::core::mem::offset_of!(MoeDownArgs, scale_stride) - 80usize];
    ["Offset of field: MoeDownArgs::add"][::core::mem::offset_of!(MoeDownArgs, add) - 84usize];
    ["Offset of field: MoeDownArgs::shared_q8_0"][::core::mem::offset_of!(MoeDownArgs, shared_q8_0) - 88usize];
    ["Offset of field: MoeDownArgs::unused"][::core::mem::offset_of!(MoeDownArgs, unused) - 92usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeGemmGateUpArgs {
    pub hidden: u64_,
    pub x: u64_,
    pub factors: u64_,
    pub experts: u64_,
    pub entries: u64_,
    pub tiles: u64_,
    pub count: u32_,
    pub expert: u32_,
    pub top_k: u32_,
    pub inputs: u32_,
    pub inner: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeGemmGateUpArgs"][::core::mem::size_of::<MoeGemmGateUpArgs>() - 72usize];
    ["Alignment of MoeGemmGateUpArgs"][::core::mem::align_of::<MoeGemmGateUpArgs>() - 8usize];
    ["Offset of field: MoeGemmGateUpArgs::hidden"][::core::mem::offset_of!(MoeGemmGateUpArgs, hidden) - 0usize];
    ["Offset of field: MoeGemmGateUpArgs::x"][::core::mem::offset_of!(MoeGemmGateUpArgs, x) - 8usize];
    ["Offset of field: MoeGemmGateUpArgs::factors"][::core::mem::offset_of!(MoeGemmGateUpArgs, factors) - 16usize];
    ["Offset of field: MoeGemmGateUpArgs::experts"][::core::mem::offset_of!(MoeGemmGateUpArgs, experts) - 24usize];
    ["Offset of field: MoeGemmGateUpArgs::entries"][::core::mem::offset_of!(MoeGemmGateUpArgs, entries) - 32usize];
    ["Offset of field: MoeGemmGateUpArgs::tiles"][::core::mem::offset_of!(MoeGemmGateUpArgs, tiles) - 40usize];
    ["Offset of field: MoeGemmGateUpArgs::count"][::core::mem::offset_of!(MoeGemmGateUpArgs, count) - 48usize];
    ["Offset of field: MoeGemmGateUpArgs::expert"][::core::mem::offset_of!(MoeGemmGateUpArgs, expert) - 52usize];
    ["Offset of field: MoeGemmGateUpArgs::top_k"][::core::mem::offset_of!(MoeGemmGateUpArgs, top_k) - 56usize];
    ["Offset of field: MoeGemmGateUpArgs::inputs"][::core::mem::offset_of!(MoeGemmGateUpArgs, inputs) - 60usize];
    ["Offset of field: MoeGemmGateUpArgs::inner"][::core::mem::offset_of!(MoeGemmGateUpArgs, inner) - 64usize];
    ["Offset of field: MoeGemmGateUpArgs::unused"][::core::mem::offset_of!(MoeGemmGateUpArgs, unused) - 68usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeGemmDownArgs {
    pub parts: u64_,
    pub hidden: u64_,
    pub experts: u64_,
    pub entries: u64_,
    pub tiles: u64_,
    pub count: u32_,
    pub expert: u32_,
    pub outputs: u32_,
    pub inner: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeGemmDownArgs"][::core::mem::size_of::<MoeGemmDownArgs>() - 56usize];
    ["Alignment of MoeGemmDownArgs"][::core::mem::align_of::<MoeGemmDownArgs>() - 8usize];
    ["Offset of field: MoeGemmDownArgs::parts"][::core::mem::offset_of!(MoeGemmDownArgs, parts) - 0usize];
    ["Offset of field: MoeGemmDownArgs::hidden"][::core::mem::offset_of!(MoeGemmDownArgs, hidden) - 8usize];
    ["Offset of field: MoeGemmDownArgs::experts"][::core::mem::offset_of!(MoeGemmDownArgs, experts) - 16usize];
    ["Offset of field: MoeGemmDownArgs::entries"][::core::mem::offset_of!(MoeGemmDownArgs, entries) - 24usize];
    ["Offset of field: MoeGemmDownArgs::tiles"][::core::mem::offset_of!(MoeGemmDownArgs, tiles) - 32usize];
    ["Offset of field: MoeGemmDownArgs::count"][::core::mem::offset_of!(MoeGemmDownArgs, count) - 40usize];
    ["Offset of field: MoeGemmDownArgs::expert"][::core::mem::offset_of!(MoeGemmDownArgs, expert) - 44usize];
    ["Offset of field: MoeGemmDownArgs::outputs"][::core::mem::offset_of!(MoeGemmDownArgs, outputs) - 48usize];
    ["Offset of field: MoeGemmDownArgs::inner"][::core::mem::offset_of!(MoeGemmDownArgs, inner) - 52usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct MoeCombineArgs {
    pub y: u64_,
    pub parts: u64_,
    pub shared: u64_,
    pub weights: u64_,
    pub scale: u64_,
    pub rows: u32_,
    pub top_k: u32_,
    pub width: u32_,
    pub scale_stride: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of MoeCombineArgs"][::core::mem::size_of::<MoeCombineArgs>() - 56usize];
    ["Alignment of MoeCombineArgs"][::core::mem::align_of::<MoeCombineArgs>() - 8usize];
    ["Offset of field: MoeCombineArgs::y"][::core::mem::offset_of!(MoeCombineArgs, y) - 0usize];
    ["Offset of field: MoeCombineArgs::parts"][::core::mem::offset_of!(MoeCombineArgs, parts) - 8usize];
    ["Offset of field: MoeCombineArgs::shared"][::core::mem::offset_of!(MoeCombineArgs, shared) - 16usize];
    ["Offset of field: MoeCombineArgs::weights"][::core::mem::offset_of!(MoeCombineArgs, weights) - 24usize];
    ["Offset of field: MoeCombineArgs::scale"][::core::mem::offset_of!(MoeCombineArgs, scale) - 32usize];
    ["Offset of field: MoeCombineArgs::rows"][::core::mem::offset_of!(MoeCombineArgs, rows) - 40usize];
    ["Offset of field: MoeCombineArgs::top_k"][::core::mem::offset_of!(MoeCombineArgs, top_k) - 44usize];
    ["Offset of field: MoeCombineArgs::width"][::core::mem::offset_of!(MoeCombineArgs, width) - 48usize];
    ["Offset of field: MoeCombineArgs::scale_stride"][::core::mem::offset_of!(MoeCombineArgs, scale_stride) - 52usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable)]
pub struct HiddenArgs {
    pub wide: u64_,
    pub rings: u64_,
    pub segments: u64_,
    pub sequence: u64_,
    pub positions: u64_,
    pub width: u32_,
    pub slots: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of HiddenArgs"][::core::mem::size_of::<HiddenArgs>() - 48usize];
    ["Alignment of HiddenArgs"][::core::mem::align_of::<HiddenArgs>() - 8usize];
    ["Offset of field: HiddenArgs::wide"][::core::mem::offset_of!(HiddenArgs, wide) - 0usize];
    ["Offset of field: HiddenArgs::rings"][::core::mem::offset_of!(HiddenArgs, rings) - 8usize];
    ["Offset of field: HiddenArgs::segments"][::core::mem::offset_of!(HiddenArgs, segments) - 16usize];
    ["Offset of field: HiddenArgs::sequence"][::core::mem::offset_of!(HiddenArgs, sequence) - 24usize];
    ["Offset of field: HiddenArgs::positions"][::core::mem::offset_of!(HiddenArgs, positions) - 32usize];
    ["Offset of field: HiddenArgs::width"][::core::mem::offset_of!(HiddenArgs, width) - 40usize];
    ["Offset of field: HiddenArgs::slots"][::core::mem::offset_of!(HiddenArgs, slots) - 44usize];
};
