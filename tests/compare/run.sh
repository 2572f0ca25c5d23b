#!/usr/bin/env bash
# compare [--scale S] [--runs N] [--corpus NAME]... [--write]   store beside its peers on the same trees, in one run
#
# Installs restic, borg, ostree, casync, rsync and zstd by Debian's packages, DVC and hf_xet from PyPI, and builds rustic and
# bupstash with cargo (10 minutes, once). Makes corpora from a seed and from packages of PyPI, and runs every row in turn on
# fresh ext4 file systems with a warm page cache. Prints Markdown; --write draws cli/guides/numbers.svg, too. Needs root for
# the mounts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

missing=()
for pair in restic:restic borgbackup:borg ostree:ostree casync:casync rsync:rsync zstd:zstd time:/usr/bin/time e2fsprogs:mkfs.ext4 pkg-config:pkg-config; do
    command -v "${pair#*:}" >/dev/null || missing+=("${pair%%:*}")
done
[ -e /usr/include/sodium.h ] || missing+=(libsodium-dev)
if [ "${#missing[@]}" -gt 0 ]; then
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" python3-venv >&2
fi
venv=target/compare/venv
[ -x "$venv/bin/dvc" ] || {
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet 'dvc==3.67.1' 'hf_xet==1.8.0' 'numpy>=1.26' 'pyarrow>=17'
}
cargo=target/compare/cargo
# crate CRATE COMMAND OPTION...: builds a command once.
crate() {
    [ -x "$cargo/bin/$2" ] || cargo install "$1" --locked --quiet --root "$cargo" --target-dir target/compare/build "${@:3}"
}
crate bupstash bupstash --version 0.12.0
crate rustic-rs rustic --version 0.11.4 --no-default-features
cargo build --release --quiet -p cli
PATH=$PWD/$cargo/bin:$PATH exec "$venv/bin/python" -B tests/compare/compare.py --store "${CARGO_TARGET_DIR:-target}/release/store" "$@"
