#!/usr/bin/env bash
# page             the pages of `store serve` in a headless Chromium: phones, screens, paper, without scripts
# Installs Debian's chromium, and playwright from PyPI into target/page. Pictures are left in target/page/shots.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=$PWD/target/page
if ! command -v chromium >/dev/null; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    "${root[@]}" apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends chromium fonts-noto-core >&2
fi
if [ ! -x "$place/venv/bin/python" ]; then
    python3 -m venv "$place/venv"
    "$place/venv/bin/pip" install --quiet --requirement tests/page/requirements.txt
fi
cargo build --quiet -p cli
exec "$place/venv/bin/python" -B tests/page/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" "$place/shots"
