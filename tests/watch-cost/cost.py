"""What `store watch` costs a training: one that keeps every core busy and writes checkpoints, with and without it in turn.

A step of the training is the same work on each core, after which all wait for one another, as ranks do. A checkpoint is a
file of weights of which a part has changed since the last one. What is compared is the time of all steps and checkpoints;
the median of pairs is what counts. On a machine that others share that time is noise of whole per cents, so the kernel's own
count stands beside it: how long the threads of the training were ready and waited for a core.
"""

import hashlib
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

STEPS, STEPS_A_CHECKPOINT = 120, 40
STEP_BYTES = 256 << 20
CHECKPOINT_BYTES, CHANGED = 512 << 20, 0.1


def waited():
    """Seconds that the threads of this process were ready to run and had no core."""
    texts = [task.joinpath("schedstat").read_text() for task in pathlib.Path("/proc/self/task").iterdir()]
    return sum(int(text.split()[1]) for text in texts) / 1e9


def training(directory, weights):
    """Seconds of its steps, of its writing, and those that its threads waited for a core."""
    cores = os.cpu_count()
    block = bytes(16 << 20)
    barrier = threading.Barrier(cores + 1)
    ends = threading.Event()

    def rank():
        while True:
            barrier.wait()
            if ends.is_set():
                return
            digest = hashlib.blake2b()
            for _ in range(STEP_BYTES // len(block)):
                digest.update(block)
            barrier.wait()

    ranks = [threading.Thread(target=rank) for _ in range(cores)]
    for one in ranks:
        one.start()
    began, writing, waited_before = time.monotonic(), 0.0, waited()
    for step in range(1, STEPS + 1):
        barrier.wait()
        barrier.wait()
        if step % STEPS_A_CHECKPOINT == 0:
            before = time.monotonic()
            write(directory / f"checkpoint-{step}", weights, step)
            writing += time.monotonic() - before
    took = time.monotonic() - began
    waiting = waited() - waited_before
    ends.set()
    barrier.wait()
    for one in ranks:
        one.join()
    return took - writing, writing, waiting


def write(checkpoint, weights, step):
    changed = os.urandom(int(CHECKPOINT_BYTES * CHANGED))
    at = step * 1_000_003 % (CHECKPOINT_BYTES - len(changed))
    weights[at : at + len(changed)] = changed
    checkpoint.mkdir()
    with open(checkpoint / "weights.bin", "wb") as file:
        file.write(weights)
        os.fsync(file.fileno())
    (checkpoint / "trainer_state.json").write_text("{}")


def measured(binary, work, weights, with_watch):
    """Seconds of a training, and how many checkpoints were published by its end and by the end of the watch."""
    shutil.rmtree(work / "checkpoints", ignore_errors=True)
    (work / "checkpoints").mkdir()
    command = [binary, "--quiet", "--store", str(work / "store")]
    if not with_watch:
        return training(work / "checkpoints", weights), None
    subprocess.run([*command, "init"], check=True, stdout=subprocess.DEVNULL)
    words = ["watch", str(work / "checkpoints"), "project/cost/checkpoints", "--every", "1s"]
    # In a session of its own, as a service or a container has it.
    watch = subprocess.Popen([*command, *words], start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        took = training(work / "checkpoints", weights)
    finally:
        watch.send_signal(signal.SIGTERM)
        code = watch.wait()
    if code != 0:
        sys.exit(f"store watch ended with {code}")
    history = subprocess.run(
        [*command, "--json", "history", "project/cost/checkpoints"], check=True, capture_output=True, text=True
    )
    versions = len(history.stdout.splitlines())
    if versions != STEPS // STEPS_A_CHECKPOINT:
        sys.exit(f"{versions} checkpoints were published, {STEPS // STEPS_A_CHECKPOINT} were written")
    shutil.rmtree(work / "store")
    return took, versions


def main():
    binary, runs = str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[2])
    work = pathlib.Path(tempfile.mkdtemp(prefix="store-watch-cost.", dir=os.environ.get("TMPDIR", "/var/tmp")))
    os.environ.update(HOME=str(work), XDG_CACHE_HOME=str(work / "cache"), XDG_CONFIG_HOME=str(work / "config"))
    weights = bytearray(os.urandom(CHECKPOINT_BYTES))
    try:
        print("| run | steps alone | steps with watch | cost | writing alone | writing with watch | waited for a core alone | with watch | cost |")
        print("|---|---|---|---|---|---|---|---|---|")
        costs, waits = [], []
        for run in range(1, runs + 1):
            turns = {}
            # Who begins changes from run to run.
            for with_watch in (False, True) if run % 2 else (True, False):
                turns[with_watch], _ = measured(binary, work, weights, with_watch)
            (alone, wrote, waiting), (beside, wrote_beside, waiting_beside) = turns[False], turns[True]
            costs.append(100 * ((beside + wrote_beside) / (alone + wrote) - 1))
            waits.append(100 * (waiting_beside - waiting) / (os.cpu_count() * (alone + wrote)))
            row = f"{alone:.2f} s | {beside:.2f} s | {costs[-1]:+.2f} % | {wrote:.2f} s | {wrote_beside:.2f} s"
            print(f"| {run} | {row} | {waiting:.3f} s | {waiting_beside:.3f} s | {waits[-1]:+.3f} % |", flush=True)
        medians = f"{statistics.median(costs):+.2f} % of its time, and {statistics.median(waits):+.3f} % of its cores"
        print(f"\nThe median cost of {runs} pairs is {medians}.")
    finally:
        shutil.rmtree(work, ignore_errors=True)


main()
