#!/usr/bin/env bash
# lookups [MILLIONS] opening 50 million chunks in 1 to 5,000 segments and in 1,000 million, and a lookup in them
#
# Writes 3 to 6 GB at a time below TMPDIR (or /var/tmp), and removes it. What is "hot" was asked for before: it is in the
# page cache, and most of it not in the processor's. The first lookups of a store make the table, if there is one.
# 1,000 million chunks are written in part, so that what is asked for fits into memory: one in 16 stretches of a MiB.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
millions=${1:-50}
cargo build --release --quiet -p tests --example lookups
bin=$PWD/target/release/examples/lookups
work=$(mktemp -d "${TMPDIR:-/var/tmp}/store-lookups.XXXXXX")
trap 'rm -rf "$work"' EXIT

# row MILLIONS SEGMENTS SHARE: two runs, the second of which finds what the first has left in the cache of the host.
row() {
    "$bin" make "$work/s" "$@"
    "$bin" ask "$work/s" "$@"
    "$bin" ask "$work/s" "$@"
    rm -rf "$work/s" "$work/s.cache"
}

echo "| chunks, segments | open | is it there: the first million | it is, hot | it is not, hot | where it is, hot | anonymous | maps |"
echo '|---|---|---|---|---|---|---|---|'
row "$millions" 1 1
row "$millions" 50 1
row "$millions" 500 1
row "$millions" 5000 1
row $((millions * 20)) 1 16
row $((millions * 20)) 7 16
