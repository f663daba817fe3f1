#!/usr/bin/env bash
# Makes target/peer/venv with the peers that tests/gguf_peer.rs compares with. Building llama.cpp takes half an hour on
# two cores; a wheel in pip's cache makes it seconds.
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 -m venv target/peer/venv
target/peer/venv/bin/pip install --quiet numpy gguf==0.19.0 llama-cpp-python==0.3.36
