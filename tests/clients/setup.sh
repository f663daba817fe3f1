#!/usr/bin/env bash
# Installs the clients that tests/serve_clients.rs talks through, as their makers publish them.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=target/clients/venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --requirement tests/clients/requirements.txt
cargo build --quiet --locked --manifest-path tests/clients/async_openai/Cargo.toml --target-dir target/clients/cargo
# The page's test drives a real browser where the system has one (Debian: chromium chromium-driver).
if [ "${1:-}" = page ]; then
    packages="chromium chromium-driver"
    if ! dpkg -s $packages >/dev/null 2>&1; then
        as_root=$([ "$(id -u)" = 0 ] || echo sudo)
        $as_root apt-get update
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y --no-install-recommends $packages
    fi
    "$venv/bin/pip" install --quiet selenium
fi
