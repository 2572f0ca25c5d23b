"""Slips made by a machine, one after another: cargo-mutants says which there are, and this tries them.

Each slip is written into a copy of the tree, the tests that are named for its file run until one fails, and the
file is as it was again. cargo-mutants itself would try each twice (modules are declared for two sets of features)
and builds a copy of its own; here one copy is built and every slip costs what has changed.

What came of each is a line of JSON in RESULTS/outcomes.jsonl; slips that stand there are not tried again, so a run
that was stopped goes on.
"""

import argparse
import fnmatch
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys

SHARE_MIN = 90
LIMIT_SECONDS = 1200

BESIDE = "test(/^(between|collect|collected|collectors|kept|long|lost|orphaned|relied|repacked|replicate|replicators|schedules|underfoot|uses|wide)::/)"
ROUND = "test(/^(broken|collect|damage|golden|input|interleaved|kept|origins|relied|roundtrip|settled|stores|travel|uses|wide)::/)"
HEALED = "test(/^(broken|collectors|damage|golden|later|limits|lost|misplaced|replicators|restored|rolled_back|schedules)::/)"

# Files, the test binaries that are built for them, and which of their tests run: a filter of nextest. First match counts.
TABLE = [
    ("store/src/log*", "engine", HEALED),
    ("store/src/session*", "engine", BESIDE),
    ("store/src/put/*", "engine", ROUND),
    ("store/src/index*", "engine", BESIDE),
    ("store/src/graph/*", "engine", BESIDE),
    ("store/src/pack/*", "engine", ROUND),
    ("store/src/codec.rs", "engine formats", f"{ROUND} or binary(=formats)"),
    ("store/src/chunk.rs", "engine formats", f"{ROUND} or binary(=formats)"),
    ("store/src/format/state*", "engine formats", f"{BESIDE} or binary(=formats)"),
    ("store/src/format/*", "engine formats", f"{ROUND} or binary(=formats)"),
    ("store/src/host/stat_cache/*", "engine disk", f"{ROUND} or (binary(=disk) & test(mapped))"),
    ("store/src/host/pool/*", "pool", "binary(=pool)"),
    ("store/src/materialize/*", "pool", "binary(=pool)"),
    ("store/src/replicate/*", "engine", BESIDE),
    ("store/src/sound/*", "engine", HEALED),
    ("store/src/merge*", "engine", "binary(=engine) & test(/merge|save/)"),
    ("store/src/remote/directory.rs", "disk", "binary(=disk)"),
    ("store/src/remote/bucket*", "buckets", "binary(=buckets)"),
    ("gc/src/*", "engine", BESIDE),
]


def row_of(file):
    for pattern, binaries, selection in TABLE:
        if fnmatch.fnmatch(file, pattern):
            return binaries.split(), selection
    return None


def load_bearing():
    """Files that the table names, without their tests."""
    found = []
    for package in ("store/src", "gc/src"):
        for path in sorted(pathlib.Path(package).rglob("*.rs")):
            name = str(path)
            if row_of(name) and not re.search(r"tests?\.rs$|/testing/|schedules|conformance", name):
                found.append(name)
    return found


def slips_of(files):
    """Every slip once, in the order of files and lines."""
    wanted = [word for file in files for word in ("--file", file)]
    words = ["cargo", "mutants", "--workspace", "--list", "--json", *wanted]
    listed = json.loads(subprocess.run(words, check=True, capture_output=True).stdout or b"[]")
    slips = {}
    for slip in listed:
        slips.setdefault(slip["name"], slip)
    return list(slips.values())


def written(text, slip):
    """The text with the slip in it. Lines and columns count from 1, columns in characters."""
    lines = text.split("\n")
    start, end = slip["span"]["start"], slip["span"]["end"]
    offset = lambda at: sum(len(line) + 1 for line in lines[: at["line"] - 1]) + at["column"] - 1
    return text[: offset(start)] + slip["replacement"] + text[offset(end) :]


def nextest(copy, slip, words):
    """What nextest ends with: 0 all passed, 100 some failed, None hung; and what it said."""
    binaries, selection = row_of(slip["file"])
    package = slip["file"].split("/")[0]
    selection = f"(package({package}) & kind(lib)) | (package(tests) & kind(test) & ({selection}))"
    targets = [word for binary in binaries for word in ("--test", binary)]
    command = ["cargo", "nextest", "run", "--workspace", "--lib", *targets, *words]
    command += [] if "--no-run" in words else ["--fail-fast", "-E", selection]
    try:
        ran = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None, ""
    return ran.returncode, ran.stdout + ran.stderr


def outcome(copy, slip):
    path = copy / slip["file"]
    text = path.read_text()
    try:
        path.write_text(written(text, slip))
        code, said = nextest(copy, slip, ["--no-run"])
        if code != 0:
            return "unviable", ""
        code, said = nextest(copy, slip, [])
    finally:
        path.write_text(text)
    if code == 0:
        return "missed", ""
    if code not in (100, None):
        sys.exit(f"mutants: {slip['name']}: nextest ended with {code}\n{said}")
    failed = re.search(r"^ *(?:FAIL|TIMEOUT|SIG\w+|ABORT) \[.*?\] .*$", said, re.MULTILINE)
    return "caught", failed.group(0).split("] ")[-1].strip() if failed else "it hung"


def table_of(done):
    rows = {}
    for found in done:
        row = rows.setdefault(found["file"], {"caught": 0, "missed": 0, "unviable": 0})
        row[found["outcome"]] += 1
    total = {kind: sum(row[kind] for row in rows.values()) for kind in ("caught", "missed", "unviable")}
    print("| file | caught | missed | share |\n|---|---|---|---|")
    for name, row in [*sorted(rows.items()), ("all", total)]:
        share = 100 * row["caught"] / max(row["caught"] + row["missed"], 1)
        print(f"| {name} | {row['caught']} | {row['missed']} | {share:.0f} % |")
    for found in done:
        if found["outcome"] == "missed":
            print(f"missed: {found['name']}")
    if total["caught"] + total["missed"] == 0:
        sys.exit("mutants: none was tried: is the file in the table?")
    return 100 * total["caught"] >= SHARE_MIN * (total["caught"] + total["missed"])


def main():
    parser = argparse.ArgumentParser(prog="tests/run mutants")
    parser.add_argument("files", nargs="*", help="without one, every load-bearing file")
    parser.add_argument("--sample", type=int, help="so many slips, drawn by lot")
    parser.add_argument("--seed", type=int, default=1, help="of the lot")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    asked = parser.parse_args()
    for file in asked.files:
        if not pathlib.Path(file).is_file() or not row_of(file):
            parser.error(f"{file}: there is no such file, or the table does not name it")
    slips = slips_of(asked.files or load_bearing())
    print(f"{len(slips)} slips", file=sys.stderr)
    if asked.sample is not None:
        slips = random.Random(asked.seed).sample(slips, min(asked.sample, len(slips)))

    asked.results.mkdir(parents=True, exist_ok=True)
    copy, log = asked.results / "tree", asked.results / "outcomes.jsonl"
    if not (copy / "Cargo.toml").exists():
        files = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True).stdout
        for name in files.decode().split("\0"):
            if name and pathlib.Path(name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(name, copy / name)
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    known = {found["name"] for found in done}
    with log.open("a") as out:
        for slip in slips:
            if slip["name"] in known:
                continue
            came, by = outcome(copy, slip)
            done.append({"name": slip["name"], "file": slip["file"], "outcome": came, "by": by})
            print(json.dumps(done[-1]), file=out, flush=True)
            print(f"{came}: {slip['name']}", file=sys.stderr)
    wanted = {slip["name"] for slip in slips}
    sys.exit(not table_of([found for found in done if found["name"] in wanted]))


main()
