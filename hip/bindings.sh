#!/usr/bin/env bash
# Generates src/backend/hip/abi.rs from abi.h. Needs bindgen (cargo install bindgen-cli) and libclang.
set -euo pipefail
cd "$(dirname "$0")/.."
bindgen hip/abi.h --allowlist-type '.*Args|KvPlanes|Ple.*|Sample.*|Gdn.*|Moe.*|GemvPart' --blocklist-type 'u8|u16|u32|u64|i8|i16|i32|i64' --no-doc-comments \
    --with-derive-custom-struct '.*=bytemuck::Pod,bytemuck::Zeroable' --with-derive-default --use-core \
    --rust-target 1.85 --rust-edition 2024 --disable-header-comment --raw-line '//! Argument structs of the kernels. Generated from hip/abi.h by hip/bindings.sh; do not edit.' \
    --raw-line '#![allow(missing_docs, non_camel_case_types, clippy::unreadable_literal)]' \
    -o src/backend/hip/abi.rs -- -x c++ -std=c++20 -DHIPFIRE_BINDINGS -Ihip
rustfmt --edition 2024 --config max_width=120 src/backend/hip/abi.rs
