"""The cache of optimum-neuron, unmodified, with directories that `store neff` pulled, and with `store serve` as its Hub.

suite.py STORE PYTHON   STORE is the command, PYTHON has what requirements.txt names.

One job compiles; what it compiled and noted is pushed, pulled and found by jobs elsewhere, without a Hub and with one. Then
a job gives its cache to the Hub by itself: another one finds it there, and so does `store neff pull`."""

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from checks import Suite, main  # noqa: E402

REF, REPO = "project/llama/neff", "org/neff"
KEYS = ["1001", "1002", "1003"]
NOBODY = "http://127.0.0.1:9"


class Neuron(Suite):
    def __init__(self, command, python, room):
        super().__init__(command, room)
        self.python, self.told = python, 0
        self.log = room / "log"
        (room / "model").mkdir()
        (room / "model" / "config.json").write_text('{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}')

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
        self.equal(what, told, {"compiled": compiled, "found": found, "cache": cache})

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
        self.equal("all of it is pushed", (pushed["pushed"], pushed["refused"]), (5, []))
        self.equal("and pulled elsewhere", self.store("neff", "pull", second, REF)["pulled"], 5)
        noted = self.job("b", NOBODY, "registry", second)
        self.equal("what was noted leads into the pulled directory", list(noted), ["org/tiny"])
        self.compile("a job there finds all keys", "b", NOBODY, second, [], KEYS, "CompileCacheFs")
        self.equal("and notes nothing again", self.job("b", NOBODY, "registry", second), noted)
        again = self.store("neff", "push", second, REF)
        self.equal("so that nothing is pushed back", (again["pushed"], again["conflicts"]), (0, []))

    def with_a_hub(self, endpoint):
        first, third, fourth = (self.room / name for name in ["first", "third", "fourth"])
        self.equal("a job gives its cache to the Hub", self.job("a", endpoint, "synchronize", first, REPO), {})
        self.equal("which lists its model", self.job("c", endpoint, "models", self.room / "model", REPO), {"entries": 1, "models": [["llama", "org", "tiny"]]})
        third.mkdir()
        self.compile("a job with nothing finds it there", "c", endpoint, third, ["1004"], KEYS, "CompileCacheHfProxy")
        self.store("neff", "pull", fourth, REF)
        self.asked()
        self.compile("a job with a pulled directory finds it here", "d", endpoint, fourth, [], KEYS, "CompileCacheHfProxy")
        self.equal("and asks the Hub for no file", [path for path in self.asked() if "/resolve/" in path], [])
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
        self.equal("the server ends well", server.returncode, 0)


if __name__ == "__main__":
    words = map(os.path.abspath, sys.argv[1:3])
    main("neuron", lambda room: Neuron(*words, room))
