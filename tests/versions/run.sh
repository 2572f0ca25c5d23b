#!/usr/bin/env bash
# versions [V R]   commands on V versions of R refs: seconds, memory, and requests where it is a bucket
#
# Without arguments 1,000,000 versions of 100,000 refs; refs are 800 at least. In STORE_VERSIONS_DIR, if set, the store is
# kept and used again: a run drops versions and brings them back. Memory is the peak of all resident pages. Of commands that
# look up what they are asked about it is 64 MB at most, or the suite fails; those that read all by their nature stand apart.
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

# timed NAME COMMAND...: a line of the table, the best of three; `{}` is the number of the run.
timed() {
    python3 - "${most_mb:-64}" "$@" <<'PYTHON'
import os, subprocess, sys, time
most, name, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
best, peak = None, 0
for run in range(3):
    begin = time.monotonic()
    process = subprocess.Popen([word.replace("{}", str(run)) for word in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    took = time.monotonic() - begin
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{name}: failed")
    best, peak = min(took, best or took), max(peak, usage.ru_maxrss)
print(f"| {name} | {best * 1000:.0f} ms | {peak / 1000:.0f} MB |", flush=True)
if peak > most * 1000:
    sys.exit(f"{name}: expected at most {most} MB, found {peak / 1000:.0f}")
PYTHON
}
# What reads all there is.
whole() {
    most_mb=1000000 timed "$@"
}

echo "| $versions versions of $refs refs | time | peak resident |"
echo '|---|---|---|'
timed 'info' "${store[@]}" info
timed 'ls' "${store[@]}" ls
timed 'ls NAMESPACE' "${store[@]}" ls project/p42
timed 'history REF' "${store[@]}" history project/p42/data/set-000042
timed 'ls REF:' "${store[@]}" ls project/p42/data/set-000042:
timed 'put of a tiny tree' "${store[@]}" put --always "$work/other" project/p42/data/set-000042
timed 'ls NAMESPACE --sort size' "${store[@]}" ls --sort size project/p42
timed 'summarize REF' "${store[@]}" summarize project/p42/data/set-000042
timed 'verify REF@N' "${store[@]}" verify project/p42/data/set-000042@1
timed 'where REF' "${store[@]}" where project/p42/data/set-000042
for run in 0 1 2; do
    "$bin/store" --quiet init "$work/far-$run" >/dev/null
done
timed 'push REF' "${store[@]}" push project/p42/data/set-000{}42 "$work/far-{}"
drop=$(($(cat "$made/dropped" 2>/dev/null || echo 0) + 1))
echo "$drop" >"$made/dropped"
timed 'rm REF@N' "${store[@]}" rm "project/p42/data/set-000{}42@$drop"
timed 'undo REF' "${store[@]}" undo project/p42/data/set-000{}42
echo
echo '| what reads all of it | time | peak resident |'
echo '|---|---|---|'
whole 'du' "${store[@]}" du
whole 'summarize NAMESPACE' "${store[@]}" summarize project/p42
whole 'verify' "${store[@]}" verify
whole 'gc --dry-run' "${store[@]}" gc --dry-run
whole 'gc' "${store[@]}" gc
echo
"$bin/examples/many_versions" far "$made/s"
echo
for number in 1 2 3 4 5 6 7 8; do
    "$bin/examples/many_versions" commit "$made/s" "$number" 10 0 >"$work/commits-$number" &
done
wait
echo "commits of 8 processes in 10 s: $(cat "$work"/commits-* | awk "{sum += \$1} END {print sum}")"
