"""The compile caches of torch, unmodified, in `store run`, and those of Triton, pushed and pulled.

suite.py STORE PYTHON TRITON   STORE is the command, PYTHON has what requirements.txt names, TRITON is the directory of triton.

The first job compiles a model and its host pushes. On the second host the compiler fails, and nobody calls it. A job whose
compiler is killed half-way leaves nothing half in the ref, and the next one compiles what is missing. Then kernels that
Triton's own cache wrote are read by it elsewhere."""

import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from checks import Suite, main  # noqa: E402

REF, KERNELS = "project/vision/inductor", "project/vision/triton"
LAYOUT = """[layout.torch]
project = "project"
team = "team"
[layout.torch.env]
TORCHINDUCTOR_CACHE_DIR = "{base}/inductor"
[layout.torch.compile.inductor]
dir = "{base}/inductor"
pull = ["%s"]
push = "%s"
""" % (REF, REF)


class Torch(Suite):
    def __init__(self, command, python, triton, room):
        super().__init__(command, room)
        self.python, self.triton = python, triton

    def environment(self, home="a", **more):
        places = self.room / home / ".config" / "store", self.room / home / "tmp"
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        (places[0] / "config.toml").write_text(LAYOUT)
        return super().environment(home, TMPDIR=str(places[1]), **more)

    def job(self, host, model, does):
        """Runs a job on a host that remembers nothing of the others: its exit code, what it said, what its host said, and
        how often the compiler was called."""
        calls = self.room / ("calls-" + host)
        environment = self.environment(
            host, CXX=str(HERE / "compiler.sh"), COMPILER_CALLS=str(calls), COMPILER_DOES=does, JOB_PID=str(self.room / ("pid-" + host)),
            # No pool of processes that compile beside it, and no instructions but those that all processors have.
            TORCHINDUCTOR_COMPILE_THREADS="1", ATEN_CPU_CAPABILITY="default", OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1",
        )
        words = ["run", "--project", "vision", "--layout", "torch", "--base", str(self.room / host / "cache"), "--", self.python, str(HERE / "job.py"), model]
        done = subprocess.run([self.command, *words], env=environment, cwd=self.room / host, capture_output=True, text=True, timeout=1200)
        try:
            told = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            told = {"said": done.stdout + done.stderr}
        return done.returncode, told, done.stderr, len(calls.read_text().splitlines()) if calls.exists() else 0

    def entries(self, ref):
        """The files of a ref, with their sizes."""
        out = self.room / "out"
        self.store("get", ref, out)
        found = {str(path.relative_to(out)): path.stat().st_size for path in out.rglob("*") if path.is_file()}
        broken = [name for name in found if name.endswith(".so") and not loads(out / name)]
        subprocess.run(["rm", "-rf", str(out)], check=True)
        return found, broken

    def inductor(self):
        code, first, said, calls = self.job("a", "narrow", "work")
        self.equal("the first job ends well", (code, first.get("right")), (0, True))
        self.equal("finds nothing and compiles", (first.get("hits"), first.get("misses", 0) > 0, calls > 0), (0, True, True))
        self.equal("its host pushes", "0 entries there before the command (0 pulled)" in said, True)
        before, broken = self.entries(REF)
        self.equal("graphs, code and libraries are in the ref", {kind: any(kind in name for name in before) for kind in ["fxgraph/", "aotautograd/", ".main.cpp", ".main.so"]}, dict.fromkeys(["fxgraph/", "aotautograd/", ".main.cpp", ".main.so"], True))
        self.equal("and no lock", ([name for name in before if "lock" in name], broken), ([], []))
        code, second, said, calls = self.job("b", "narrow", "fail")
        self.equal("the second job, elsewhere, ends well", (code, second.get("right"), second.get("said")), (0, True, None))
        self.equal("finds all and compiles nothing", (second.get("hits", 0) > 0, second.get("misses"), calls), (True, 0, 0))
        self.equal("its numbers are the same", second.get("numbers"), first.get("numbers"))
        avoided = re.search(r"(\d+) compiles? avoided", said)
        self.equal("its host says how many compiles were avoided", avoided is not None and int(avoided[1]) > 0, True)
        self.ask(before)

    def ask(self, before):
        """What `store cache` says of the ref and of a host's directory."""
        here = self.room / "b" / "cache" / "inductor"
        told = self.store("cache", "status", here, REF, "--profile", "inductor")
        there = told["refs"][0]
        self.equal("status: all is complete and as in the ref", (told["failed"], told["locked"], told["incomplete"], there["absent_here"], there["different"], there["broken_there"], there["complete"] > 0, there["same"]), ([], [], [], 0, [], [], True, there["complete"]))
        graph = next(name for name in before if name.startswith("fxgraph/")).rsplit("/", 1)[0]
        told = self.store("cache", "lookup", graph.split("/")[-1], REF, "--profile", "inductor")
        self.equal("lookup finds a graph by its key", (told["entry"], told["hit"]), (graph, True))
        self.store("cache", "lookup", "fnothing", REF, "--profile", "inductor", code=3)
        done = subprocess.run([self.command, "cache", "why", graph.rsplit("/", 1)[0] + "/fnothing", REF, "--profile", "inductor"], env=self.environment(), capture_output=True, text=True)
        self.equal("why names the key of the nearest graph", "key: expected fnothing, found " + graph.split("/")[-1] in done.stdout, True)

    def killed(self):
        before, _ = self.entries(REF)
        code, told, _, calls = self.job("c", "wide", "kill")
        self.equal("a job that is killed while it compiles has its code", (code, calls > 0), (137, True))
        after, broken = self.entries(REF)
        self.equal("leaves nothing half in the ref", (broken, before.items() <= after.items()), ([], True))
        code, told, _, calls = self.job("d", "wide", "work")
        self.equal("the next job ends well", (code, told.get("right"), told.get("said")), (0, True, None))
        self.equal("and compiles what is missing", calls > 0, True)

    def kernels(self):
        def triton(host, *words):
            environment = self.environment(host, PYTHONPATH=self.triton, TRITON_CACHE_DIR=str(self.room / host / "triton"), PYTHONDONTWRITEBYTECODE="1")
            done = subprocess.run([self.python, str(HERE / "kernels.py"), *words], env=environment, capture_output=True, text=True)
            return json.loads(done.stdout) if done.returncode == 0 else done.stderr

        keys = ["KEYONE", "KEYTWO"]
        self.equal("triton writes kernels", triton("a", "make", *keys), {})
        first, second = (self.room / host / "triton" for host in "ab")
        pushed = self.store("cache", "push", first, KERNELS, "--profile", "triton")
        self.equal("kernels and launchers are pushed, what is half is not", (pushed["pushed"], pushed["conflicts"]), (4, []))
        self.equal("and pulled elsewhere", self.store("cache", "pull", second, KERNELS, "--profile", "triton")["pulled"], 4)
        group = {"files": sorted("add." + end for end in ["ttir", "ttgir", "llir", "ptx", "cubin", "json"]), "places": [str(second)], "launcher": True}
        self.equal("where triton finds them, by places there", triton("b", "read", *keys, "HALF"), {"KEYONE": group, "KEYTWO": group, "HALF": {"files": [], "places": [], "launcher": False}})
        told = self.store("cache", "status", first, KERNELS, "--profile", "triton")
        self.equal("status: the half one is named", (told["complete"], len(told["incomplete"]), told["refs"][0]["same"]), (4, 1, 4))

    def run(self):
        self.store("init")
        self.kernels()
        self.inductor()
        self.killed()
        self.store("verify", "--read-data")


def loads(library):
    """Whether a library is whole: the tables that its head names lie in it."""
    return subprocess.run(["readelf", "--sections", "--wide", str(library)], capture_output=True, text=True).stderr == ""


if __name__ == "__main__":
    words = map(os.path.abspath, sys.argv[1:4])
    main("torch", lambda room: Torch(*words, room))
