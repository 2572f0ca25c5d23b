#!/usr/bin/env bash
# commits [SECONDS] commits a second of 1 and of 8 processes on one store, on this disk and 30 ms away
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-10}
cargo build --release --quiet -p cli
cargo build --release --quiet -p tests --example many_versions
bin=$PWD/target/release
work=$(mktemp -d "${TMPDIR:-/var/tmp}/store-commits.XXXXXX")
trap 'rm -rf "$work"' EXIT
export HOME=$work XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config

mkdir "$work/tree"
printf 'one\n' >"$work/tree/a"
"$bin/store" --quiet --store "$work/made" init >/dev/null
"$bin/store" --quiet --store "$work/made" put "$work/tree" project/first/tree >/dev/null
"$bin/examples/many_versions" make "$work/made" 9 9

# rate PROCESSES MILLIS: commits a second of so many processes, each request so many milliseconds away.
rate() {
    cp -r "$work/made" "$work/store"
    for number in $(seq "$1"); do
        "$bin/examples/many_versions" commit "$work/store" "$number" "$seconds" "$2" >"$work/count-$number" &
    done
    wait
    awk -v seconds="$seconds" '{sum += $1} END {printf "%.1f", sum / seconds}' "$work"/count-*
    rm -r "$work/store" "$work"/count-*
}

echo "| commits a second | 1 process | 8 processes |"
echo '|---|---|---|'
echo "| on this disk | $(rate 1 0) | $(rate 8 0) |"
echo "| 30 ms away | $(rate 1 30) | $(rate 8 30) |"
