#!/usr/bin/env bash
# Installs torch for the processor and Triton from PyPI into target/torch, 2 GB, where they are not there yet.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=target/torch
if ! cat tests/torch/requirements.txt tests/torch/stubs.py | cmp -s - "$place/installed"; then
    rm -rf "$place"
    free=$(df --output=avail -B1 . | tail -n 1)
    if [ "$free" -lt 8000000000 ]; then
        echo "tests/torch: $PWD has $free bytes free, and torch needs 8 GB while it is unpacked" >&2
        exit 1
    fi
    /usr/bin/python3 -m venv --without-pip "$place"
    pip=(python3 -m pip --disable-pip-version-check --python "$place/bin/python" install --quiet --no-cache-dir --no-deps)
    "${pip[@]}" --requirement tests/torch/requirements.txt
    # Beside it, so that torch does not find it: on the processor it has no use for Triton.
    "${pip[@]}" --target "$place/triton" triton==3.7.1
    for torch in "$place"/lib/python3.*/site-packages/torch; do
        python3 -B tests/torch/stubs.py "$torch"
    done
    cat tests/torch/requirements.txt tests/torch/stubs.py >"$place/installed"
fi
