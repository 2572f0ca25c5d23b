"""Runs every row of the table for every tool in turn, several times, and prints medians and ratios.

A run of one corpus: a fresh ext4 file system of its own for each tool, so that no tool pays for what another deleted; the
trees in the page cache; all commands of a tool one after another. The next tool follows, then the next run.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import corpora
import plot
from tools import TOOLS

# What is timed, in the order of the columns.
# A command that takes longer is stopped, and its tool left out of the rest of the corpus: nobody waits for it.
LIMIT_SECONDS = 180


class TooSlow(Exception):
    """A command took longer than it may."""


VERBS = ["put", "again", "next", "get", "materialize", "anew", "gc"]
TITLES = {
    "put": "put", "again": "put, unchanged", "next": "put, next version", "get": "get", "materialize": "tree of links",
    "anew": "brought up to date, unchanged", "gc": "drop all and collect",
}


def timed(command, place):
    """Seconds, and the peak of resident memory in MB of it and of what it started."""
    environment = {**os.environ, "HOME": str(place), "XDG_CACHE_HOME": str(place / "cache"),
                   "XDG_CONFIG_HOME": str(place / "config"), "XDG_DATA_HOME": str(place / "data")}
    with open(place / "said", "w+") as said:
        begin = time.monotonic()
        # `time` is small: what a child of a large process takes begins with what its parent had.
        words = ["/usr/bin/time", "-q", "-f", "%M", "-o", place / "peak", *command]
        process = subprocess.Popen(words, cwd=place, stdout=said, stderr=said, env=environment)
        try:
            status = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            subprocess.run(["pkill", "-KILL", "-P", str(process.pid)], check=False)
            process.wait()
            raise TooSlow from None
        took = time.monotonic() - begin
        if status:
            said.seek(0)
            raise SystemExit(f"{' '.join(map(str, command))}: exit {status}\n{said.read()}")
    return took, int((place / "peak").read_text()) / 1024


def warm(tree):
    subprocess.run(["sh", "-ec", 'find "$1" -type f -exec cat {} + >/dev/null', "sh", tree], check=True)


class FileSystem:
    """An ext4 file system in a sparse file, mounted while it is needed."""

    def __init__(self, work, gigabytes=24):
        self.image, self.place = work / "image", work / "mounted"
        self.gigabytes = gigabytes

    def __enter__(self):
        self.place.mkdir(exist_ok=True)
        with open(self.image, "wb") as image:
            image.truncate(self.gigabytes << 30)
        options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-i", "8192"]
        subprocess.run(["mkfs.ext4", *options, self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.place], check=True)
        return self.place

    def __exit__(self, *_):
        subprocess.run(["umount", self.place], check=True)
        self.image.unlink()


def identical(before, after):
    """Whether two trees hold the same files."""
    subprocess.run(["diff", "-r", "-q", "--no-dereference", before, after], check=True, stdout=sys.stderr)


def one_run(tool, trees, figures, is_checked):
    """All verbs of a tool on one pair of trees. Adds to figures[verb]."""
    before, after = trees
    place = tool.place

    def add(verb, *commands):
        took = [timed(command, place) for command in commands]
        figures.setdefault(verb, []).append(sum(seconds for seconds, _ in took))
        figures.setdefault(f"{verb} MB", []).append(max(peak for _, peak in took))

    tool.init()
    os.sync()
    for verb, tree, label in (("put", before, 1), ("again", before, 1), ("next", after, 2)):
        tool.before_put(tree, label)
        warm(tree)
        add(verb, tool.put(tree, label))
        os.sync()
        if verb != "again":
            figures.setdefault(f"stored {label}", []).append(disk_bytes(tool.repository))
    out = place / "out"
    tool.before_get(1)
    if command := tool.get(1, out):
        add("get", command)
        if is_checked:
            inner = out / str(before).lstrip("/")
            identical(before, inner if inner.exists() else out)
        shutil.rmtree(out)
    if tool.materialize(out):
        timed(tool.materialize(out), place)
        shutil.rmtree(out)
        os.sync()
        add("materialize", tool.materialize(out))
        if tool.name == "store":
            add("anew", tool.materialize(out))
        shutil.rmtree(out)
    os.sync()
    if commands := tool.drop():
        add("gc", *commands)
        figures.setdefault("left", []).append(disk_bytes(tool.repository))


def disk_bytes(repository):
    return int(subprocess.run(["du", "-s", "-B1", repository], check=True, capture_output=True, text=True).stdout.split()[0])


def limits(trees, figures):
    """What the machine does without any tool."""
    before, _ = trees
    for verb, command in (("again", ["find", before, "-printf", ""]), ("anew", ["find", before, "-ls"])):
        figures.setdefault(verb, []).append(timed(command, pathlib.Path("/tmp"))[0])


def table(name, size, files, rows):
    """Markdown: a line for each tool, seconds and how many times store's they are."""
    ours = rows["store"]
    lines = [f"\n**{name}**: {size / 1e6:,.0f} MB in {files:,} files\n"]
    verbs = [verb for verb in VERBS if any(verb in figures for figures in rows.values())]
    heads = [TITLES[verb] for verb in verbs] + ["stored", "with the next", "peak put / get"]
    lines.append("| | " + " | ".join(heads) + " |")
    lines.append("|---" * (len(heads) + 1) + "|")

    def cell(figures, verb, unit, scale=1.0):
        if verb not in figures:
            return ""
        value = statistics.median(figures[verb])
        text = f"{value * scale:.2f} {unit}" if unit == "s" else f"{value * scale:,.0f} {unit}"
        if figures is not ours and verb in ours and statistics.median(ours[verb]) > 0:
            text += f" ({value / statistics.median(ours[verb]):.1f}x)"
        return text

    for tool, figures in rows.items():
        cells = [cell(figures, verb, "s") for verb in verbs]
        cells += [cell(figures, "stored 1", "MB", 1e-6), cell(figures, "stored 2", "MB", 1e-6)]
        peaks = [f"{max(figures[key]):.0f}" for key in ("put MB", "get MB") if key in figures]
        cells.append(" / ".join(peaks) + (" MB" if peaks else ""))
        lines.append(f"| {tool} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def lost(rows):
    """Rows in which a tool that keeps versions is ahead of store."""
    limits_only = {"cp", "find", "rsync", "zstd"}
    for verb in [*VERBS, "stored 1", "stored 2"]:
        if verb not in rows["store"]:
            continue
        ours = statistics.median(rows["store"][verb])
        for tool, figures in rows.items():
            if tool not in limits_only and verb in figures and statistics.median(figures[verb]) < ours:
                yield f"{TITLES.get(verb, verb)}: {tool} at {statistics.median(figures[verb]) / ours:.2f} of store"


def main():
    parser = argparse.ArgumentParser(prog="tests/run compare")
    parser.add_argument("--store", required=True)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is about 0.5 GB a tree")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--corpus", action="append", choices=list(corpora.CORPORA))
    parser.add_argument("--tool", action="append")
    parser.add_argument("--write", action="store_true", help="draw cli/guides/numbers.svg")
    arguments = parser.parse_args()
    work = pathlib.Path(os.environ.get("TMPDIR", "/var/tmp")) / "store-compare"
    work.mkdir(exist_ok=True)
    # Groups of sessions are scheduled by turns whatever their niceness says; this one comes first.
    autogroup = pathlib.Path("/proc/self/autogroup")
    if autogroup.exists():
        try:
            autogroup.write_text("-15")
        except OSError as error:
            print(f"compare: {autogroup}: {error}", file=sys.stderr)
    tools = [tool for tool in TOOLS if tool.is_there() and (not arguments.tool or tool.name in ["store", *arguments.tool])]
    for tool in TOOLS:
        if tool not in tools:
            print(f"compare: without {tool.name}", file=sys.stderr)
    # What the picture is drawn of, from this run and from earlier ones of other corpora.
    known = work / "figures.json"
    all_rows, behind = {}, []
    for name in arguments.corpus or corpora.CORPORA:
        trees = corpora.make(name, work, arguments.scale)
        rows, slow = {tool.name: {} for tool in tools} | {"find": {}}, []
        for run in range(arguments.runs):
            for tool in tools:
                if tool.name in slow:
                    continue
                print(f"compare: {name}, run {run + 1}, {tool.name}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
                with FileSystem(work) as place:
                    try:
                        one_run(tool(place, os.path.abspath(arguments.store)), trees, rows[tool.name], run == 0)
                    except TooSlow:
                        slow.append(tool.name)
            limits(trees, rows["find"])
        all_rows[name] = rows
        print(table(name, *corpora.size_of(trees[0]), rows), flush=True)
        if slow:
            print(f"\nStopped after {LIMIT_SECONDS} s in a row that is empty here: {', '.join(slow)}", flush=True)
        known.write_text(json.dumps({**(json.loads(known.read_text()) if known.exists() else {}), **all_rows}, indent=1))
        behind += [f"- {name}, {line}" for line in lost(rows)]
    print("\nRows in which another tool is ahead:\n\n" + ("\n".join(behind) or "none"))
    remarks = [f"- {tool.name}: {tool.remark}" for tool in tools if tool.remark]
    print("\n" + "\n".join(remarks))
    if arguments.write:
        pathlib.Path("cli/guides/numbers.svg").write_text(plot.draw(json.loads(known.read_text())))


if __name__ == "__main__":
    main()
