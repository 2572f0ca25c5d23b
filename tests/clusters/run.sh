#!/usr/bin/env bash
# clusters [DIR]   push beside rclone copy, restic copy and rsync, with 0 and 30 ms of delay: seconds, bytes, requests
#
# Without DIR: 200 MB made from a seed. Each tool brings a first copy, a second version of which a twentieth is new, and
# nothing new. The bucket is Ceph's, then moto's; restic copies between two repositories, rsync goes to a daemon.
# Prints a table for each server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

missing=()
for tool in rclone restic rsync; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if [ "${#missing[@]}" -gt 0 ]; then
    root=()
    [ "$(id -u)" = 0 ] || root=(sudo)
    "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi
bash tests/servers/install.sh
cargo build --release --quiet -p cli
for server in ceph moto; do
    target/servers/moto/bin/python -B tests/servers/servers.py run "$server" -- \
        python3 -B tests/clusters/suite.py "${CARGO_TARGET_DIR:-target}/release/store" "$server" "$@"
done
