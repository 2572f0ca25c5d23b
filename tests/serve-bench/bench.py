"""How quickly `store serve` sends: bench.py STORE MEGABYTES. Prints a table in Markdown.

All servers send the same bytes, warm, on loopback; the clients are processes of their own, so that no server is measured
by the client's core. Each line is the median of runs that take turns. nginx sends by sendfile from the pool file. Olah, a
mirror for a Hub, has fetched all from our own Hub door and sends from its cache. Slow servers are asked for fewer of the
small files, so that a run ends in minutes.

A large file is asked for twice in each turn. Our doors hash it for the first client, since the last turn was more than ten
seconds ago, and not for the second one.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

RUNS = 5
SMALL = int(os.environ.get("SERVE_BENCH_SMALL", 10_000))
# How many of them slow servers are asked for. Olah asks its upstream about every file that it sends: some 5 a second.
SMALL_OF = {"http.server": 500, "Olah": 50}
CONNECTIONS = 32
IDLE = 1_000
FIRSTS = 200


def ask(stream, path, headers=""):
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\r\n".encode())


def head(stream):
    """The length that an answer says, and what came of its body with the head."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = stream.recv(65536)
        assert more, got
        got += more
    top, rest = got.split(b"\r\n\r\n", 1)
    lines = top.decode("latin-1").split("\r\n")
    assert lines[0].split(" ")[1] == "200", lines
    length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:"))
    return length, len(rest)


def take(stream, length, room):
    while length > 0:
        got = stream.recv_into(room, min(len(room), length))
        assert got, "broken off"
        length -= got


def connect(port):
    stream = socket.create_connection(("127.0.0.1", port))
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def large(port, path):
    """Bytes a second of one file."""
    room = bytearray(1 << 20)
    with connect(port) as stream:
        began = time.perf_counter()
        ask(stream, path)
        length, got = head(stream)
        take(stream, length - got, room)
        return length / (time.perf_counter() - began)


def first(port, path):
    """Seconds to the first byte on a connection that is open; None from a server that ignores ranges and sends all."""
    times = []
    with connect(port) as stream:
        for _ in range(FIRSTS):
            began = time.perf_counter()
            ask(stream, path, "Range: bytes=0-0\r\n")
            start = stream.recv(1)
            times.append(time.perf_counter() - began)
            if b" 206 " not in (start + stream.recv(65536)).split(b"\r\n")[0]:
                return None
            time.sleep(0.001)
    return median(times)


def some(job):
    """Some of the small files over connections that all have one on its way."""
    port, paths, connections = job
    room = bytearray(1 << 16)
    rest = iter(paths)
    streams = [connect(port) for _ in range(connections)]
    waiting = []
    for stream in streams:
        if path := next(rest, None):
            ask(stream, path)
            waiting.append(stream)
    for stream in waiting:
        length, got = head(stream)
        take(stream, length - got, room)
        if path := next(rest, None):
            ask(stream, path)
            waiting.append(stream)
    for stream in streams:
        stream.close()
    return len(paths)


def small(pool, port, form, count):
    """Files a second over many connections, half of them of each of two processes."""
    paths = [form.format(number) for number in range(count)]
    jobs = [(port, paths[at::2], CONNECTIONS // 2) for at in range(2)]
    began = time.perf_counter()
    assert sum(pool.map(some, jobs)) == count
    return count / (time.perf_counter() - began)


def resident(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024


def resident_at(pid, port, path):
    """Bytes of the process while many connections wait for more of a file than they take."""
    streams = []
    for _ in range(IDLE):
        stream = socket.socket()
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.connect(("127.0.0.1", port))
        ask(stream, path)
        streams.append(stream)
    time.sleep(3)
    found = resident(pid)
    for stream in streams:
        stream.close()
    return found


def wait_for(port):
    until = time.monotonic() + 20
    while True:
        try:
            return connect(port).close()
        except OSError:
            assert time.monotonic() < until, f"nothing listens on {port}"
            time.sleep(0.05)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class World:
    def __init__(self, program, megabytes):
        self.dir = Path(tempfile.mkdtemp(prefix="serve-bench.", dir=os.environ.get("SERVE_BENCH_DIR")))
        self.env = {"HOME": str(self.dir / "home"), "PATH": os.environ["PATH"], "STORE_URL": str(self.dir / "store")}
        self.program = program
        self.started = []
        tree = self.dir / "tree"
        (tree / "small").mkdir(parents=True)
        with open(tree / "large.bin", "wb") as file:
            for _ in range(megabytes):
                file.write(os.urandom(1_000_000))
        for number in range(SMALL):
            (tree / f"small/{number:05}").write_bytes(os.urandom(2000))
        self.run("init", self.dir / "store")
        self.run("put", tree, "project/bench/data")
        # What jobs on this host link to.
        self.run("materialize", "project/bench/data", self.dir / "job")

    def run(self, *words):
        subprocess.run([self.program, "--quiet", *map(str, words)], env=self.env, check=True, cwd=self.dir)

    def start(self, words, **more):
        process = subprocess.Popen([str(word) for word in words], **more)
        self.started.append(process)
        return process

    def store(self):
        words = [self.program, "serve", "--root", "project/bench", "--listen", "127.0.0.1:0", "--s3-listen", "127.0.0.1:0", "--json", "--access-log", self.dir / "log"]
        process = self.start(words, env=self.env, stdout=subprocess.PIPE, text=True)
        told = json.loads(process.stdout.readline())
        return process.pid, int(told["url"].rsplit(":", 1)[1]), int(told["s3_url"].rsplit(":", 1)[1])

    def nginx(self):
        port = free_port()
        config = self.dir / "nginx.conf"
        owner = "user root;" if os.getuid() == 0 else ""
        config.write_text(
            f"{owner} worker_processes auto; daemon off; pid {self.dir}/nginx.pid; error_log {self.dir}/nginx.log;"
            f"events {{ worker_connections 4096; }} http {{ access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 100000;"
            f" open_file_cache max=20000; client_body_temp_path {self.dir}/t1; proxy_temp_path {self.dir}/t2; fastcgi_temp_path {self.dir}/t3; uwsgi_temp_path {self.dir}/t4; scgi_temp_path {self.dir}/t5;"
            f" server {{ listen 127.0.0.1:{port}; root {self.dir}/job; }} }}"
        )
        process = self.start(["nginx", "-p", self.dir, "-c", config], stderr=subprocess.DEVNULL)
        wait_for(port)
        return process.pid, port

    def python(self):
        port = free_port()
        words = [sys.executable, "-c", "import http.server as h; h.SimpleHTTPRequestHandler.protocol_version='HTTP/1.1'; h.SimpleHTTPRequestHandler.disable_nagle_algorithm=True; h.SimpleHTTPRequestHandler.log_message=lambda *a: None;"
                 f"h.ThreadingHTTPServer(('127.0.0.1', {port}), h.SimpleHTTPRequestHandler).serve_forever()"]
        process = self.start(words, cwd=self.dir / "job", stderr=subprocess.DEVNULL)
        wait_for(port)
        return process.pid, port

    def olah(self, program, upstream):
        """One whose upstream is the Hub door at that port."""
        port = free_port()
        words = [os.path.abspath(program), "--host", "127.0.0.1", "--port", port, "--hf-scheme", "http", "--mirror-scheme", "http"]
        for which, at in (("hf", upstream), ("mirror", port)):
            words += [f"--{which}-netloc", f"127.0.0.1:{at}", f"--{which}-lfs-netloc", f"127.0.0.1:{at}"]
        words += ["--repos-path", self.dir / "olah", "--log-path", self.dir / "olah-log"]
        process = self.start(words, cwd=self.dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(port)
        return process.pid, port

    def end(self):
        # Who reads from another one goes first.
        for process in reversed(self.started):
            process.terminate()
            process.wait()
        shutil.rmtree(self.dir)


def main():
    world = World(os.path.abspath(sys.argv[1]), int(sys.argv[2]))
    try:
        measure(world)
    finally:
        world.end()


def measure(world):
    pid, hub, s3 = world.store()
    nginx_pid, nginx = world.nginx()
    python_pid, python = world.python()
    olah_pid, olah = world.olah(sys.argv[3], hub)
    repo = "/bench/data/resolve/main/"
    bucket = "/project.bench/data/"
    servers = {
        "Hub door": (pid, hub, repo),
        "S3 door": (pid, s3, bucket),
        "nginx": (nginx_pid, nginx, "/"),
        "http.server": (python_pid, python, "/"),
        "Olah": (olah_pid, olah, repo),
    }
    counts = {name: min(SMALL, SMALL_OF.get(name, SMALL)) for name in servers}
    rows = {name: {} for name in servers}
    with ProcessPoolExecutor(2) as pool:
        for name, (_, port, base) in servers.items():
            # Hashes, caches and pages are made now.
            large(port, base + "large.bin")
            small(pool, port, base + "small/{:05}", counts[name])
            print(f"{name} is warm", file=sys.stderr, flush=True)
        found = {name: {"large": [], "again": [], "first": [], "small": []} for name in servers}
        for _ in range(RUNS):
            for name, (_, port, base) in servers.items():
                for what in ("large", "again"):
                    found[name][what].append(pool.submit(large, port, base + "large.bin").result())
                found[name]["first"].append(pool.submit(first, port, base + "large.bin").result())
                found[name]["small"].append(small(pool, port, base + "small/{:05}", counts[name]))
    for name in servers:
        rows[name] = {what: None if None in values else median(values) for what, values in found[name].items()}
    for name, (own, port, base) in servers.items():
        rows[name]["memory"] = resident_at(own, port, base + "large.bin") if name != "nginx" else 0
    print("| | warm GET | of nginx | the next client | of nginx | first byte | small files | of nginx | memory, 1,000 slow clients |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    best = rows["nginx"]
    for name, row in rows.items():
        memory = f"{row['memory'] / 1e6:.0f} MB" if row["memory"] else ""
        waited = f"{row['first'] * 1000:.2f} ms" if row["first"] else ""
        print(
            f"| {name} | {row['large'] / 1e9:.2f} GB/s | {row['large'] / best['large']:.2f}"
            f" | {row['again'] / 1e9:.2f} GB/s | {row['again'] / best['again']:.2f} | {waited}"
            f" | {row['small']:,.0f}/s | {row['small'] / best['small']:.2f} | {memory} |"
        )


if __name__ == "__main__":
    main()
