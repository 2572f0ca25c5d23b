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
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys

SHARE_MIN = 90
LIMIT_SECONDS = 1200

# The tests of `engine` that take their time: histories at random, every fault at every request.
LONG = "test(/^(between|collectors|crash|input|interleaved|long|materializers|replicators|schedules)::/)"
ENGINE = f"(binary(=engine) & not {LONG})"
LATER = f"binary(=engine) & {LONG}"

# Unit tests that take their time.
SLOW = "chunk::tests::cut_points_are|replicate::tests|log::schedules|host::stat_cache::tests::a_cache_is|remote::bucket"

# Files, the test binaries that are built for them, which of their tests run once the unit tests of the file's own room
# have passed, and which when those pass, too: filters of nextest. The first row that fits counts.
TABLE = [
    ("store/src/codec.rs", "engine formats", f"{ENGINE} or binary(=formats)", None),
    ("store/src/chunk.rs", "engine formats", f"{ENGINE} or binary(=formats)", None),
    ("store/src/format/*", "engine formats", f"{ENGINE} or binary(=formats)", LATER),
    ("store/src/host/stat_cache/*", "engine disk", f"{ENGINE} or (binary(=disk) & test(mapped))", None),
    ("store/src/host/pool/*", "pool", "binary(=pool)", None),
    ("store/src/materialize/*", "pool", "binary(=pool)", None),
    ("store/src/remote/directory.rs", "disk", "binary(=disk)", None),
    ("store/src/remote/bucket*", "buckets", "binary(=buckets)", None),
] + [
    (files, "engine", ENGINE, LATER)
    for files in (
        "store/src/log*",
        "store/src/session*",
        "store/src/put/*",
        "store/src/index*",
        "store/src/graph/*",
        "store/src/pack/*",
        "store/src/replicate/*",
        "store/src/sound/*",
        "store/src/merge*",
        "gc/src/*",
    )
]


def row_of(file):
    for pattern, binaries, first, later in TABLE:
        if fnmatch.fnmatch(file, pattern):
            return binaries.split(), first, later
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


def nextest(copy, binaries, selection):
    """What nextest ends with: 0 all passed, 100 some failed, 101 not built, None hung; and what it said."""
    targets = [word for binary in binaries for word in ("--test", binary)]
    packages = [word for name in ("store", "gc", "tests") for word in ("-p", name)]
    command = ["cargo", "nextest", "run", *packages, "--lib", *targets]
    # How long a build takes says nothing of the slip.
    code, said = ran(copy, [*command, "--no-run"], None)
    if code != 0:
        return code, said
    return ran(copy, [*command, "--fail-fast", "--no-tests", "pass", "-E", selection], LIMIT_SECONDS)


def ran(copy, command, limit):
    """How it ended, or None after so many seconds, and what it said. Nothing that it began goes on."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=copy, text=True, process_group=0, **pipes) as running:
        try:
            said, _ = running.communicate(timeout=limit)
        except BaseException as ended:
            os.killpg(running.pid, signal.SIGTERM)
            if isinstance(ended, subprocess.TimeoutExpired):
                return None, ""
            raise
    return running.returncode, said


def tried(copy, slip, stages):
    """caught, unviable or passed; and the test that failed. Each stage is test binaries and a filter."""
    path = copy / slip["file"]
    text = path.read_text()
    try:
        path.write_text(written(text, slip))
        for binaries, selection in stages:
            code, said = nextest(copy, binaries, selection)
            if code == 101 or "error: could not compile" in said:
                return "unviable", ""
            if code != 0:
                break
    finally:
        path.write_text(text)
    if code == 0:
        return "passed", ""
    if code not in (100, None):
        sys.exit(f"mutants: {slip['name']}: nextest ended with {code}\n{said}")
    failed = re.search(r"^ *(?:FAIL|TIMEOUT|SIG\w+|ABORT) \[.*?\] .*$", said, re.MULTILINE)
    return "caught", failed.group(0).split("] ")[-1].strip() if failed else "it hung"


def first_stages(slip):
    """The unit tests of its own room, then the tests that are named for its file."""
    package, room = slip["file"].split("/")[0], re.split(r"[/.]", slip["file"])[2]
    binaries, first, _ = row_of(slip["file"])
    return [
        ([], f"package({package}) & kind(lib) & test(/^{room}::/) & not test(/^({SLOW})/)"),
        (binaries, f"package(tests) & kind(test) & ({first})"),
    ]


def later_stages(slip):
    """All unit tests, then the tests of `engine` that take their time."""
    package = slip["file"].split("/")[0]
    binaries, _, later = row_of(slip["file"])
    stages = [([], f"package({package}) & kind(lib)")]
    return stages + ([(binaries, f"package(tests) & kind(test) & ({later})")] if later else [])


def table_of(done):
    rows = {}
    for found in done:
        row = rows.setdefault(found["file"], {"caught": 0, "missed": 0, "unviable": 0, "passed": 0})
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
    # Whoever ends this ends what it runs.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
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
    lines = log.read_text().splitlines() if log.exists() else []
    done = {found["name"]: found for found in map(json.loads, lines)}
    with log.open("a") as out:

        def note(slip, came, by):
            done[slip["name"]] = {"name": slip["name"], "file": slip["file"], "outcome": came, "by": by}
            print(json.dumps(done[slip["name"]]), file=out, flush=True)
            print(f"{came}: {slip['name']} {by}", file=sys.stderr, flush=True)

        for slip in slips:
            if slip["name"] not in done:
                note(slip, *tried(copy, slip, first_stages(slip)))
        # Few are left for the tests that take their time.
        for slip in slips:
            if done[slip["name"]]["outcome"] == "passed":
                came, by = tried(copy, slip, later_stages(slip))
                note(slip, "missed" if came == "passed" else came, by)
    sys.exit(not table_of([done[slip["name"]] for slip in slips]))


main()
