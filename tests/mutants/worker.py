"""Runs one test at a time with one slip, in namespaces of its own: a slip may well remove what it should not.

Only /tmp, /var/tmp, /run and /mnt can be written here, and the first two are directories of the worker. Reads jobs and
writes what came of them, a line of JSON each. The switch of all processes of this mount namespace is the file CONTROL:
the number of the slip, whether to remember which switches were asked, and a byte for each that was.
"""

import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time

CONTROL = pathlib.Path("/mnt/slips/control")
SWITCHES = 16384


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def shut_in(scratch):
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "none", "/mnt")
    for place, at in (("var", "/var/tmp"), ("tmp", "/tmp")):
        (scratch / place).mkdir(parents=True, exist_ok=True)
        (scratch / place).chmod(0o1777)
        mount("--bind", str(scratch / place), at)
    mount("-t", "tmpfs", "none", "/run")
    mount("-o", "remount,bind,ro", "/")
    CONTROL.parent.mkdir(mode=0o755)
    CONTROL.write_bytes(bytes(8 + SWITCHES))
    CONTROL.chmod(0o666)
    # A slip that takes all memory is ended before anything else is.
    pathlib.Path("/proc/self/oom_score_adj").write_text("900")


def environment(test):
    kept = {name: told for name, told in os.environ.items() if not name.startswith(("CARGO", "RUST"))}
    pathlib.Path("/tmp/home").mkdir(exist_ok=True)
    return {**kept, "HOME": "/tmp/home", "TMPDIR": "/tmp", "CARGO_MANIFEST_DIR": test["package"]}


def run(test, slip, remember, limit):
    """What the test ended with (None: it hung), its seconds, and the switches that it asked."""
    CONTROL.write_bytes(struct.pack("<II", slip, remember) + bytes(SWITCHES))
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    words = [test["binary"], "--exact", test["name"], "--nocapture"]
    began = time.monotonic()
    running = subprocess.Popen(words, cwd=test["package"], env=environment(test), start_new_session=True, **quiet)
    try:
        code = running.wait(limit)
    except subprocess.TimeoutExpired:
        code = None
    took = time.monotonic() - began
    clear(running)
    asked = CONTROL.read_bytes()[8:] if remember else b""
    return {"code": code, "took": took, "asked": [number for number, is_set in enumerate(asked) if is_set]}


def clear(running):
    """Ends what a test left running, and removes what it left mounted or lying about."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) not in (1, os.getpid()):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
    running.wait()
    # This is the first process here, whose children all orphans become.
    try:
        while os.waitpid(-1, 0):
            pass
    except ChildProcessError:
        pass
    for line in reversed(pathlib.Path("/proc/mounts").read_text().splitlines()):
        if line.split()[1].startswith(("/tmp/", "/var/tmp/")):
            subprocess.run(["umount", "--lazy", line.split()[1]], stderr=subprocess.DEVNULL)
    left = [os.path.join(top, name) for top in ("/tmp", "/var/tmp") for name in os.listdir(top)]
    subprocess.run(["rm", "-rf", "--one-file-system", "--", *left], stderr=subprocess.DEVNULL)


def main():
    shut_in(pathlib.Path(sys.argv[1]))
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(run(job["test"], job["slip"], job["remember"], job["limit"])), flush=True)


main()
