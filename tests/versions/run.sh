#!/usr/bin/env bash
# versions [V R]   commands on V versions of R refs: seconds, memory, and requests where it is a bucket
#
# Without arguments 1,000,000 versions of 100,000 refs. In STORE_VERSIONS_DIR, if set, the store is kept and used again.
# Memory is the peak of all resident pages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
versions=${1:-1000000} refs=${2:-100000}
cargo build --release --quiet -p cli
cargo build --release --quiet -p tests --example many_versions
bin=$PWD/target/release
work=$(mktemp -d "${TMPDIR:-/var/tmp}/store-versions.XXXXXX")
trap 'rm -rf "$work"' EXIT
made=${STORE_VERSIONS_DIR:-$work/made}
export HOME=$work XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config
store=("$bin/store" --quiet --store "$made/s")

mkdir -p "$made" "$work/tree" "$work/other"
printf 'one\n' >"$work/tree/a"
printf 'two\n' >"$work/other/b"
if [ ! -d "$made/s" ]; then
    "${store[@]}" init >/dev/null
    "${store[@]}" put "$work/tree" project/first/tree >/dev/null
    "$bin/examples/many_versions" make "$made/s" "$refs" "$versions"
fi
echo "entries $(find "$made/s/log" -type f | wc -l), checkpoints $(find "$made/s/checkpoints" -type f | wc -l)," \
    "the newest $(find "$made/s/checkpoints" -type f -printf '%f %s\n' | sort -n | tail -1) bytes," \
    "all of them $(du -sb "$made/s/checkpoints" | cut -f1) bytes"

# timed NAME COMMAND...: a line of the table, the best of three.
timed() {
    python3 - "$@" <<'PYTHON'
import os, subprocess, sys, time
name, command = sys.argv[1], sys.argv[2:]
best, peak = None, 0
for _ in range(3):
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - begin
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{name}: failed")
    best, peak = min(took, best or took), max(peak, usage.ru_maxrss)
print(f"| {name} | {best * 1000:.0f} ms | {peak / 1000:.0f} MB |", flush=True)
PYTHON
}

echo "| $versions versions of $refs refs | time | peak resident |"
echo '|---|---|---|'
timed 'info' "${store[@]}" info
timed 'ls' "${store[@]}" ls
timed 'ls NAMESPACE' "${store[@]}" ls project/p42
timed 'history REF' "${store[@]}" history project/p42/data/set-000042
timed 'ls REF:' "${store[@]}" ls project/p42/data/set-000042:
timed 'put of a tiny tree' "${store[@]}" put --always "$work/other" project/p42/data/set-000042
timed 'gc --dry-run' "${store[@]}" gc --dry-run
echo
"$bin/examples/many_versions" far "$made/s"
echo
for number in 1 2 3 4 5 6 7 8; do
    "$bin/examples/many_versions" commit "$made/s" "$number" 10 0 >"$work/commits-$number" &
done
wait
echo "commits of 8 processes in 10 s: $(cat "$work"/commits-* | awk "{sum += \$1} END {print sum}")"
