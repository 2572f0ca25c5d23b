#!/usr/bin/env bash
# collect [V F M]  gc of V versions of F files and of M million chunks, beside restic and borg: seconds, memory
#
# Without arguments 1000 versions of 100,000 files, and 50 million chunks; takes hours, most of them for putting
# the versions with all three tools. The word `alone` after the numbers leaves the others out, `make` stops after
# putting. In STORE_COLLECT_DIR, if set, the versions are kept: another run goes on with those that are missing, and
# collects copies. Memory is the peak of all resident pages, and of those that no file stands behind: 512 MB of these are the
# bound of `store gc`, above which the suite fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
versions=${1:-1000} files=${2:-100000} millions=${3:-50}
case " ${*:4} " in *' alone '*) alone=yes ;; *) alone= ;; esac
case " ${*:4} " in *' make '*) make=yes ;; *) make= ;; esac

if [ -z "$alone" ]; then
    for tool in restic borg; do
        command -v "$tool" >/dev/null ||
            apt-get install -y -qq --no-install-recommends restic borgbackup >&2
    done
fi
cargo build --release --quiet -p cli
cargo build --release --quiet -p tests --example large_store
bin=$PWD/target/release
work=$(mktemp -d "${TMPDIR:-/var/tmp}/store-collect.XXXXXX")
made=${STORE_COLLECT_DIR:-$work/made}
trap 'rm -rf "$work"' EXIT
export HOME=$work XDG_CACHE_HOME=$made/cache XDG_CONFIG_HOME=$work/config
export RESTIC_PASSWORD=peers BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes

# timed NAME COMMAND...: a line of the table.
timed() {
    python3 - "$@" <<'PYTHON'
import subprocess, sys, time
name, command = sys.argv[1], sys.argv[2:]
begin = time.monotonic()
process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
rss = anon = 0
while process.poll() is None:
    try:
        status = dict(line.split(":", 1) for line in open(f"/proc/{process.pid}/status"))
        rss = max(rss, int(status["VmHWM"].split()[0]))
        anon = max(anon, int(status["RssAnon"].split()[0]))
    except (OSError, KeyError, ValueError):
        pass
    time.sleep(0.02)
bound = 512 if name.startswith("store gc") else None
beside = f" of {bound}" if bound else ""
print(f"| {name} | {time.monotonic() - begin:.2f} s | {rss / 1000:.0f} MB | {anon / 1000:.0f}{beside} MB |", flush=True)
if bound and anon > bound * 1000:
    sys.exit(f"{name}: expected at most {bound} MB that no file stands behind, found {anon / 1000:.0f}")
sys.exit(process.returncode)
PYTHON
}

# tree: F files in directories of 100; edit N: the N-th edit of ten of them.
tree() {
    python3 - "$made/tree" "$files" <<'PYTHON'
import os, random, sys
root, files = sys.argv[1], int(sys.argv[2])
random.seed(1)
for d in range((files + 99) // 100):
    place = f"{root}/{d // 100:03}/{d % 100:02}"
    os.makedirs(place)
    for f in range(min(100, files - d * 100)):
        with open(f"{place}/{f}", "wb") as file:
            file.write(random.randbytes(random.randint(100, 4000)))
PYTHON
}
edit() {
    python3 - "$made/tree" "$files" "$1" <<'PYTHON'
import random, sys
root, files, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(number)
for _ in range(10):
    n = random.randrange(files)
    d = n // 100
    with open(f"{root}/{d // 100:03}/{d % 100:02}/{n % 100}", "wb") as file:
        file.write(random.randbytes(random.randint(100, 4000)))
PYTHON
}

# put_versions: those of the V that are missing in the place of what is made, whose file `count` says how many there are.
put_versions() {
    if [ ! -f "$made/count" ]; then
        tree
        "$bin/store" --store "$made/s" init --quiet >/dev/null
        if [ -z "$alone" ]; then
            restic -q -r "$made/r" init >/dev/null
            borg init -e none "$made/b" 2>/dev/null
        fi
        echo 0 >"$made/count"
    fi
    for number in $(seq $(($(cat "$made/count") + 1)) "$versions"); do
        edit "$number"
        "$bin/store" --quiet --store "$made/s" put "$made/tree" project/many/tree >/dev/null
        if [ -z "$alone" ]; then
            restic -q -r "$made/r" backup "$made/tree" >/dev/null
            borg create "$made/b::{utcnow:%Y-%m-%dT%H:%M:%S.%f}" "$made/tree" 2>/dev/null
        fi
        echo "$number" >"$made/count"
    done
}

mkdir -p "$made"
put_versions
[ -z "$make" ] || exit 0
cp -a "$made/s" "$work/s"
if [ -z "$alone" ]; then
    cp -a "$made/r" "$work/r"
    cp -a "$made/b" "$work/b"
    export BORG_RELOCATED_REPO_ACCESS_IS_OK=yes
fi
keep=$((versions / 2))
echo "| $versions versions of $files files | time | peak resident | of which anonymous |"
echo '|---|---|---|---|'
gc=("$bin/store" --quiet --store "$work/s" gc --grace 0 --min-age 0)
timed 'store gc, nothing to do' "${gc[@]}"
timed "store gc --keep-last $keep" "${gc[@]}" --keep-last "$keep"
timed 'store gc --keep-last 1' "${gc[@]}" --keep-last 1
"$bin/store" --quiet --store "$work/s" verify >/dev/null
if [ -z "$alone" ]; then
    timed 'restic prune, nothing to do' restic -q -r "$work/r" prune
    timed "restic forget --prune --keep-last $keep" restic -q -r "$work/r" forget --prune --keep-last "$keep"
    timed 'restic forget --prune --keep-last 1' restic -q -r "$work/r" forget --prune --keep-last 1
    timed 'borg compact, nothing to do' borg compact "$work/b"
    timed "borg prune --keep-last $keep" borg prune --keep-last "$keep" "$work/b"
    timed 'borg compact' borg compact "$work/b"
    timed 'borg prune --keep-last 1' borg prune --keep-last 1 "$work/b"
    timed 'borg compact' borg compact "$work/b"
fi
rm -rf "$work/s" "$work/r" "$work/b"
[ "$millions" != 0 ] || exit 0

echo
echo "| $millions million chunks, half of them garbage | time | peak resident | of which anonymous |"
echo '|---|---|---|---|'
"$bin/examples/large_store" make "$work/s" "$millions"
"$bin/examples/large_store" open "$work/s" | sed 's/^/| /; s/: / | /; s/$/ | | |/'
timed 'store info' "$bin/store" --quiet --store "$work/s" info
timed 'store gc --dry-run' "${gc[@]}" --dry-run
timed 'store gc' "${gc[@]}"
timed 'store gc, nothing to do' "${gc[@]}"
