"""Slips made by a machine: cargo-mutants says which there are; which of them does no test see?

cargo-mutants builds the tree anew for every slip, which here takes minutes. Instead all of them are written into one
copy of the tree, each behind a switch (`switches.py`), and the tests are built once. Every test then runs once without a
slip, so that it is known which switches it asks and how long it takes. A slip is tried by the tests that ask its switch,
those that caught others of its file and the short ones first, until one fails twice, or hangs.

Tests run in mount and process namespaces (`worker.py`), where a slip that removes what it should not finds nothing.

What came of each is a line of JSON in RESULTS/outcomes.jsonl, the last one counts; slips that were caught are not tried
again, so a run that was stopped goes on.
"""

import argparse
import collections
import fnmatch
import hashlib
import json
import os
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import threading

from switches import switched

HERE = pathlib.Path(__file__).resolve().parent
SHARE_MIN = 90
# Seconds of tests after which a slip that none of them saw counts as missed.
BUDGET_SECONDS = 150

LOAD_BEARING = [
    "gc/src/*",
    "store/src/check/*",
    "store/src/chunk.rs",
    "store/src/claims*",
    "store/src/codec*",
    "store/src/format/*",
    "store/src/get*",
    "store/src/graph/*",
    "store/src/host/destination*",
    "store/src/host/pool/*",
    "store/src/host/saved.rs",
    "store/src/host/stat_cache/*",
    "store/src/host/walk/*",
    "store/src/index*",
    "store/src/inspect/summarize.rs",
    "store/src/log*",
    "store/src/materialize/*",
    "store/src/merge*",
    "store/src/pack/*",
    "store/src/policy.rs",
    "store/src/profile/secrets/*",
    "store/src/put/*",
    "store/src/read*",
    "store/src/remote/bucket*",
    "store/src/remote/directory*",
    "store/src/remote/objects*",
    "store/src/replicate/*",
    "store/src/session*",
    "store/src/sound/*",
    "store/src/trim*",
]

# Binaries whose tests look at the text of the tree, or at nothing of the engine's.
LEFT_OUT = {"tidy", "model"}

SLIP = r"""//! Which slip is made: what the file says that all processes of a mount namespace share.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

struct Control {
    active: u32,
    asked: Option<&'static [AtomicU8]>,
}

static CONTROL: OnceLock<Control> = OnceLock::new();
const LEN: usize = 8 + 16384;

fn open() -> Control {
    let none = Control { active: 0, asked: None };
    let file = unsafe { libc::open(c"/mnt/slips/control".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if file < 0 {
        return none;
    }
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let at = unsafe { libc::mmap(std::ptr::null_mut(), LEN, rights, libc::MAP_SHARED, file, 0) };
    unsafe { libc::close(file) };
    if at == libc::MAP_FAILED {
        return none;
    }
    let head = unsafe { &*at.cast::<[AtomicU32; 2]>() };
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU8>().add(8), LEN - 8) };
    let remembers = head[1].load(Ordering::Relaxed) != 0;
    Control { active: head[0].load(Ordering::Relaxed), asked: remembers.then_some(bytes) }
}

#[inline]
pub fn on(number: u32) -> bool {
    let control = CONTROL.get_or_init(open);
    if let Some(asked) = control.asked {
        asked[number as usize].store(1, Ordering::Relaxed);
    }
    number == control.active
}
"""


def load_bearing():
    """Files that the list names, without their tests."""
    found = []
    for package in ("gc/src", "store/src"):
        for path in sorted(pathlib.Path(package).rglob("*.rs")):
            name = str(path)
            named = any(fnmatch.fnmatch(name, pattern) for pattern in LOAD_BEARING)
            if named and not re.search(r"tests?\.rs$|/testing/|schedules|conformance", name):
                found.append(name)
    return found


def slips_of(files):
    """Every slip once, in the order of files and lines; modules are declared for two sets of features."""
    wanted = [word for file in files for word in ("--file", file)]
    words = ["cargo", "mutants", "--workspace", "--list", "--json", *wanted]
    listed = json.loads(subprocess.run(words, check=True, capture_output=True).stdout or b"[]")
    slips = {}
    for slip in listed:
        slips.setdefault(slip["name"], slip)
    return dict(enumerate(slips.values(), 1))


class Tree:
    """A copy of the tree with every slip behind a switch."""

    def __init__(self, results, slips):
        self.at, self.slips = results / "tree", slips
        # By name, since a change elsewhere moves the numbers.
        self.known = results / "unviable.json"
        names = set(json.loads(self.known.read_text())) if self.known.exists() else set()
        self.unviable = {number for number, slip in slips.items() if slip["name"] in names}
        self.sources = {}
        self.numbers = set()

    def copy(self):
        files = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True).stdout
        slipped = {slip["file"] for slip in self.slips.values()}
        for name in filter(None, files.decode().split("\0")):
            source, to = pathlib.Path(name), self.at / name
            if not source.is_file():
                continue
            if name in slipped:
                self.sources[name] = source.read_text()
            elif not to.exists() or to.read_bytes() != source.read_bytes():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to)
        self.say("slip/src/lib.rs", SLIP)
        head = '[package]\nname = "slip"\nversion = "0.1.0"\nedition = "2024"\n\n[lib]\ntest = false\ndoctest = false\n'
        self.say("slip/Cargo.toml", head + '\n[dependencies]\nlibc = "0.2"\n')
        for package in ("store", "gc"):
            text = pathlib.Path(package, "Cargo.toml").read_text()
            self.say(f"{package}/Cargo.toml", text.replace("[dependencies]", '[dependencies]\nslip.path = "../slip"', 1))
        text = pathlib.Path("Cargo.toml").read_text().replace("members = [", 'members = ["slip", ', 1)
        text = text.replace('unsafe_code = "deny"', 'unused_parens = "allow"\nunreachable_code = "allow"')
        self.say("Cargo.toml", text + "\n[profile.dev.package.slip]\nopt-level = 3\n")

    def say(self, name, text):
        """Writes a file unless it says that already, so that no more is built than has changed."""
        to, said = self.at / name, text if isinstance(text, bytes) else text.encode()
        if not to.exists() or to.read_bytes() != said:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(said)

    def write(self):
        """The slips that compile so far, each behind its switch; where each stands in its file."""
        regions, self.numbers = {}, set()
        for file, text in self.sources.items():
            here = [(n, s) for n, s in self.slips.items() if s["file"] == file and n not in self.unviable]
            new, numbers, regions[file] = switched(text, here)
            self.numbers |= numbers
            self.say(file, new)
        return regions

    def cargo(self, *words):
        done = subprocess.run(
            ["cargo", *words, "--message-format=json"], cwd=self.at, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return done, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def build(self):
        """The test binaries. A slip that does not compile is taken out."""
        for words in (("check", "--workspace", "--tests", "--quiet"), ("test", "--workspace", "--tests", "--no-run", "--quiet")):
            while True:
                regions = self.write()
                done, messages = self.cargo(*words)
                if done.returncode == 0:
                    break
                errors = [m["message"] for m in messages if (m.get("message") or {}).get("level") == "error"]
                bad = set().union(*(self.blamed(error, regions) for error in errors))
                if not bad:
                    sys.exit("mutants: the tree does not build\n" + "".join(error["rendered"] for error in errors))
                self.unviable |= bad
                self.known.write_text(json.dumps([self.slips[number]["name"] for number in self.unviable]))
                print(f"{len(self.unviable)} do not compile", file=sys.stderr)
        made = (m for m in messages if m.get("reason") == "compiler-artifact" and m["profile"]["test"] and m["executable"])
        return [
            (m["target"]["name"], m["executable"], str(pathlib.Path(m["manifest_path"]).parent))
            for m in made
            if m["target"]["name"] not in LEFT_OUT
        ]

    def blamed(self, error, regions):
        """The slips that an error of the compiler speaks of."""
        for span in sorted(error["spans"], key=lambda span: not span["is_primary"]):
            name = span["file_name"]
            around = [
                (end - start, number)
                for number, start, end in regions.get(name, [])
                if start <= span["byte_start"] and span["byte_end"] <= end
            ]
            if around:
                return {min(around)[1]}
            if (error.get("code") or {}).get("code") == "E0004" and span["is_primary"]:
                # A match that has not all its arms.
                arms = arms_behind((self.at / name).read_text(errors="replace"), span["byte_end"])
                if arms:
                    return arms
        return set(map(int, re.findall(r"slip::on\((\d+)\)", error["rendered"] or "")))


def arms_behind(text, at):
    depth = 0
    for stop in range(at, len(text)):
        depth += (text[stop] == "{") - (text[stop] == "}")
        if depth == 0 and text[stop] == "}":
            return set(map(int, re.findall(r"!slip::on\((\d+)\)", text[at:stop])))
    return set()


class Worker:
    def __init__(self, scratch):
        scratch.mkdir(parents=True, exist_ok=True)
        words = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable]
        self.running = subprocess.Popen(
            [*words, str(HERE / "worker.py"), str(scratch)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, test, slip, limit, remember=False):
        print(json.dumps({"test": test, "slip": slip, "remember": remember, "limit": limit}), file=self.running.stdin, flush=True)
        return json.loads(self.running.stdout.readline())


def in_turn(results, count, jobs, work):
    """Calls work(worker, job) for each of the jobs, on so many workers at once."""
    waiting, errors = queue.Queue(), []
    for job in jobs:
        waiting.put(job)

    def go(number):
        try:
            worker = Worker(results / "scratch" / str(number))
            while True:
                work(worker, waiting.get_nowait())
        except queue.Empty:
            pass
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def tests_of(binaries):
    for binary, path, package in binaries:
        said = subprocess.run([path, "--list", "--format", "terse"], check=True, capture_output=True, text=True).stdout
        for line in said.splitlines():
            if line.endswith(": test"):
                name = line.removesuffix(": test")
                yield {"id": f"{pathlib.Path(package).name}::{binary} {name}", "binary": path, "package": package, "name": name}


def recorded(results, binaries, slips, count):
    """Every test that passes without a slip, by its name: its seconds, and which switches of these slips it asks."""
    log, lock = results / "tests.jsonl", threading.Lock()
    lines = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
    # A change of a file moves the numbers of the switches behind it.
    known = {test["id"]: test for test in lines if test.get("slips") == slips}
    missing = [test for test in tests_of(binaries) if known.get(test["id"], {}).get("binary") != test["binary"]]
    print(f"{len(missing)} tests run once without a slip", file=sys.stderr)
    with log.open("a") as out:

        def record(worker, test):
            found = {**test, "slips": slips, **worker.run(test, 0, 600, remember=True)}
            with lock:
                known[test["id"]] = found
                print(json.dumps(found), file=out, flush=True)
                if found["code"] != 0:
                    print(f"left out, since it fails without a slip: {test['id']}", file=sys.stderr)

        in_turn(results, count, missing, record)
    return {name: test for name, test in known.items() if test["code"] == 0}


class Trial:
    def __init__(self, slips, tests, out):
        self.slips, self.tests, self.out = slips, tests, out
        self.asking = collections.defaultdict(list)
        for name, test in tests.items():
            for number in test["asked"]:
                self.asking[number].append(name)
        self.caught_by = collections.defaultdict(collections.Counter)
        self.lock = threading.Lock()

    def order(self, number):
        """Tests that ask its switch: what caught others of its file, and what is short, first."""
        file = self.slips[number]["file"]
        room = pathlib.Path(file).stem
        with self.lock:
            caught = dict(self.caught_by[file])

        def cost(name):
            test = self.tests[name]
            near = 0.1 if f"::{room}" in name or f" {room}::" in name else 1
            return (test["took"] + 0.02) / (1 + 6 * caught.get(name, 0)) * near

        return sorted(self.asking[number], key=cost)

    def run(self, worker, number):
        came, by, spent = "missed", "", 0.0
        for name in self.order(number):
            test = self.tests[name]
            if spent > BUDGET_SECONDS:
                break
            spent += test["took"]
            limit = 30 + 8 * test["took"]
            code = worker.run(test, number, limit)["code"]
            # One that fails for another reason does not fail twice.
            if code is None or (code != 0 and worker.run(test, number, limit)["code"] != 0):
                came, by = "caught", name if code is not None else f"{name} (it hung)"
                break
        slip = self.slips[number]
        with self.lock:
            self.caught_by[slip["file"]][by.removesuffix(" (it hung)")] += came == "caught"
            found = {"name": slip["name"], "file": slip["file"], "outcome": came, "by": by}
            print(json.dumps(found), file=self.out, flush=True)
            print(f"{came}: {slip['name']} {by}", file=sys.stderr, flush=True)


def table_of(done):
    rows = {}
    for found in done:
        row = rows.setdefault(found["file"], {"caught": 0, "missed": 0})
        row[found["outcome"]] += 1
    total = {kind: sum(row[kind] for row in rows.values()) for kind in ("caught", "missed")}
    print("| file | caught | missed | share |\n|---|---|---|---|")
    for name, row in [*sorted(rows.items()), ("all", total)]:
        share = 100 * row["caught"] / max(row["caught"] + row["missed"], 1)
        print(f"| {name} | {row['caught']} | {row['missed']} | {share:.0f} % |")
    for found in done:
        if found["outcome"] == "missed":
            print(f"missed: {found['name']}")
    return 100 * total["caught"] >= SHARE_MIN * (total["caught"] + total["missed"])


def main():
    parser = argparse.ArgumentParser(prog="tests/run mutants")
    parser.add_argument("files", nargs="*", help="without one, every load-bearing file")
    parser.add_argument("--sample", type=int, help="so many slips, drawn by lot")
    parser.add_argument("--seed", type=int, default=1, help="of the lot")
    parser.add_argument("--workers", type=int, default=3 * (os.cpu_count() or 1), help="tests at once")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    asked = parser.parse_args()
    files = load_bearing()
    for file in asked.files:
        if file not in files:
            parser.error(f"{file}: there is no such file, or the list of load-bearing ones does not name it")
    sys.setrecursionlimit(20_000)
    slips = slips_of(files)
    results = asked.results.resolve()
    results.mkdir(parents=True, exist_ok=True)
    tree = Tree(results, slips)
    tree.copy()
    binaries = tree.build()
    unswitched = len(slips) - len(tree.numbers) - len(tree.unviable)
    print(
        f"{len(slips)} slips: {len(tree.numbers)} have a switch, {len(tree.unviable)} do not compile, "
        f"{unswitched} have none (constants, opaque types)",
        file=sys.stderr,
    )
    names = "\n".join(slip["name"] for slip in slips.values())
    tests = recorded(results, binaries, hashlib.sha256(names.encode()).hexdigest(), asked.workers)
    numbers = sorted(number for number in tree.numbers if not asked.files or slips[number]["file"] in asked.files)
    if asked.sample is not None:
        numbers = random.Random(asked.seed).sample(numbers, min(asked.sample, len(numbers)))

    log = results / "outcomes.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    done = {found["name"] for found in map(json.loads, lines) if found["outcome"] == "caught"}
    with log.open("a") as out:
        trial = Trial(slips, tests, out)
        in_turn(results, asked.workers, [n for n in numbers if slips[n]["name"] not in done], trial.run)
    found = {found["name"]: found for found in map(json.loads, log.read_text().splitlines())}
    if not numbers:
        sys.exit("mutants: none was tried")
    sys.exit(not table_of([found[slips[number]["name"]] for number in numbers]))


main()
