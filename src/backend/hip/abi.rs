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
    pub rows: u32_,
    pub streams: u32_,
    pub hidden: u32_,
    pub rank: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of HyperGateArgs"][::core::mem::size_of::<HyperGateArgs>() - 64usize];
    ["Alignment of HyperGateArgs"][::core::mem::align_of::<HyperGateArgs>() - 8usize];
    ["Offset of field: HyperGateArgs::x"][::core::mem::offset_of!(HyperGateArgs, x) - 0usize];
    ["Offset of field: HyperGateArgs::inject"][::core::mem::offset_of!(HyperGateArgs, inject) - 8usize];
    ["Offset of field: HyperGateArgs::normed"][::core::mem::offset_of!(HyperGateArgs, normed) - 16usize];
    ["Offset of field: HyperGateArgs::low"][::core::mem::offset_of!(HyperGateArgs, low) - 24usize];
    ["Offset of field: HyperGateArgs::raw"][::core::mem::offset_of!(HyperGateArgs, raw) - 32usize];
    ["Offset of field: HyperGateArgs::up"][::core::mem::offset_of!(HyperGateArgs, up) - 40usize];
    ["Offset of field: HyperGateArgs::rows"][::core::mem::offset_of!(HyperGateArgs, rows) - 48usize];
    ["Offset of field: HyperGateArgs::streams"][::core::mem::offset_of!(HyperGateArgs, streams) - 52usize];
    ["Offset of field: HyperGateArgs::hidden"][::core::mem::offset_of!(HyperGateArgs, hidden) - 56usize];
    ["Offset of field: HyperGateArgs::rank"][::core::mem::offset_of!(HyperGateArgs, rank) - 60usize];
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
pub struct GemvArgs {
    pub y: u64_,
    pub x: u64_,
    pub w: u64_,
    pub scales: u64_,
    pub rows: u32_,
    pub outputs: u32_,
    pub inputs: u32_,
    pub y_stride: u32_,
    pub row_offset: u32_,
    pub split: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of GemvArgs"][::core::mem::size_of::<GemvArgs>() - 56usize];
    ["Alignment of GemvArgs"][::core::mem::align_of::<GemvArgs>() - 8usize];
    ["Offset of field: GemvArgs::y"][::core::mem::offset_of!(GemvArgs, y) - 0usize];
    ["Offset of field: GemvArgs::x"][::core::mem::offset_of!(GemvArgs, x) - 8usize];
    ["Offset of field: GemvArgs::w"][::core::mem::offset_of!(GemvArgs, w) - 16usize];
    ["Offset of field: GemvArgs::scales"][::core::mem::offset_of!(GemvArgs, scales) - 24usize];
    ["Offset of field: GemvArgs::rows"][::core::mem::offset_of!(GemvArgs, rows) - 32usize];
    ["Offset of field: GemvArgs::outputs"][::core::mem::offset_of!(GemvArgs, outputs) - 36usize];
    ["Offset of field: GemvArgs::inputs"][::core::mem::offset_of!(GemvArgs, inputs) - 40usize];
    ["Offset of field: GemvArgs::y_stride"][::core::mem::offset_of!(GemvArgs, y_stride) - 44usize];
    ["Offset of field: GemvArgs::row_offset"][::core::mem::offset_of!(GemvArgs, row_offset) - 48usize];
    ["Offset of field: GemvArgs::split"][::core::mem::offset_of!(GemvArgs, split) - 52usize];
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
    pub scores: u64_,
    pub positions: u64_,
    pub first: u32_,
    pub count: u32_,
    pub max_blocks: u32_,
    pub budget: u32_,
    pub ratio: u32_,
    pub unused: u32_,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of QsaSelectArgs"][::core::mem::size_of::<QsaSelectArgs>() - 56usize];
    ["Alignment of QsaSelectArgs"][::core::mem::align_of::<QsaSelectArgs>() - 8usize];
    ["Offset of field: QsaSelectArgs::blocks"][::core::mem::offset_of!(QsaSelectArgs, blocks) - 0usize];
    ["Offset of field: QsaSelectArgs::counts"][::core::mem::offset_of!(QsaSelectArgs, counts) - 8usize];
    ["Offset of field: QsaSelectArgs::scores"][::core::mem::offset_of!(QsaSelectArgs, scores) - 16usize];
    ["Offset of field: QsaSelectArgs::positions"][::core::mem::offset_of!(QsaSelectArgs, positions) - 24usize];
    ["Offset of field: QsaSelectArgs::first"][::core::mem::offset_of!(QsaSelectArgs, first) - 32usize];
    ["Offset of field: QsaSelectArgs::count"][::core::mem::offset_of!(QsaSelectArgs, count) - 36usize];
    ["Offset of field: QsaSelectArgs::max_blocks"][::core::mem::offset_of!(QsaSelectArgs, max_blocks) - 40usize];
    ["Offset of field: QsaSelectArgs::budget"][::core::mem::offset_of!(QsaSelectArgs, budget) - 44usize];
    ["Offset of field: QsaSelectArgs::ratio"][::core::mem::offset_of!(QsaSelectArgs, ratio) - 48usize];
    ["Offset of field: QsaSelectArgs::unused"][::core::mem::offset_of!(QsaSelectArgs, unused) - 52usize];
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
