#!/usr/bin/env bash
# truss            the cache summary of truss, unmodified, from PyPI, beside `store summarize --truss`
# A server of the suite on loopback answers for the platform, a dummy key. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

place=target/truss
. tests/support/venv.sh
venv "$place" tests/truss/requirements.txt
cargo build --quiet -p cli
exec python3 -B tests/truss/suite.py "${CARGO_TARGET_DIR:-target}/debug/store" "$place/bin/python"
