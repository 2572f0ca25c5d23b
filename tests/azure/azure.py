"""azure.py STORE CONFORMANCE: see run.sh. Ends at the first thing that is not as it should be, with exit code 1."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent / name) for name in ("garage", "servers", "clusters")]

from azurite import ACCOUNT, Azurite
from place import BUCKET, Failed, Place
from suite import Wrong, corpus, require, require_same

NAME = "project/azure/data"
COLLECT = ("gc", "--grace", "0", "--min-age", "0", "--max-unused", "0")
WRITERS = 8


class Suite:
    def __init__(self, command, room, azurite):
        self.command, self.room, self.azurite = command, room, azurite
        self.url, self.fresh = "az://%s/store" % BUCKET, 0
        self.by_key = azurite.connection(AccountKey=azurite.key)
        self.by_signature = azurite.connection(AccountName=ACCOUNT, SharedAccessSignature=azurite.signature())

    def begin(self, *words, connection=None):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.room), "LANG": "C.UTF-8",
                       "AZURE_STORAGE_CONNECTION_STRING": connection or self.by_key}
        return subprocess.Popen([self.command, *map(str, words)], env=environment, cwd=self.room, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def end(self, process, code=0):
        output, errors = process.communicate()
        told = errors.decode(errors="replace")
        require(process.returncode == code, "%s: exit code %s, expected %d\n%s%s" % (
            " ".join(process.args), process.returncode, code, output[-2000:].decode(errors="replace"), told))
        require(self.azurite.key.rstrip("=") not in told, "the key shows: %s" % told)
        return output, told

    def run(self, *words, code=0, connection=None):
        return self.end(self.begin(*words, connection=connection), code)

    def out(self):
        self.fresh += 1
        return self.room / ("out-%d" % self.fresh)

    def check(self, store, tree, name=NAME):
        self.run("--store", store, "verify", "--read-data")
        out = self.out()
        self.run("--store", store, "get", name, out)
        require_same(tree, out)


def verbs(suite):
    """Every verb does its work there."""
    url, tree = suite.url, suite.room / "small"
    corpus(tree, 1, 20, 100_000)
    suite.run("init", url)
    there = ("--store", url)
    suite.run("init", url, code=5)
    suite.run(*there, "put", tree, NAME)
    (tree / "notes.txt").write_text("other notes\n")
    suite.run(*there, "put", tree, NAME)
    require(suite.run(*there, "cat", NAME + ":notes.txt")[0] == b"other notes\n", "cat")
    require(len(suite.run(*there, "history", NAME, "--json")[0].splitlines()) == 2, "history")
    suite.check(url, tree)
    out = suite.out()
    suite.run(*there, "materialize", NAME, out)
    require_same(tree, out)
    suite.run(*there, "rm", NAME + "@1")
    suite.run(*there, *COLLECT)
    suite.check(url, tree)
    by_signature = suite.run(*there, "cat", NAME + ":notes.txt", connection=suite.by_signature)
    require(by_signature[0] == b"other notes\n", "cat by signature")
    suite.run(*there, "ls", code=1, connection=suite.azurite.connection(AccountKey="d3Jvbmc="))
    _, told = suite.run(*there, "ls", code=2, connection=suite.azurite.key.rstrip("="))
    require("field 1 is not NAME=VALUE" in told, "a malformed connection string: %s" % told)


def writers(suite):
    """Many puts at once, every one a new entry of one log, beside a collector: none is lost."""
    url, trees = suite.url, [suite.room / ("tree-%d" % number) for number in range(WRITERS)]
    for number, tree in enumerate(trees):
        corpus(tree, 10 + number, 5, 100_000)
    names = ["project/azure/of-%d" % number for number in range(WRITERS)]
    puts = [suite.begin("--store", url, "put", tree, name) for tree, name in zip(trees, names)]
    suite.end(suite.begin("--store", url, *COLLECT, "--quiet"))
    for put in puts:
        suite.end(put)
    for name, tree in zip(names, trees):
        suite.check(url, tree, name)


def far_is_it(suite):
    """Bytes of the only job, by its status."""
    told = suite.run("duplicate", "--status", "--json")[0]
    return json.loads(told)["progress"]["bytes"] if told.strip() else 0


def killed_push(suite):
    """A push that is killed goes on where it was, and another container's store has the same in the end."""
    tree, far = suite.room / "large", suite.url + "-far"
    corpus(tree, 2, 150, 1_000_000)
    for store in ("here", far):
        suite.run("init", store)
    suite.run("--store", "here", "put", tree, NAME)
    push = ("--store", "here", "push", NAME, far)
    killed = suite.begin(*push, "--bwlimit", "30M")
    while far_is_it(suite) < 80_000_000:
        require(killed.poll() is None, "the push ended before it was killed")
        time.sleep(0.1)
    killed.kill()
    killed.communicate()
    dry = json.loads(suite.run(*push, "--dry-run", "--json")[0])
    require(dry["resumed_bytes"] > 60_000_000, "nothing is left of what was sent: %s" % dry)
    suite.run(*push)
    suite.check(far, tree)
    suite.run("duplicate", NAME, "--from", far, "--to", suite.url, "--verify")
    suite.check(suite.url, tree)


def main():
    room = pathlib.Path(tempfile.mkdtemp(prefix="store-azure.", dir=os.environ.get("TMPDIR", "/var/tmp")))
    place = Place(room / "azurite")
    try:
        azurite = Azurite(place)
        store, conformance = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
        settings = {"account_name": ACCOUNT, "account_key": azurite.key, "endpoint": azurite.endpoint}
        place.run(conformance, "az://%s/conformance" % BUCKET, *("azure_storage_%s=%s" % pair for pair in settings.items()))
        print("azure: conforms", flush=True)
        suite = Suite(store, room, azurite)
        for part in (verbs, writers, killed_push):
            part(suite)
            print("azure: %s: whole and the same" % part.__name__, flush=True)
    except (Wrong, Failed) as failed:
        sys.exit("tests/azure: %s" % failed)
    finally:
        place.stop()
        shutil.rmtree(room, ignore_errors=True)


if __name__ == "__main__":
    main()
