#!/usr/bin/env bash
# serve-bench      what `store serve` sends and how quickly, beside nginx, Olah and Python's server: a table of ratios
#
# A file of SERVE_BENCH_MB (1000) megabytes and 10,000 small ones, all on loopback and warm; the runs take turns.
# Installs Debian's nginx-light where it is missing, and Olah from PyPI. STORE_BIN names a command that is there already.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if ! command -v nginx >/dev/null && [ ! -x /usr/sbin/nginx ]; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    "${root[@]}" apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends nginx-light >&2
fi
. tests/support/venv.sh
venv target/olah tests/serve-bench/olah.txt
. tests/support/measured.sh
measured
PATH=$PATH:/usr/sbin exec python3 -B tests/serve-bench/bench.py "$store" "${SERVE_BENCH_MB:-1000}" target/olah/bin/olah-cli
