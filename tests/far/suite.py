"""suite.py STORE S5CMD WORK RUNS DELAY_MS: see run.sh. Fails where a get brings other bytes."""

import filecmp
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import time

from link import THERE, Link

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVERS = [ROOT / "target/servers/moto/bin/python", "-B", ROOT / "tests/servers/servers.py"]
READY_SECONDS_MAX = 120
BUCKET, REF = "tests", "project/far/tree"
# What store has on their way at once with its 128 MiB of memory: parts of 8 MiB, and reads of as much.
CONNECTIONS = {"put": 8, "get": 16}
MEGABYTE = 1_000_000
LARGE = [400, 250, 150, 100, 100]
SMALL, SMALL_BYTES = 2000, 50_000
# What is read through `store serve`: the largest file.
READ = "0.bin"
AIM = 0.9


def corpora(work):
    """Two trees of noise from a seed."""
    source = random.Random(20261123)
    large, small = work / "large", work / "small"
    large.mkdir()
    for number, megabytes in enumerate(LARGE):
        with open(large / ("%d.bin" % number), "wb") as file:
            for _ in range(megabytes):
                file.write(source.randbytes(MEGABYTE))
    for number in range(SMALL):
        path = small / ("%02d/%04d.bin" % (number % 20, number))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source.randbytes(SMALL_BYTES))
    return {"1 GB in 5 files": large, "100 MB in 2,000 files": small}


def processor_secs():
    """What children that have ended took of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Server:
    """Ceph on the other side of the link, empty."""

    def __init__(self, work, link):
        told = work / "server"
        told.unlink(missing_ok=True)
        # Ends with this process, however that ends, and the server after it.
        self.ends = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        words = [*link.enter, *SERVERS, "keep", str(self.ends.pid), told, "ceph"]
        self.process = subprocess.Popen([str(word) for word in words], env={**os.environ, "STORE_TESTS_ADDRESS": THERE})
        until = time.monotonic() + READY_SECONDS_MAX
        while not told.exists():
            if self.process.poll() is not None or time.monotonic() > until:
                self.end()
                sys.exit("far: the server did not start")
            time.sleep(0.1)
        endpoint, self.key, self.secret, self.region = told.read_text().strip().split("=", 1)[1].split(" ")
        self.endpoint = endpoint.replace("127.0.0.1", THERE)

    def end(self):
        self.ends.stdin.close()
        self.ends.wait()
        self.process.wait()


class Round:
    """All tools once with one tree and an empty bucket."""

    def __init__(self, bench, tree, server):
        self.bench, self.tree, self.server = bench, tree, server
        self.work, self.fresh = bench.work, 0

    def at_once(self, verb):
        """How many files a peer moves at once, with how many parts each."""
        return (4, CONNECTIONS[verb] // 4) if self.tree.name == "large" else (CONNECTIONS[verb], 1)

    def environment(self):
        """With a home of its own: no command finds a cache of another."""
        self.fresh += 1
        home = self.work / ("home-%d" % self.fresh)
        home.mkdir()
        return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "AWS_REGION": self.server.region,
                "AWS_ACCESS_KEY_ID": self.server.key, "AWS_SECRET_ACCESS_KEY": self.server.secret,
                "AWS_ENDPOINT_URL": self.server.endpoint}

    def run(self, *words):
        done = subprocess.run([str(word) for word in words], env=self.environment(), cwd=self.work,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit("far: %s: exit code %d\n%s" % (" ".join(map(str, words)), done.returncode, done.stdout))

    def timed(self, verb, tool, *words):
        subprocess.run(["sh", "-ec", 'find "$1" -type f -exec cat {} + >/dev/null', "sh", self.tree], check=True)
        os.sync()
        # What the kernel has learned of the way belongs to no tool.
        for enter in ([], self.bench.link.enter):
            subprocess.run([*enter, "ip", "tcp_metrics", "flush", "all"], check=True, stdout=subprocess.DEVNULL)
        self.bench.link.take()
        began, used = time.monotonic(), processor_secs()
        self.run(*words)
        took, used = time.monotonic() - began, processor_secs() - used
        told = self.bench.link.take()
        row = (took, used, (told["up"] + told["down"]) / MEGABYTE, told["requests"], told["at_once"])
        self.bench.add(self.tree, verb, tool, row)

    def store(self, verb, *words):
        self.timed(verb, "store", self.bench.store, "-q", *words)

    def got(self, out):
        """Compares what a get brought, and takes it away."""
        if subprocess.run(["diff", "-r", "-q", self.tree, out]).returncode != 0:
            sys.exit("far: other bytes came back than were put")
        shutil.rmtree(out)

    def put_store(self):
        url = "s3://%s/put" % BUCKET
        self.run(self.bench.store, "-q", "--store", url, "init")
        self.store("put", "--store", url, "put", self.tree, REF)

    def get_store(self):
        self.store("get", "--store", "s3://%s/put" % BUCKET, "get", REF, self.work / "out")
        self.got(self.work / "out")

    def push_store(self):
        url, local = "s3://%s/push" % BUCKET, self.work / "local"
        self.run(self.bench.store, "-q", "--store", local, "init")
        self.run(self.bench.store, "-q", "--store", local, "put", self.tree, REF)
        self.run(self.bench.store, "-q", "--store", url, "init")
        self.store("push", "--store", local, "push", REF, url)
        shutil.rmtree(local)
        self.run(self.bench.store, "-q", "--store", url, "get", REF, self.work / "out")
        self.got(self.work / "out")

    def rclone(self, verb, *words):
        files, parts = self.at_once(verb)
        options = ["--transfers", files, "--checkers", CONNECTIONS[verb], "--s3-no-check-bucket"]
        options += ["--s3-upload-concurrency", parts, "--s3-chunk-size", "8M", "--s3-upload-cutoff", "8M"]
        options += ["--multi-thread-streams", parts, "--multi-thread-cutoff", "32M"]
        self.timed(verb, "rclone", "rclone", "copy", *options, *words)

    def remote(self):
        return ":s3,provider=Ceph,env_auth=true,endpoint='%s':%s/rclone" % (self.server.endpoint, BUCKET)

    def put_rclone(self):
        self.rclone("put", self.tree, self.remote())

    def get_rclone(self):
        self.rclone("get", self.remote(), self.work / "out")
        self.got(self.work / "out")

    def s5cmd(self, verb, *words):
        files, parts = self.at_once(verb)
        options = ["--log", "error", "--endpoint-url", self.server.endpoint, "--numworkers", files]
        options += ["cp", "--concurrency", parts, "--part-size", "8"]
        self.timed(verb, "s5cmd", self.bench.s5cmd, *options, *words)

    def put_s5cmd(self):
        self.s5cmd("put", "%s/" % self.tree, "s3://%s/s5cmd/" % BUCKET)

    def get_s5cmd(self):
        self.s5cmd("get", "s3://%s/s5cmd/*" % BUCKET, "%s/" % (self.work / "out"))
        self.got(self.work / "out")

    def curl(self, tool, *words):
        out = self.work / "read"
        self.timed("read", tool, "curl", "--silent", "--show-error", "--fail", "--output", out, *words)
        if not filecmp.cmp(self.tree / READ, out, shallow=False):
            sys.exit("far: %s: other bytes came back than were put" % tool)
        out.unlink()

    def read_plain(self):
        """One request for an object that is stored as it is."""
        words = [self.bench.s5cmd, "--endpoint-url", self.server.endpoint, "presign", "s3://%s/s5cmd/%s" % (BUCKET, READ)]
        url = subprocess.run(words, env=self.environment(), check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        self.curl("plain GET", url)

    def read_store(self):
        """One request to each door of a server that has nothing of it on its host."""
        for tool, field, path in [("store (S3)", "s3_url", "project.far/tree"), ("store (Hub)", "url", "project/far/far/tree/resolve/main")]:
            words = [self.bench.store, "--store", "s3://%s/put" % BUCKET, "serve", "--listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0", "--json"]
            server = subprocess.Popen(words, env=self.environment(), cwd=self.work, stdout=subprocess.PIPE, text=True)
            try:
                self.curl(tool, "%s/%s/%s" % (json.loads(server.stdout.readline())[field], path, READ))
            finally:
                server.terminate()
                server.wait()

    def all(self):
        puts = [self.put_store, self.push_store, self.put_rclone, self.put_s5cmd]
        gets = [self.get_store, self.get_rclone, self.get_s5cmd]
        reads = [self.read_store, self.read_plain] if self.tree.name == "large" else []
        # Who begins changes from run to run.
        for verbs in filter(None, (puts, gets, reads)):
            at = self.bench.runs_begun % len(verbs)
            for verb in verbs[at:] + verbs[:at]:
                verb()
        for home in self.work.glob("home-*"):
            shutil.rmtree(home)


class Bench:
    def __init__(self, store, s5cmd, work, delay):
        self.store, self.s5cmd, self.work = os.path.abspath(store), os.path.abspath(s5cmd), work
        self.figures, self.runs_begun = {}, 0
        self.link = Link(delay)

    def add(self, tree, verb, tool, row):
        self.figures.setdefault((tree, verb, tool), []).append(row)
        line = "far: %s, %s, %s: %.2f s, %.2f s of processors, %.0f MB, %d requests, %d connections at once, load %.1f"
        print(line % (tree.name, verb, tool, *row, os.getloadavg()[0]), file=sys.stderr)

    def run(self, tree):
        server = Server(self.work, self.link)
        try:
            Round(self, tree, server).all()
        finally:
            server.end()
        self.runs_begun += 1

    def table(self, trees):
        heads = ["", "", "", "seconds", "MB/s", "of the best peer", "of processors", "sent and received", "requests",
                 "connections at once"]
        lines = ["| %s |" % " | ".join(heads), "|---|---|---" + "|--:" * (len(heads) - 3) + "|"]
        behind = []
        for title, tree in trees.items():
            middle = {key[1:]: [statistics.median(column) for column in zip(*rows)]
                      for key, rows in self.figures.items() if key[0] == tree}
            for verb in dict.fromkeys(verb for verb, _ in middle):
                size = sum(path.stat().st_size for path in tree.rglob(READ if verb == "read" else "*") if path.is_file())
                # A push is measured by what moves plain objects, too.
                peers = {tool: row for (other, tool), row in middle.items()
                         if not tool.startswith("store") and other == ("put" if verb == "push" else verb)}
                best = min(row[0] for row in peers.values())
                own = {tool: row for (other, tool), row in middle.items() if other == verb and tool.startswith("store")}
                for tool, (seconds, used, moved, requests, at_once) in {**own, **({} if verb == "push" else peers)}.items():
                    cells = (size / MEGABYTE / seconds, best / seconds, used, moved, requests, at_once)
                    row = (title, verb, tool, seconds, *cells)
                    lines.append("| %s | %s | %s | %.2f | %.0f | %.2f | %.2f s | %.0f MB | %d | %d |" % row)
                if any(best / row[0] < AIM for row in own.values()):
                    behind.append("%s of %s" % (verb, title))
        lines.append("\nThe aim is %.1f of the best peer. Behind it: %s." % (AIM, ", ".join(behind) or "nothing"))
        return "\n".join(lines)


def come_first():
    """Groups of sessions are scheduled by turns whatever their niceness says; this one comes first."""
    try:
        pathlib.Path("/proc/self/autogroup").write_text("-15")
    except OSError as error:
        print("far: not before other sessions: %s" % error, file=sys.stderr)


def main():
    come_first()
    store, s5cmd, work, runs, delay = sys.argv[1:]
    work = pathlib.Path(work)
    trees = corpora(work)
    bench = Bench(store, s5cmd, work, delay)
    try:
        for _ in range(int(runs)):
            for tree in trees.values():
                bench.run(tree)
    finally:
        bench.link.end()
    print(bench.table(trees))


if __name__ == "__main__":
    main()
