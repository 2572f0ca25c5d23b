"""The cache of optimum-neuron, unmodified, with directories that `store neff` pulled, and with `store serve` as its Hub.

suite.py STORE PYTHON   STORE is the command, PYTHON has what requirements.txt names.

One job compiles; what it compiled and noted is pushed, pulled and found by jobs elsewhere, without a Hub and with one. Then
a job gives its cache to the Hub by itself: another one finds it there, and so does `store neff pull`."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
REF, REPO = "project/llama/neff", "org/neff"
KEYS = ["1001", "1002", "1003"]
NOBODY = "http://127.0.0.1:9"


class Suite:
    def __init__(self, command, python, room):
        self.command, self.python, self.room = command, python, room
        self.failures, self.passed, self.told = [], 0, 0
        self.log = room / "log"
        (room / "model").mkdir()
        (room / "model" / "config.json").write_text('{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}')

    def expect(self, what, found, expected):
        if found == expected:
            self.passed += 1
            print("  ok    " + what, flush=True)
        else:
            self.failures.append(what)
            print("  FAIL  %s\n%s\nexpected %s" % (what, str(found)[-2500:], expected), flush=True)

    def environment(self):
        return {"PATH": os.environ["PATH"], "HOME": str(self.room / "home"), "STORE_URL": str(self.room / "store"), "LANG": "C.UTF-8"}

    def store(self, *words):
        """Runs the command, which must end well; returns its answer."""
        done = subprocess.run([self.command, *map(str, words), "--json"], env=self.environment(), capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError("store %s: %d: %s" % (words, done.returncode, done.stderr))
        return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}

    def job(self, host, endpoint, *words):
        """Runs a job on a host that remembers nothing of the others; returns what it said."""
        home = self.room / ("home-" + host)
        home.mkdir(exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(home), "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "LANG": "C.UTF-8",
            "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "CUSTOM_CACHE_REPO": REPO, "PYTHONPATH": str(HERE / "stubs"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [self.python, str(HERE / "job.py"), *map(str, words)]
        done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=300)
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return done.stdout + done.stderr

    def compile(self, what, host, endpoint, directory, compiled, found, cache):
        told = self.job(host, endpoint, "compile", directory, self.room / "model", *sorted(compiled + found))
        self.expect(what, told, {"compiled": compiled, "found": found, "cache": cache})

    def asked(self):
        """Paths that the server was asked for since the last time."""
        lines = self.log.read_text().splitlines()
        taken, self.told = lines[self.told:], len(lines)
        return [json.loads(line)["path"] for line in taken]

    def without_a_hub(self):
        first, second = self.room / "first", self.room / "second"
        self.compile("the first job compiles", "a", NOBODY, first, KEYS, [], "CompileCacheFs")
        pushed = self.store("neff", "push", first, REF)
        # Three modules, what was noted of the model, and the link to that by its name.
        self.expect("all of it is pushed", (pushed["pushed"], pushed["refused"]), (5, []))
        self.expect("and pulled elsewhere", self.store("neff", "pull", second, REF)["pulled"], 5)
        noted = self.job("b", NOBODY, "registry", second)
        self.expect("what was noted leads into the pulled directory", list(noted), ["org/tiny"])
        self.compile("a job there finds all keys", "b", NOBODY, second, [], KEYS, "CompileCacheFs")
        self.expect("and notes nothing again", self.job("b", NOBODY, "registry", second), noted)
        again = self.store("neff", "push", second, REF)
        self.expect("so that nothing is pushed back", (again["pushed"], again["conflicts"]), (0, []))

    def with_a_hub(self, endpoint):
        first, third, fourth = (self.room / name for name in ["first", "third", "fourth"])
        self.expect("a job gives its cache to the Hub", self.job("a", endpoint, "synchronize", first, REPO), {})
        self.expect("which lists its model", self.job("c", endpoint, "models", self.room / "model", REPO), {"entries": 1, "models": [["llama", "org", "tiny"]]})
        third.mkdir()
        self.compile("a job with nothing finds it there", "c", endpoint, third, ["1004"], KEYS, "CompileCacheHfProxy")
        self.store("neff", "pull", fourth, REF)
        self.asked()
        self.compile("a job with a pulled directory finds it here", "d", endpoint, fourth, [], KEYS, "CompileCacheHfProxy")
        self.expect("and asks the Hub for no file", [path for path in self.asked() if "/resolve/" in path], [])
        fifth = self.room / "fifth"
        given = "project/llama/models/" + REPO
        self.store("neff", "pull", fifth, given)
        self.compile("what was given to the Hub is pulled from its ref", "e", NOBODY, fifth, [], KEYS, "CompileCacheFs")

    def run(self):
        self.store("init")
        self.without_a_hub()
        # Its client takes no endpoint with a path.
        words = [self.command, "serve", "--listen", "127.0.0.1:0", "--root", "project/llama", "--access-log", str(self.log), "--json"]
        server = subprocess.Popen(words, env=self.environment(), stdout=subprocess.PIPE, text=True)
        try:
            self.with_a_hub(json.loads(server.stdout.readline())["url"])
        finally:
            server.terminate()
            server.wait()
        self.store("verify", "--read-data")
        self.expect("the server ends well", server.returncode, 0)


def main():
    command, python = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="store-neuron-") as room:
        suite = Suite(command, python, pathlib.Path(room))
        suite.run()
    print("%d passed, %d failed" % (suite.passed, len(suite.failures)))
    for failure in suite.failures:
        print("failed: " + failure)
    sys.exit(bool(suite.failures))


if __name__ == "__main__":
    main()
