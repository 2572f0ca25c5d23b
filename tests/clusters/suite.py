"""suite.py STORE SERVER [DIR]: see run.sh. One run, one line of the table for each tool and delay."""

import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

from forward import Forwarder

BUCKET = "tests"
DELAYS = (0, 0.03)
NEW_OF = 20


def corpus(place):
    random.seed(20260103)
    place.mkdir()
    for number in range(200):
        (place / ("%03d.bin" % number)).write_bytes(random.randbytes(1_000_000))


def edit(place):
    """The second version: in every file that is the first of so many, all bytes are new."""
    random.seed(20260104)
    files = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    for path in files[::NEW_OF]:
        path.write_bytes(random.randbytes(path.stat().st_size))


class Bench:
    def __init__(self, store, server, room, delay):
        self.store, self.room, self.delay = store, room, delay
        self.endpoint, self.key, self.secret, self.region = os.environ["STORE_TESTS_%s" % server.upper()].split(" ")
        url = urllib.parse.urlsplit(self.endpoint)
        self.bucket = Forwarder(url.hostname, url.port, delay)
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(room), "LANG": "C.UTF-8", "RESTIC_PASSWORD": "clusters",
            "RESTIC_PASSWORD2": "clusters", "AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": self.region, "AWS_DEFAULT_REGION": self.region,
            "AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % self.bucket.port,
        }

    def run(self, *words, **more):
        done = subprocess.run([str(word) for word in words], env={**self.environment, **more}, cwd=self.room,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            sys.exit("%s: %d\n%s" % (" ".join(map(str, words)), done.returncode, done.stdout))

    def timed(self, forwarder, *words, **more):
        forwarder.take()
        begin = time.monotonic()
        self.run(*words, **more)
        seconds = time.monotonic() - begin
        return (seconds, *forwarder.take())

    def prefix(self, tool):
        return "%s-%d" % (tool, self.delay * 1000)


def store(bench):
    url = "s3://%s/%s" % (BUCKET, bench.prefix("store"))
    bench.run(bench.store, "--store", "store", "init")

    def bring(tree):
        bench.run(bench.store, "--store", "store", "put", tree, "project/clusters/tree")
        return bench.timed(bench.bucket, bench.store, "--store", "store", "push", "project/clusters/tree", url)

    bench.run(bench.store, "--store", url, "init")
    return bring


def rclone(bench):
    remote = ":s3,provider=Other,env_auth=true,endpoint='%s':%s/%s" % (
        bench.environment["AWS_ENDPOINT_URL"], BUCKET, bench.prefix("rclone"))
    return lambda tree: bench.timed(bench.bucket, "rclone", "copy", tree, remote)


def restic(bench):
    endpoint = bench.environment["AWS_ENDPOINT_URL"]
    there = "s3:%s/%s/%s" % (endpoint, BUCKET, bench.prefix("restic"))
    bench.run("restic", "-q", "-r", "restic", "init")
    bench.run("restic", "-q", "-r", there, "init", "--repo2", "restic", "--copy-chunker-params")

    def bring(tree):
        bench.run("restic", "-q", "-r", "restic", "backup", tree)
        return bench.timed(bench.bucket, "restic", "-q", "-r", "restic", "copy", "--repo2", there)

    return bring


def rsync(bench):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    there = bench.room / "rsync"
    there.mkdir()
    config = bench.room / "rsyncd.conf"
    config.write_text("use chroot = no\n[m]\npath = %s\nread only = no\nuid = %d\ngid = %d\n" % (
        there, os.getuid(), os.getgid()))
    daemon = subprocess.Popen(["rsync", "--daemon", "--no-detach", "--address=127.0.0.1", "--port=%d" % port,
                               "--config=%s" % config], stdin=subprocess.DEVNULL)
    forwarder = Forwarder("127.0.0.1", port, bench.delay)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.05)

    def bring(tree):
        seconds, count, _ = bench.timed(forwarder, "rsync", "-a", "%s/" % tree, "rsync://127.0.0.1:%d/m/" % forwarder.port)
        return seconds, count, None

    bring.end = lambda: (daemon.terminate(), daemon.wait())
    return bring


def cell(measured):
    seconds, count, requests = measured
    asked = "" if requests is None else ", %d requests" % requests
    return "%.1f s, %.1f MB%s" % (seconds, count / 1e6, asked)


def main():
    program, server = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[2]
    print("| delay to %s | tool | first copy | second version | nothing new |\n|---|---|---|---|---|" % server, flush=True)
    for delay in DELAYS:
        for tool in (store, rclone, restic, rsync):
            room = pathlib.Path(tempfile.mkdtemp(prefix="store-clusters.", dir=os.environ.get("TMPDIR", "/var/tmp")))
            try:
                tree = room / "tree"
                if len(sys.argv) > 3:
                    shutil.copytree(sys.argv[3], tree, symlinks=True)
                else:
                    corpus(tree)
                bring = tool(Bench(program, server, room, delay))
                first = bring(tree)
                edit(tree)
                cells = [cell(first), cell(bring(tree)), cell(bring(tree))]
                getattr(bring, "end", lambda: None)()
                print("| %d ms | %s | %s |" % (delay * 1000, tool.__name__, " | ".join(cells)), flush=True)
            finally:
                shutil.rmtree(room)


main()
