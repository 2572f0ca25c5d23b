#!/usr/bin/env bash
# reader [IMAGE]   a reader and a writer in Python, written from FORMATS.md alone, agree with the command
#
# IMAGE is SekienAkashita.jpg, which the published chunks of FAST_CDC_2020 are of; no package ships it.
set -euo pipefail
image=${1:+$(realpath "$1")}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo build -p cli
store=$PWD/target/debug/store
python=target/reader/bin/python
if ! "$python" -c 'import blake3, zstandard' 2>/dev/null; then
    python3 -m venv target/reader
    "$python" -m pip install --quiet blake3 zstandard
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache XDG_DATA_HOME=$work/data
tree=$work/tree
mkdir -p "$tree/empty" "$tree/"$'odd\n\xff'"/deep"
cp -a store tests fixtures "$tree/"
rm -rf "$tree/tests/fuzz/target"
head -c 50000000 /dev/urandom >"$tree/random"
seq 3000000 >"$tree/numbers"
truncate -s 20000000 "$tree/sparse"
printf '#!/bin/sh\n' >"$tree/run" && chmod 0755 "$tree/run"
: >"$tree/zero"
ln -s ../nowhere "$tree/link"
touch -d '1969-12-31 23:59:58.5 UTC' "$tree/zero"
find "$tree" -type f ! -name run -exec chmod 0644 {} +

"$python" tests/reader/samples.py "$tree/models"

"$python" tests/reader/fastcdc.py
if [ -n "$image" ]; then
    "$python" tests/reader/fastcdc.py "$image"
else
    echo "reader: without an image, the published chunks are not compared" >&2
fi

export STORE_URL=$work/store
"$store" init "$STORE_URL"
"$store" put --allow-secrets "$tree" team/reader/tree
"$python" -c 'import os, sys; os.setxattr(sys.argv[1], "user.note", b"of\0anything")' "$tree/run"
cp "$tree/random" "$tree/again"
printf changed | dd of="$tree/again" bs=1 seek=25000000 conv=notrunc status=none
"$store" put --allow-secrets --keep xattrs "$tree" team/reader/tree
# Versions that make the checkpoint of the last of them so large that the next one is written on it.
for _ in 1 2 3 4 5; do
    "$store" put --always --message "$(head -c 60000 /dev/urandom | base64 --wrap 0)" "$tree/run" team/reader/said
done >/dev/null
# Entries enough for another one.
for _ in $(seq 35); do
    "$store" pin team/reader/tree@1
    "$store" unpin team/reader/tree@1
done >/dev/null
[ -n "$(ls "$STORE_URL/checkpoints")" ]

list() {
    (cd "$1" && find . -printf '%P %y %m %T@ %l\0' | sort -z)
}
for how in "" --log; do
    "$python" tests/reader/reader.py $how "$STORE_URL" team/reader/tree "$work/out" | tee "$work/told"
    # Its rows come from layers, too.
    [ -n "$how" ] || grep -q ' [1-9][0-9]* layers, ' "$work/told"
    diff -r --no-dereference "$tree" "$work/out"
    cmp <(list "$tree") <(list "$work/out")
    rm -rf "$work/out"
done
echo "reader: every byte, name, mode and time is the same"

# Weights, and the same after a little training: stored as the difference.
for steps in 0 1; do
    "$python" tests/reader/samples.py --trained "$steps" "$work/trained"
    "$store" put --allow-secrets "$work/trained" team/reader/trained
done
for how in "" --log; do
    "$python" tests/reader/reader.py $how "$STORE_URL" team/reader/trained "$work/out" | tee "$work/told"
    grep -q ' [1-9][0-9]* deltas$' "$work/told"
    diff -r "$work/trained" "$work/out"
    rm -rf "$work/out"
done

# What the command has put costs the stranger nothing, and the other way round.
new_bytes() {
    "$python" -c 'import json, sys; print(json.load(sys.stdin)["new_bytes"])'
}
rm "$tree/random" "$tree/again" "$tree/numbers"
head -c 3000000 /dev/urandom >"$tree/random"
chmod 0640 "$tree/random"
chmod 2750 "$tree/empty"
"$store" put --allow-secrets "$tree" team/reader/small
[ "$("$python" tests/reader/writer.py "$STORE_URL" "$tree" team/writer/same | tee >(cat >&2) | new_bytes)" = 0 ]
printf changed | dd of="$tree/random" bs=1 seek=1500000 conv=notrunc status=none
new=$("$python" tests/reader/writer.py "$STORE_URL" "$tree" team/writer/changed | tee >(cat >&2) | new_bytes)
[ "$new" -gt 0 ] && [ "$new" -lt 600000 ]
for name in same changed; do
    "$store" verify --read-data "team/writer/$name"
done
# The same tree, times, modes and owners: nothing that the command would write in another way.
"$store" put --json --allow-secrets --keep modes,owners "$tree" team/writer/changed | grep -q '"unchanged":true'
"$store" gc --grace 0s --min-age 0s
"$store" verify --read-data
"$store" get --keep modes,owners team/writer/changed "$work/out"
diff -r --no-dereference "$tree" "$work/out"
cmp <(list "$tree") <(list "$work/out")
rm -rf "$work/out"
echo more >>"$tree/run"
"$store" put --allow-secrets --keep modes,owners "$tree" team/writer/changed
"$python" tests/reader/reader.py "$STORE_URL" team/writer/changed "$work/out"
diff -r --no-dereference "$tree" "$work/out"
echo "writer: the command verifies, gets, collects and continues what a stranger wrote"
