"""What the suites share that run programs of others beside the command: checks that are told as they end, and how a suite ends."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

SHOWN_BYTES = 3000


class Suite:
    """Checks with one store, in a directory of their own: `room`."""

    def __init__(self, command, room):
        self.command, self.room = str(command), room
        self.failures, self.passed = [], 0

    def expect(self, what, holds, detail=""):
        """Tells whether it holds, and goes on."""
        if holds:
            self.passed += 1
            print("  ok    " + what, flush=True)
        else:
            self.failures.append(what)
            print("  FAIL  %s\n%s" % (what, str(detail)[-SHOWN_BYTES:]), flush=True)

    def equal(self, what, found, expected):
        self.expect(what, found == expected, "%s\nexpected %s" % (str(found)[-SHOWN_BYTES // 2:], str(expected)[-SHOWN_BYTES // 2:]))

    def environment(self, home="home", **more):
        """All that a process gets: nothing of the person who runs the suite."""
        home = self.room / home
        home.mkdir(parents=True, exist_ok=True)
        return {"PATH": os.environ["PATH"], "HOME": str(home), "STORE_URL": str(self.room / "store"), "LANG": "C.UTF-8", **more}

    def said(self, *words, code=0):
        """Runs the command in the room, which must end with `code`: what it printed."""
        words = [self.command, *map(str, words)]
        done = subprocess.run(words, env=self.environment(), cwd=self.room, capture_output=True, text=True)
        if done.returncode != code:
            raise RuntimeError("%s: %d: %s" % (words, done.returncode, done.stderr))
        return done.stdout

    def store(self, *words, code=0):
        """The same; the last object of its answer."""
        answer = self.said(*words, "--json", code=code)
        return json.loads(answer.splitlines()[-1]) if answer.strip() else {}


def main(name, make):
    """Runs the suite that `make` makes in a new room, and ends the process: 1 when a check failed."""
    with tempfile.TemporaryDirectory(prefix="store-%s-" % name) as room:
        suite = make(pathlib.Path(room))
        suite.run()
    print("%d passed, %d failed" % (suite.passed, len(suite.failures)))
    for failure in suite.failures:
        print("failed: " + failure)
    sys.exit(bool(suite.failures))
