"""What every server needs: a directory, free ports on loopback, child processes that die with this one, and patience."""

import ctypes
import os
import pathlib
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLED = ROOT / "target/servers"
BUCKET = "tests"
READY_SECONDS_MAX = 120
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """A server could not be started; the message says why."""


class Place:
    """Where one server lives. Everything in it is gone after `stop`, but for its logs."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.mkdir(parents=True)
        self.children = []

    def start(self, name, *words, **environment):
        """Starts a process in the foreground; it is killed when this process ends, however that ends."""
        log = open(self.path / (name + ".log"), "ab")
        libc = ctypes.CDLL(None)
        child = subprocess.Popen(
            [str(word) for word in words], cwd=self.path, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**os.environ, **environment}, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL))
        self.children.append((name, child))
        return child

    def run(self, *words, **environment):
        """Runs a command to its end, which must be a good one; returns its output."""
        done = subprocess.run([str(word) for word in words], cwd=self.path, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=READY_SECONDS_MAX, env={**os.environ, **environment})
        if done.returncode != 0:
            raise Failed("%s: exit code %d\n%s%s" % (" ".join(map(str, words)), done.returncode, done.stdout, done.stderr))
        return done.stdout

    def succeeds(self, *words):
        """Whether a command comes to a good end."""
        try:
            self.run(*words)
        except Failed:
            return False
        return True

    def until(self, what, holds):
        """Waits until `holds()` is true, while every process lives."""
        end = time.monotonic() + READY_SECONDS_MAX
        while not holds():
            for name, child in self.children:
                if child.poll() is not None:
                    raise Failed("%s: ended with code %d\n%s" % (name, child.returncode, self.told(name)))
            if time.monotonic() > end:
                names = "".join("--- %s\n%s" % (name, self.told(name)) for name, _ in self.children)
                raise Failed("%s: not within %d s\n%s" % (what, READY_SECONDS_MAX, names))
            time.sleep(0.05)

    def told(self, name):
        """The end of a process's log."""
        return (self.path / (name + ".log")).read_text(errors="replace")[-3000:]

    def kill(self, name):
        """Kills one process, as a power supply does; it may be started again."""
        for pair in [pair for pair in self.children if pair[0] == name]:
            pair[1].kill()
            pair[1].wait()
            self.children.remove(pair)

    def stop(self):
        for _, child in reversed(self.children):
            child.kill()
            child.wait()
        self.children = []


def free_port():
    """A port that nobody uses now; below those of outgoing connections, any of which could take it before it is used."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(1024, max(lowest, 10000))
        try:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
                return port
        except OSError:
            pass


def answers(endpoint):
    """Whether somebody speaks HTTP there, whatever the answer."""
    try:
        urllib.request.urlopen(endpoint, timeout=2).close()
        return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
