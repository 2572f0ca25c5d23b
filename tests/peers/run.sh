#!/usr/bin/env bash
# peers [DIR...]   store beside restic and cp on the same trees, in one run: seconds, bytes, memory
#
# Without DIR: /usr/lib, and two trees made from a seed: weights with a fine-tune of a tenth of their tensors,
# and 100,000 small files. Prints a Markdown table, each figure the median of three runs in turn.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

for tool in restic /usr/bin/time python3; do
    command -v "$tool" >/dev/null || apt-get install -y -qq --no-install-recommends restic time python3 >&2
done
cargo build --release --quiet -p cli
store=$PWD/target/release/store
work=$(mktemp -d "${TMPDIR:-/var/tmp}/store-peers.XXXXXX")
trap 'rm -rf "$work"' EXIT
export RESTIC_PASSWORD=peers XDG_CACHE_HOME=$work/cache XDG_CONFIG_HOME=$work/config HOME=$work

# timed FILE COMMAND...: appends "seconds kilobytes" of a command to FILE.
timed() {
    local file=$1
    shift
    /usr/bin/time -a -o "$file" -f '%e %M' "$@" >"$work/output" 2>&1 || {
        cat "$work/output" >&2
        return 1
    }
}

# The median of the first column of FILE, and the maximum of the second in MB.
median() { [ ! -e "$1" ] || sort -n "$1" | awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)] }'; }
peak() { awk '$2 > m { m = $2 } END { printf "%.0f", m / 1000 }' "$1"; }
megabytes() { du -sb "$1" | awk '{ printf "%.0f", $1 / 1e6 }'; }

weights() {
    python3 - "$1" "$2" <<'PYTHON'
import os, random, struct, sys
before, after = sys.argv[1:]
random.seed(20260101)
os.makedirs(before), os.makedirs(after)
def tensor(n):
    # bf16 of a normal distribution: the high halves of fp32.
    block = b"".join(struct.pack("<f", random.gauss(0, 0.02))[2:] for _ in range(1 << 16))
    noise = random.randbytes(2 * n)
    out = bytearray(noise)
    out[1::2] = (block[1::2] * (n // len(block) * 2 + 2))[:n]
    return bytes(out)
for shard in range(10):
    tensors = [tensor(5 << 20) for _ in range(10)]
    for place, changed in ((before, None), (after, shard)):
        with open(f"{place}/model-{shard:05}.safetensors", "wb") as file:
            for at, data in enumerate(tensors):
                file.write(tensor(5 << 20) if at == changed else data)
PYTHON
}

small() {
    python3 - "$1" <<'PYTHON'
import os, random, sys
random.seed(20260102)
words = [random.randbytes(random.randint(2, 9)).hex() for _ in range(5000)]
for d in range(10_000):
    place = f"{sys.argv[1]}/{d // 100:03}/{d % 100:02}"
    os.makedirs(place)
    for f in range(10):
        with open(f"{place}/{f}.json", "w") as file:
            file.write(" ".join(random.choices(words, k=random.randint(10, 700))))
PYTHON
}

# bench NAME TREE [NEXT]: one line of the table for each tool.
bench() {
    local name=$1 tree=$2 next=${3:-}
    local run tool
    cat "$tree"/* >/dev/null 2>&1 || true
    find "$tree" ${next:+"$next"} -type f -exec cat {} + >/dev/null
    rm -f "$work"/*.times
    for run in 1 2 3; do
        rm -rf "$work/s" "$work/r" "$work/out" "$work/cache"
        "$store" --store "$work/s" init >/dev/null
        restic -q -r "$work/r" init >/dev/null
        timed "$work/store.put.times" "$store" --store "$work/s" put "$tree" project/peers/tree
        timed "$work/restic.put.times" restic -q -r "$work/r" backup "$tree"
        timed "$work/cp.put.times" cp -a "$tree" "$work/out"
        timed "$work/store.again.times" "$store" --store "$work/s" put "$tree" project/peers/tree
        timed "$work/restic.again.times" restic -q -r "$work/r" backup "$tree"
        if [ -n "$next" ]; then
            timed "$work/store.next.times" "$store" --store "$work/s" put "$next" project/peers/tree
            timed "$work/restic.next.times" restic -q -r "$work/r" backup "$next"
        fi
        rm -rf "$work/out"
        timed "$work/store.get.times" "$store" --store "$work/s" get project/peers/tree@1 "$work/out"
        diff -r --no-dereference "$tree" "$work/out"
        rm -rf "$work/out"
        timed "$work/restic.get.times" restic -q -r "$work/r" restore "$(restic -r "$work/r" snapshots --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["id"])')" --target "$work/out"
    done
    for tool in store restic; do
        printf '| %s, %s MB | %s | %s s | %s s | %s s | %s s | %s MB | %s / %s MB |\n' "$name" "$(megabytes "$tree")" "$tool" \
            "$(median "$work/$tool.put.times")" "$(median "$work/$tool.again.times")" \
            "$(median "$work/$tool.next.times")" "$(median "$work/$tool.get.times")" \
            "$(megabytes "$work/${tool:0:1}")" "$(peak "$work/$tool.put.times")" "$(peak "$work/$tool.get.times")"
    done
    printf '| | cp -a | %s s | | | | %s MB | |\n' "$(median "$work/cp.put.times")" "$(megabytes "$tree")"
}

echo '| tree | tool | put | put again | next version | get | stored | peak memory put / get |'
echo '|---|---|---|---|---|---|---|---|'
if [ $# -gt 0 ]; then
    for tree in "$@"; do bench "$tree" "$tree"; done
else
    weights "$work/weights" "$work/tuned"
    small "$work/small"
    bench /usr/lib /usr/lib
    bench 'weights, bf16' "$work/weights" "$work/tuned"
    bench '100,000 small files' "$work/small"
fi
