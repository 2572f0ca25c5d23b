#!/usr/bin/env bash
# Installs torch for the processor and Triton from PyPI into target/torch, 2 GB, where they are not there yet.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=target/torch
. tests/support/venv.sh
if [ ! -d "$place" ]; then
    free=$(df --output=avail -B1 . | tail -n 1)
    if [ "$free" -lt 8000000000 ]; then
        echo "tests/torch: $PWD has $free bytes free, and torch needs 8 GB while it is unpacked" >&2
        exit 1
    fi
fi
venv "$place" tests/torch/requirements.txt
if ! cmp -s tests/torch/stubs.py "$place/stubs"; then
    # Beside it, so that torch does not find it: on the processor it has no use for Triton.
    python3 -m pip --disable-pip-version-check --python "$place/bin/python" install --quiet --no-cache-dir --no-deps \
        --target "$place/triton" triton==3.7.1
    for torch in "$place"/lib/python3.*/site-packages/torch; do
        python3 -B tests/torch/stubs.py "$torch"
    done
    cp tests/torch/stubs.py "$place/stubs"
fi
