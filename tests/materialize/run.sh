#!/usr/bin/env bash
# materialize [FILES [RUNS]]   store materialize beside cp -a, cp -al and ostree checkout -H, in one run
#
# FILES small files (100,000), eight to a directory, and a five hundredth as many large ones, from a seed. Each tool works on
# a fresh ext4 in a loop file, since ext4 creates files ten times slower after a mass delete; the tools take turns, RUNS (3)
# times. Prints medians, peak memory and ratios. Needs root for the mounts, and a quiet machine for the figures to mean much.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

files=${1:-100000}
runs=${2:-3}
for tool in ostree mkfs.ext4 /usr/bin/time python3; do
    command -v "$tool" >/dev/null || apt-get install -y -qq --no-install-recommends ostree e2fsprogs time python3 >&2
done
cargo build --release --quiet -p cli
store=$PWD/target/release/store
work=$(mktemp -d "${TMPDIR:-/var/tmp}/store-materialize.XXXXXX")
mounted=
end() {
    [ -z "$mounted" ] || umount "$work/fs"
    rm -rf "$work"
}
trap end EXIT
export XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config HOME=$work STORE_URL=$work/store
# A shell in the background of another session gets little of a busy machine, whatever its nice value.
echo -15 2>/dev/null >/proc/self/autogroup || true

make_tree() {
    python3 - "$work/tree" "$files" <<'PYTHON'
import os, random, sys
place, files = sys.argv[1], int(sys.argv[2])
random.seed(20260103)
words = [random.randbytes(random.randint(2, 9)).hex() for _ in range(5000)]
for at in range(files):
    directory = f"{place}/small/{at // 800:03}/{at // 8 % 100:02}"
    if at % 8 == 0:
        os.makedirs(directory)
    with open(f"{directory}/{at % 8}.json", "w") as file:
        file.write(" ".join(random.choices(words, k=random.randint(10, 1200))))
os.makedirs(f"{place}/large")
for at in range(max(1, files // 500)):
    with open(f"{place}/large/{at:03}.bin", "wb") as file:
        file.write(random.randbytes(random.randint(2 << 20, 8 << 20)))
PYTHON
}

fresh() {
    [ -z "$mounted" ] || umount "$work/fs"
    mounted=
    rm -f "$work/image"
    truncate -s 12G "$work/image"
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$work/image"
    mkdir -p "$work/fs"
    mount -o loop "$work/image" "$work/fs"
    mounted=yes
    sync -f "$work/fs"
}

# timed NAME COMMAND...: appends "seconds kilobytes seconds-with-sync" to the times of NAME.
timed() {
    local name=$1 began
    shift
    began=$(date +%s.%N)
    /usr/bin/time -o "$work/one" -f '%e %M' "$@" >"$work/output" 2>&1 || {
        cat "$work/output" >&2
        return 1
    }
    sync -f "$work/fs"
    echo "$(cat "$work/one") $(date +%s.%N) $began" | awk '{ print $1, $2, $3 - $4 }' >>"$work/$name.times"
}

same() { diff -r --no-dereference "$work/tree" "$1"; }

one_run() {
    local fs=$work/fs mode
    fresh
    timed 'cp -a' cp -a "$work/tree" "$fs/tree"
    timed 'cp -al' cp -al "$fs/tree" "$fs/links"
    timed 'find -ls' find "$fs/links" -ls
    fresh
    ostree --repo="$fs/repo" init --mode=bare
    ostree --repo="$fs/repo" commit --branch=tree --tree="dir=$work/tree" >/dev/null
    sync -f "$fs"
    timed 'ostree checkout -H' ostree --repo="$fs/repo" checkout -H tree "$fs/out"
    timed 'ostree checkout -H, again' ostree --repo="$fs/repo" checkout -H --union-identical tree "$fs/out"
    for mode in 16KiB 0; do
        fresh
        local make=("$store" materialize --quiet --pool "$fs/pool" --copy-below "$mode" project/bench/tree)
        timed "cold, copy-below $mode" "${make[@]}" "$fs/one"
        timed "warm, copy-below $mode" "${make[@]}" "$fs/two"
        timed "again, copy-below $mode" "${make[@]}" "$fs/two"
        same "$fs/one" && same "$fs/two"
    done
}

median() { sort -n -k "$2,$2" "$work/$1.times" | awk -v k="$2" '{ t[NR] = $k } END { print t[int((NR + 1) / 2)] }'; }

# line NAME THAN: a line of the table, with the ratio to THAN.
line() {
    local secs than
    secs=$(median "$1" 1) than=$(median "$2" 1)
    printf '| %s | %s s | %.2f s | %.0f MB | %s of `%s` |\n' "$1" "$secs" "$(median "$1" 3)" \
        "$(awk '$2 > m { m = $2 } END { print m / 1000 }' "$work/$1.times")" \
        "$(awk -v a="$secs" -v b="$than" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "?" }')" "$2"
}

make_tree
"$store" init >/dev/null
"$store" put --quiet "$work/tree" project/bench/tree
find "$work/tree" -type f -exec cat {} + >/dev/null
for run in $(seq "$runs"); do
    echo "run $run of $runs" >&2
    one_run
done

printf '%s files, %s directories, %s MB; medians of %s runs in turn\n\n' "$(find "$work/tree" -type f | wc -l)" \
    "$(find "$work/tree" -type d | wc -l)" "$(du -sb "$work/tree" | awk '{ printf "%.0f", $1 / 1e6 }')" "$runs"
echo '| | time | until on disk | peak memory | ratio |'
echo '|---|---|---|---|---|'
line 'cp -a' 'cp -a'
for mode in 16KiB 0; do line "cold, copy-below $mode" 'cp -a'; done
line 'cp -al' 'cp -al'
line 'ostree checkout -H' 'cp -al'
for mode in 0 16KiB; do line "warm, copy-below $mode" 'cp -al'; done
line 'find -ls' 'find -ls'
line 'ostree checkout -H, again' 'find -ls'
for mode in 0 16KiB; do line "again, copy-below $mode" 'find -ls'; done
