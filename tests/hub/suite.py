"""Real clients, unmodified, at the Hub door of `store serve`.

suite.py STORE VENVS [GENERATION...]   STORE is the command, VENVS what tests/clients/setup.sh made.

For each generation: a cache that its client made from a hub of our own is put and served; the same client, with an empty
home, gets the same commits, names and bytes from the server. A tree that was put as it is is served, too. Then the client
writes: repos, folders, commits with parents, datasets. Last it reads through a server that has nothing and fetches from the
first one: each file once, and again when the first one is gone. The Rust clients of tests/hub/rust, if RUST names their
program, read the same: below a path, from an address without one, through a second server, with and without a token.
Everything is run; what failed is told at the end, exit code 1."""

import json
import os
import pathlib
import random
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "clients"), str(HERE.parent / "support")]
from checks import Suite, main  # noqa: E402
from hub import Hub  # noqa: E402

READS = ["version", "whoami", "model", "dataset", "plain", "names", "one", "system", "frames", "tensors", "config", "tokenizer", "load"]
WRITES = ["upload", "commits", "command", "names"]
RUST = ["0.5.0", "1.0.0"]
RUST_READS = ["model", "dataset", "plain", "commit", "version", "one", "absent"]


class Clients(Suite):
    def __init__(self, command, venvs, generations, room):
        super().__init__(command, room)
        self.venvs, self.generations = venvs, generations
        self.rust_program = os.environ.get("RUST") and os.path.abspath(os.environ["RUST"])
        self.hub = Hub()

    def job(self, what, generation, steps, home, endpoint, token, **more):
        home.mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(home), "HF_HOME": str(home), "HF_ENDPOINT": endpoint, "HF_TOKEN": token,
            "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "USER": "tester", "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1", "CLIENT_VERSION": generation, "SOURCE": str(self.room / "source"), **more,
        }
        python = self.venvs / ("hub-" + generation) / "bin" / "python"
        self.results(what, [str(python), str(HERE / "steps.py"), *steps], environment, home)

    def results(self, what, words, environment, home):
        done = subprocess.run(words, env=environment, cwd=home, capture_output=True, text=True, timeout=900)
        try:
            results = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return self.expect(what, False, done.stdout + done.stderr)
        for step, result in results.items():
            self.expect("%s: %s" % (what, step), result == "ok", result)

    def prepare(self, python):
        source = self.room / "source"
        source.mkdir()
        subprocess.run([str(python), str(HERE.parent / "clients" / "content.py"), str(source)], check=True)
        bytes_of = random.Random(5).randbytes
        for name, data in [
            ("plain/README.md", b"# plain\n"), ("plain/a b+c/d.txt", b"text\n" * 300), ("plain/empty", b""),
            ("plain/large.bin", bytes_of(3_000_000)), ("plain/zeros", bytes(700)),
            ("upload/README.md", b"---\nlicense: mit\n---\n# ours\n"), ("upload/gone.txt", b"goes"), ("upload/a b/c+d.txt", b"deep\n"),
            ("upload/large.bin", bytes_of(12_000_000)), ("upload/empty.txt", b""), ("upload/text.json", b"{}\n" * 4000),
        ]:
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for kind, name, place in [("models", "org/tiny-model", "model"), ("datasets", "org/tiny-set", "dataset")]:
            files = {str(path.relative_to(source / place)): path.read_bytes() for path in (source / place).rglob("*") if path.is_file()}
            self.commit = getattr(self, "commit", None) or self.hub.add(kind, name, files).branches["main"]
            self.hub.add(kind, name, files)

    def seed(self, generation):
        """A cache as this client makes it from a hub, in the store."""
        home = self.room / generation / "seed"
        commit = {"MODEL_COMMIT": self.commit}
        self.job("from a hub", generation, ["version", "model", "dataset"], home, self.hub.endpoint, "", **commit)
        self.store("put", home, "project/hub-%s/saved" % generation, "--profile", "hf")
        self.store("put", self.room / "source" / "plain", "project/hub-%s/plain/files" % generation)

    def use(self, generation, address, token):
        print(generation, flush=True)
        is_old = generation.startswith("0.")
        # The 0.x line reads below a path, and writes to an endpoint without one.
        below = "%s/project/hub-%s" % (address, generation)
        home = self.room / generation / "home"
        commit = {"MODEL_COMMIT": self.commit}
        verify = [] if is_old else ["verify", "verify_damaged"]
        self.job("read", generation, [*READS, *verify], home, below, token, **commit)
        alone = self.room / generation / "alone"
        self.take_log()
        self.job("read once", generation, ["model"], alone, below, token, **commit)
        self.take_log()
        self.job("read again", generation, ["again"], alone, below, token, **commit)
        again = [(line["method"], line["path"]) for line in self.take_log()]
        self.expect("read again: one request", len(again) == 1 and "/resolve/" not in again[0][1], again)
        # What push_to_hub sends it sends as large files, which newer clients send by Xet unless that is off.
        writes = [*WRITES, "push"] if is_old else [*WRITES, "large_folder"]
        writer = self.room / generation / "writer"
        self.job("write", generation, writes, writer, address if is_old else below, token)
        if not is_old:
            plain = {"HF_HUB_DISABLE_XET": "1"}
            self.store("rm", "project/hub-%s/models/org/own-model" % generation, "--yes")
            self.job("write without Xet", generation, ["upload", "commits", "push"], self.room / generation / "no-xet", below, token, **plain)

    def take_log(self):
        lines = self.log.read_text().splitlines()
        taken, self.told = lines[self.told:], len(lines)
        return [json.loads(line) for line in taken]

    def serve(self, generations):
        self.log, self.told = self.room / "log", 0
        root = [word for name in generations if name.startswith("0.") for word in ("--root", "project/hub-" + name)]
        words = [self.command, "serve", "--listen", "127.0.0.1:0", "--access-log", str(self.log), "--json", *root]
        server = subprocess.Popen(words, env=self.environment(), stdout=subprocess.PIPE, text=True)
        return server, json.loads(server.stdout.readline())["url"]

    def start(self, home, store, log, *more):
        """A server of its own home, that is without tokens: everybody on this host is let in."""
        environment = {**self.environment(), "HOME": str(self.room / home), "STORE_URL": str(self.room / store)}
        if not (self.room / store).exists():
            subprocess.run([self.command, "init"], env=environment, check=True, capture_output=True)
        words = [self.command, "serve", "--listen", "127.0.0.1:0", "--access-log", str(self.room / log), "--json", *more]
        server = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        return server, json.loads(server.stdout.readline())["url"]

    def through(self, generation):
        """Reads through a server that has nothing, from one that has all, and then without that one."""
        print(generation + " through a second server", flush=True)
        is_old = generation.startswith("0.")
        steps = [*READS, *([] if is_old else ["verify"])]
        commit = {"MODEL_COMMIT": self.commit}
        name = "through-" + generation
        origin, address = self.start("origin", "store", name + "-origin.log")
        try:
            upstream = "%s/project/hub-%s" % (address, generation)
            server, address = self.start(name, name + "-store", name + ".log", "--upstream", upstream)
            below = address + "/project/" + name
            try:
                for home in ["first", "second"]:
                    self.job("through, " + home, generation, steps, self.room / generation / (name + home), below, "hf_dummy", **commit)
            finally:
                server.terminate()
                server.wait()
            self.expect("the server between ends well", server.returncode == 0, server.returncode)
        finally:
            origin.terminate()
            origin.wait()
        lines = [json.loads(line) for line in (self.room / (name + "-origin.log")).read_text().splitlines()]
        files = [line["path"] for line in lines if "/resolve/" in line["path"]]
        self.expect("the first server was asked for each file once", files and len(files) == len(set(files)), sorted(files))
        server, address = self.start(name, name + "-store", name + ".log", "--upstream", upstream, "--offline")
        try:
            self.job("without the first server", generation, steps, self.room / generation / (name + "third"), address + "/project/" + name, "hf_dummy", **commit)
        finally:
            server.terminate()
            server.wait()
        lines = (self.room / (name + ".log")).read_text()
        self.expect("no answer between is a failure", '"status":5' not in lines, [line for line in lines.splitlines() if '"status":5' in line][:5])
        done = subprocess.run([self.command, "--store", str(self.room / (name + "-store")), "verify", "--read-data"], env=self.environment(), capture_output=True, text=True)
        self.expect("the store between is whole", done.returncode == 0, done.stderr)

    def rust(self, client, generation, address, token):
        """What the Rust crate reads of what a Python client has saved; `address` wants a token, the servers started here none."""
        print("the Rust crate hf-hub " + client, flush=True)
        namespace = "/project/hub-" + generation
        home = self.room / ("rust-" + client)

        def job(what, steps, endpoint, token=""):
            place = home / what.replace(" ", "-").replace(",", "")
            place.mkdir(parents=True)
            environment = {
                "PATH": os.environ["PATH"], "HOME": str(place), "HF_HOME": str(place), "HF_ENDPOINT": endpoint,
                "SOURCE": str(self.room / "source"), "MODEL_COMMIT": self.commit, **({"HF_TOKEN": token} if token else {}),
            }
            self.results("rust " + client + " " + what, [self.rust_program, client, *steps], environment, place)

        job("below a path", RUST_READS, address + namespace, token)
        job("without a token", ["refused"], address + namespace)
        job("with a wrong token", ["refused"], address + namespace, "hf_wrong")
        job("of another namespace", ["refused"], address + "/project/none", token)
        name = "rust-" + client
        server, open_address = self.start("origin", "store", name + ".log", "--root", namespace[1:])
        try:
            job("without a path", RUST_READS, open_address)
        finally:
            server.terminate()
            server.wait()
        # What the upstream shows only to who has a token is for those alone, also once it is here.
        server, between = self.start(name + "-gated", name + "-store", name + "-gated.log", "--upstream", address + namespace)
        try:
            for what in ["through, first", "through, second"]:
                job(what, RUST_READS, between + "/project/own", token)
            job("through, without a token", ["refused"], between + "/project/own")
            job("through, with a wrong token", ["refused"], between + "/project/own", "hf_wrong")
        finally:
            server.terminate()
            server.wait()
        for log in [name + ".log", name + "-gated.log"]:
            lines = [line for line in (self.room / log).read_text().splitlines() if '"status":5' in line]
            self.expect("rust %s: no answer in %s is a failure" % (client, log), not lines, lines[:5])

    def run(self):
        generations = self.generations
        self.prepare(self.venvs / ("hub-" + generations[-1]) / "bin" / "python")
        self.store("init")
        token = self.store("token", "add", "tester", "--role", "write")["token"]
        for generation in generations:
            self.seed(generation)
        server, address = self.serve(generations)
        try:
            for generation in generations:
                self.use(generation, address, token)
            for client in RUST if self.rust_program else []:
                self.rust(client, generations[-1], address, token)
            peak = [line for line in open("/proc/%d/status" % server.pid) if line.startswith("VmHWM")]
            print("        server: " + " ".join(peak[0].split()))
        finally:
            server.terminate()
            server.wait()
        self.expect("the server ends well", server.returncode == 0, server.returncode)
        answers = [line for line in self.take_log() if line["status"] >= 500]
        all_lines = self.log.read_text()
        self.expect("no answer is a failure of the server", not answers and '"status":5' not in all_lines, answers[:5])
        self.expect("no token is in the log", token not in all_lines)
        for generation in generations:
            self.through(generation)
        self.store("verify", "--read-data")
        self.expect("the store is whole", True)


if __name__ == "__main__":
    command, venvs = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    found = sorted((path.name.removeprefix("hub-") for path in venvs.glob("hub-*")), key=lambda name: [int(part) for part in name.split(".")])
    main("hub", lambda room: Clients(command, venvs, sys.argv[3:] or found, room))
