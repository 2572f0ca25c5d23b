"""suite.py STORE: see run.sh. Ends at the first thing that is not as it should be, with exit code 1."""

import filecmp
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "servers"), str(HERE.parent / "clusters")]

import garage
from forward import Forwarder
from place import BUCKET, Failed, Place

FILES, FILE_BYTES = 300, 1_000_000
NEW_OF = 20
# Beside new bytes a version moves its metadata, and heads of requests.
TALK_BYTES = 3_000_000
NAME = "project/garage/data"
OUTAGE_SECS = 5


class Wrong(Exception):
    """Something is not as it should be; the message says what."""


def require(holds, what):
    if not holds:
        raise Wrong(what)


class Suite:
    def __init__(self, command, room, place):
        self.command, self.room, self.place = command, room, place
        self.tree = room / "tree"
        self.fresh = 0
        self.garage = garage.cluster(place)
        first = urllib.parse.urlsplit(self.garage.endpoints[0])
        self.link = Forwarder(first.hostname, first.port, 0)
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(room), "LANG": "C.UTF-8", "AWS_REGION": garage.REGION,
            "AWS_ACCESS_KEY_ID": self.garage.key, "AWS_SECRET_ACCESS_KEY": self.garage.secret,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % self.link.port,
        }
        self.url = "s3://%s/store" % BUCKET

    def begin(self, store, *words, **more):
        words = [self.command, "--store", store, *map(str, words)]
        return subprocess.Popen(words, env={**self.environment, **more}, cwd=self.room, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, process, code=0):
        """Waits for the end, which is to be with `code`; standard output and standard error."""
        output, errors = process.communicate()
        errors = errors.decode(errors="replace")
        require(process.returncode == code, "%s: exit code %s, expected %d\n%s%s" % (
            " ".join(process.args), process.returncode, code, output[-2000:].decode(errors="replace"), errors))
        return output, errors

    def run(self, store, *words, code=0):
        return self.end(self.begin(store, *words), code)

    def out(self):
        self.fresh += 1
        return self.room / ("out-%d" % self.fresh)

    def check(self, store, version=NAME, tree=None):
        """A store is whole down to the last byte, and gives back the tree."""
        self.run(store, "verify", "--read-data")
        out = self.out()
        self.run(store, "get", version, out)
        require_same(tree or self.tree, out)
        shutil.rmtree(out)

    def kill_at(self, process, number, share, total):
        """Kills a node when so many bytes of `total` have passed, while the process runs."""
        while self.link.bytes < share * total:
            require(process.poll() is None, "it ended before a node was killed")
            time.sleep(0.005)
        self.place.kill("garage-%d" % number)
        require(process.poll() is None, "it ended before a node was killed")

    def timed(self, what, process, meanwhile):
        self.link.take()
        begin = time.monotonic()
        meanwhile(process)
        self.end(process)
        moved, requests = self.link.take()
        print("| %s | %.1f s | %.1f MB | %d requests |" % (
            what, time.monotonic() - begin, moved / 1e6, requests), flush=True)
        return moved


def corpus(place, seed, files, size):
    dice = random.Random(seed)
    (place / "sub").mkdir(parents=True)
    for number in range(files):
        (place / "sub" / ("%03d.bin" % number)).write_bytes(dice.randbytes(size))
    (place / "notes.txt").write_text("notes\n" * 2000)
    (place / "link").symlink_to("notes.txt")


def edit(place, seed):
    """The next version; returns how many of its bytes are new."""
    dice, new = random.Random(seed), 0
    for path in sorted((place / "sub").iterdir())[seed % NEW_OF::NEW_OF]:
        path.write_bytes(dice.randbytes(FILE_BYTES))
        new += FILE_BYTES
    return new


def require_same(expected, found):
    """Two trees have the same names, kinds and bytes."""
    names = [sorted(path.relative_to(root) for path in root.rglob("*")) for root in (expected, found)]
    require(names[0] == names[1], "%s: other names than in %s" % (found, expected))
    for name in names[0]:
        one, other = expected / name, found / name
        same = (one.is_symlink(), one.is_dir()) == (other.is_symlink(), other.is_dir())
        if same and one.is_symlink():
            same = os.readlink(one) == os.readlink(other)
        elif same and one.is_file():
            same = filecmp.cmp(one, other, shallow=False)
        require(same, "%s: not as in %s" % (other, one))


def verbs(suite):
    """Every verb does its work there, and says what it wants."""
    url, small = suite.url, suite.room / "small"
    corpus(small, 1, 20, 100_000)
    _, errors = suite.run(url, "init", code=1)
    require("--single-writer" in errors and "overwrites" in errors, "init refuses without a reason: " + errors)
    suite.run(url, "init", "--single-writer")
    suite.run(url, "put", small, NAME)
    (small / "notes.txt").write_text("other notes\n")
    suite.run(url, "put", small, NAME)
    listed, _ = suite.run(url, "ls", NAME)
    require(b"notes.txt" in listed, "ls: %s" % listed)
    require(suite.run(url, "cat", NAME + ":notes.txt")[0] == b"other notes\n", "cat")
    require(suite.run(url, "cat", NAME + "@1:notes.txt")[0] == b"notes\n" * 2000, "cat of the version before")
    suite.check(url, tree=small)
    out = suite.out()
    suite.run(url, "materialize", NAME, out)
    require_same(small, out)
    suite.run(url, "rm", NAME + "@1", "--yes")
    collect = ("gc", "--grace", "0", "--min-age", "0", "--max-unused", "0")
    _, errors = suite.run(url, *collect, code=2)
    require("--exclusive" in errors, "gc refuses without a reason: " + errors)
    suite.run(url, *collect, "--exclusive")
    suite.check(url, tree=small)
    suite.run(url, "cat", NAME + "@1:notes.txt", code=3)
    suite.run(url, "rm", NAME, "--yes")
    suite.run(url, *collect, "--exclusive")
    suite.run(url, "verify", "--read-data")


def transfers(suite):
    """Bytes move while nodes go away and come back; figures are printed."""
    here, there, url = "here", "there", suite.url
    corpus(suite.tree, 2, FILES, FILE_BYTES)
    total = FILES * FILE_BYTES
    for store in (here, there):
        suite.run(store, "init")
    suite.run(here, "put", suite.tree, NAME)
    print("| | time | bytes, both directions | |\n|---|---|---|---|", flush=True)

    push = suite.begin(here, "push", NAME, url)
    moved = suite.timed("push, the second node killed", push, lambda push: suite.kill_at(push, 1, 0.4, total))
    require(moved <= 1.1 * total + TALK_BYTES, "%d bytes moved for %d" % (moved, total))
    suite.check(url)
    suite.check(here)
    suite.garage.start(1)

    new = edit(suite.tree, 3)
    suite.run(here, "put", suite.tree, NAME)
    moved = suite.timed("push of the second version", suite.begin(here, "push", NAME, url), lambda _: None)
    require(moved <= 1.1 * new + TALK_BYTES, "%d bytes moved for %d" % (moved, new))
    suite.check(url)

    pull = suite.begin(there, "pull", url, NAME)
    moved = suite.timed("pull, the third node killed", pull, lambda pull: suite.kill_at(pull, 2, 0.4, total))
    require(moved <= 1.1 * total + TALK_BYTES, "%d bytes moved for %d" % (moved, total))
    suite.check(there)
    suite.check(url)
    suite.garage.start(2)

    # The node that is spoken to goes away, and comes back: what was on its way is sent again.
    new = sum(edit(suite.tree, seed) for seed in range(4, 12))
    suite.run(here, "put", suite.tree, NAME)

    def outage(push):
        suite.kill_at(push, 0, 0.3, new)
        time.sleep(OUTAGE_SECS)
        suite.garage.start(0)

    suite.timed("push, the first node killed, back after %d s" % OUTAGE_SECS, suite.begin(here, "push", NAME, url), outage)
    suite.check(url)
    suite.check(here)


def main():
    room = pathlib.Path(tempfile.mkdtemp(prefix="store-garage.", dir=os.environ.get("TMPDIR", "/var/tmp")))
    place = Place(room / "garage")
    try:
        suite = Suite(str(pathlib.Path(sys.argv[1]).resolve()), room, place)
        verbs(suite)
        transfers(suite)
        print("garage: whole and the same after every step", flush=True)
    except (Wrong, Failed) as failed:
        sys.exit("tests/garage: %s" % failed)
    finally:
        place.stop()
        shutil.rmtree(room, ignore_errors=True)


if __name__ == "__main__":
    main()
