#!/usr/bin/env bash
# truss            the cache summary of truss, unmodified, from PyPI, beside `store summarize --truss`
# A server of the suite on loopback answers for the platform, a dummy key. What is missing fails the suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. tests/support/venv.sh
suite_in_venv truss
