"""What fine-tunes take in a store that has their base, and how quickly: measure.py STORE TRAINED WORK. See run.sh."""

import filecmp
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

MODELS, TYPES = ("crepe", "voices"), ("fp32", "bf16")
PAIRS = [("base", "1e-5-100"), ("base", "1e-5-200"), ("1e-5-100", "1e-5-110"), ("base", "1e-4-100"), ("base", "1e-4-200"),
         ("1e-4-100", "1e-4-110"), ("base", "lora")]
FAMILY = ("1e-5-200", "1e-4-200", "lora")
RUNS = 5
# Of raw bytes, at most, after 100 to 200 steps and after 10 more.
AIMS = {("bf16", "1e-5"): 0.27, ("bf16", "1e-4"): 0.40, ("fp32", "1e-5"): 0.62, ("fp32", "1e-4"): 0.70}
AIM_FAMILY, AIM_PUT, AIM_GET = 0.5, 0.5, 0.6
PLAIN = ("--delta-base", "none")


class Bench:
    def __init__(self, program, trained, work):
        self.program, self.trained, self.work = os.path.abspath(program), pathlib.Path(trained), pathlib.Path(work)
        self.url, self.home = self.work / "store", self.work / "home"
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8"}

    def run(self, *words):
        words = [self.program, "-q", "--json", "--store", self.url, *words]
        done = subprocess.run(list(map(str, words)), env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit("trained: %s: exit code %d\n%s" % (" ".join(map(str, words)), done.returncode, done.stderr))
        return json.loads(done.stdout) if done.stdout.startswith("{") else None

    def source(self, model, type_, state):
        """A directory with one state of a model."""
        tree = self.work / ("tree-%s-%s-%s" % (model, type_, state))
        if not tree.exists():
            tree.mkdir()
            file = self.trained / ("%s-%s-%s.safetensors" % (model, type_, state))
            # Not a link to what may be on another file system.
            shutil.copyfile(file, tree / "model.safetensors")
        return tree

    def begin(self, tree):
        """A store that has one version."""
        self.forget()
        self.run("init")
        return self.run("put", tree, "project/trained/base")["stored_bytes"]

    def keep(self):
        shutil.rmtree(self.work / "kept", ignore_errors=True)
        shutil.copytree(self.url, self.work / "kept")

    def again(self):
        self.forget()
        shutil.copytree(self.work / "kept", self.url)

    def forget(self):
        """The store, and what the host knows of it."""
        shutil.rmtree(self.url, ignore_errors=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def put(self, tree, *words, ref="tune"):
        os.sync()
        began = time.monotonic()
        told = self.run("put", tree, "project/trained/" + ref, *words)
        return told["stored_bytes"], time.monotonic() - began

    def get(self, tree, ref="tune"):
        out = self.work / "out"
        began = time.monotonic()
        self.run("get", "project/trained/" + ref, out)
        took = time.monotonic() - began
        if not filecmp.cmp(tree / "model.safetensors", out / "model.safetensors", shallow=False):
            sys.exit("trained: other bytes came back of %s" % tree.name)
        shutil.rmtree(out)
        return took


def size_of(tree):
    return (tree / "model.safetensors").stat().st_size


def pairs(bench, missed):
    print("| model | the store has | second | raw | as delta | of raw | planes | aim |\n|---|---|---|--:|--:|--:|--:|--:|")
    for model in MODELS:
        for type_ in TYPES:
            for first, second in PAIRS:
                bench.begin(bench.source(model, type_, first))
                bench.keep()
                tree = bench.source(model, type_, second)
                planes, _ = bench.put(tree, *PLAIN)
                bench.get(tree)
                bench.again()
                delta, _ = bench.put(tree)
                bench.get(tree)
                raw = size_of(tree)
                aim = AIMS.get((type_, second[:4]))
                if aim and delta > aim * raw:
                    what = "%s %s, %s after %s" % (model, type_, second, first)
                    missed.append("%s: %.3f of raw, %.2f wanted" % (what, delta / raw, aim))
                said = "" if aim is None else "%.2f" % aim
                print("| %s, %s | %s | %s | %.1f MB | %.1f MB | %.3f | %.3f | %s |" % (
                    model, type_, first, second, raw / 1e6, delta / 1e6, delta / raw, planes / raw, said), flush=True)


def families(bench, missed):
    print("\n| base with %s | planes alone | deltas | of planes | without the base |" % ", ".join(FAMILY))
    print("|---|--:|--:|--:|--:|")
    for model in MODELS:
        for type_ in TYPES:
            trees = [bench.source(model, type_, state) for state in FAMILY]
            taken = {}
            for words in (PLAIN, ()):
                first = bench.begin(bench.source(model, type_, "base"))
                taken[words] = (first, sum(bench.put(tree, *words, ref="tune-%d" % at)[0] for at, tree in enumerate(trees)))
                for at, tree in enumerate(trees):
                    bench.get(tree, ref="tune-%d" % at)
            planes, deltas = sum(taken[PLAIN]), sum(taken[()])
            if deltas > AIM_FAMILY * planes:
                missed.append("%s %s, a family: %.3f of planes, %.2f wanted" % (model, type_, deltas / planes, AIM_FAMILY))
            print("| %s, %s | %.1f MB | %.1f MB | %.3f | %.3f |" % (
                model, type_, planes / 1e6, deltas / 1e6, deltas / planes, taken[()][1] / taken[PLAIN][1]), flush=True)


def speeds(bench, missed):
    print("\n| CREPE after its base | put, planes | put, delta | speed | get, planes | get, delta | speed |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for type_ in TYPES:
        for state in ("1e-5-200", "1e-4-200"):
            bench.begin(bench.source("crepe", type_, "base"))
            bench.keep()
            tree = bench.source("crepe", type_, state)
            took = {words: ([], []) for words in (PLAIN, ())}
            for run in range(RUNS):
                # Who begins changes from run to run.
                for words in ((PLAIN, ()), ((), PLAIN))[run % 2]:
                    bench.again()
                    took[words][0].append(bench.put(tree, *words)[1])
                    took[words][1].append(bench.get(tree))
            (put, get), (put_delta, get_delta) = ([statistics.median(some) for some in took[words]] for words in (PLAIN, ()))
            for verb, ratio, aim in (("put", put / put_delta, AIM_PUT), ("get", get / get_delta, AIM_GET)):
                if ratio < aim:
                    missed.append("%s of %s %s: %.2f of the speed of planes, %.2f wanted" % (verb, type_, state, ratio, aim))
            print("| %s, %s | %.2f s | %.2f s | %.2f | %.2f s | %.2f s | %.2f |" % (
                type_, state, put, put_delta, put / put_delta, get, get_delta, get / get_delta), flush=True)


def main():
    bench, missed = Bench(*sys.argv[1:]), []
    pairs(bench, missed)
    families(bench, missed)
    speeds(bench, missed)
    print("\nAims that are not met:\n\n" + ("\n".join("- " + line for line in missed) or "none"))


if __name__ == "__main__":
    main()
