"""Real clients, unmodified, against trees that were put with the profile of Hugging Face caches and materialized.

suite.py STORE VENVS [GENERATION...]   STORE is the command, VENVS what setup.sh made.

For each generation: a real cache is made by its client (a login with a planted token included), put, materialized, and
used as jobs use it: offline and online, as root and as another user, by eight processes at once, with a moved branch, and
removed. Then two jobs of `store run`, on a host each: the first downloads and maps, the second needs nobody. After each
the store and the pool must be whole. Everything is run; what failed is told at the end, exit code 1."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from hub import Hub

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from checks import Suite, main  # noqa: E402

TOKEN = "hf_aVeryPlantedTokenThatNobodyGave0ut"
OTHER_USER = ["setpriv", "--reuid=4242", "--regid=4242", "--clear-groups"]
READS = ["version", "snapshot", "download", "scan", "config", "tokenizer", "memory", "cache_ls"]
EVERYTHING = [*READS, "load", "mapped_again"]
PROCESSES = 8


class Clients(Suite):
    def __init__(self, command, venvs, generations, room):
        super().__init__(command, room)
        self.venvs, self.generations = venvs, generations
        self.stored = {}
        self.hub = Hub()
        # Where another user can read it.
        room.chmod(0o755)
        shutil.copy(HERE / "battery.py", room)

    def begin_job(self, generation, steps, home, online=False, prefix=(), **more):
        scratch = home.parent / "job-home"
        scratch.mkdir(exist_ok=True)
        scratch.chmod(0o777)
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(scratch), "HF_HOME": str(home), "HF_ENDPOINT": self.hub.endpoint,
            "HF_HUB_OFFLINE": "0" if online else "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1", "USER": "tester", "LANG": "C.UTF-8", "PLANTED_TOKEN": TOKEN,
            "PYTHONDONTWRITEBYTECODE": "1", "CLIENT_VERSION": generation, **more,
        }
        command = [*prefix, *self.battery(generation, steps)]
        return subprocess.Popen(command, env=environment, cwd=scratch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def battery(self, generation, steps):
        return [str(self.venvs / ("hub-" + generation) / "bin" / "python"), str(self.room / "battery.py"), *steps]

    def end_job(self, what, job, fails=()):
        """Steps in `fails` are known not to work there, and must not begin to without this being seen."""
        stdout, stderr = job.communicate(timeout=600)
        try:
            results = json.loads(stdout.splitlines()[-1])
        except (ValueError, IndexError):
            return self.expect(what, False, stdout + stderr)
        for step, result in results.items():
            self.expect("%s: %s%s" % (what, step, " fails" if step in fails else ""), (result != "ok") == (step in fails), result)

    def job(self, what, generation, steps, home, fails=(), **how):
        self.end_job(what, self.begin_job(generation, steps, home, **how), fails)

    def tree(self, generation, name, owner=None):
        """A fresh HF_HOME for one job. Its directories and private copies belong to `owner`."""
        place = self.room / generation / name
        place.mkdir(parents=True)
        home = place / "hf"
        report = self.store("materialize", "project/clients/hub-" + generation, home)
        if owner is not None:
            for at, directories, files in os.walk(place):
                for path in [at, *(os.path.join(at, name) for name in files)]:
                    if os.path.islink(path) or os.path.isdir(path) or os.stat(path).st_nlink == 1:
                        os.lchown(path, owner, owner)
        return home, report

    def whole(self, what):
        for arguments in (["verify", "--read-data"], ["pool", "verify", "--pool", self.pool]):
            try:
                self.store(*arguments)
                self.expect("%s: %s finds no damage" % (what, " ".join(arguments[:2])), True)
            except RuntimeError as error:
                self.expect("%s: %s finds no damage" % (what, arguments[0]), False, error)

    def seed(self, generation):
        home = self.room / generation / "seed" / "hf"
        home.parent.mkdir(parents=True)
        home.mkdir()
        # Twice: what tokenizers ask for in vain is known after the first time.
        steps = ["version", "login", "snapshot", "config", "tokenizer", "tokenizer", "mapped", "load", "download"]
        self.job("seed", generation, steps, home, online=True)
        planted = [path for path in home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
        self.expect("seed: the login left the token in the home", len(planted) >= 1, planted)
        (home / "hub" / ".locks" / "left.lock").write_text("")
        (home / "modules").mkdir(exist_ok=True)
        # Files change their state within one tick of the clock; what was put must be settled.
        report = self.store("put", home, "project/clients/hub-" + generation, "--profile", "hf")
        notes = "\n".join(report["notes"])
        self.expect("put: the token is left out and told", "token" in notes, notes)
        self.expect("put: nothing was skipped", not report["skipped"], report)
        self.stored[generation] = report
        print("        put: %(files)d files, %(bytes)d bytes, %(new_bytes)d new, %(stored_bytes)d stored" % report)

    def use(self, generation):
        home, report = self.tree(generation, "offline")
        self.pool = report["pool"]
        self.expect("materialize: large files are linked", report["linked"] >= 4, report)
        names = {path.name for path in home.rglob("*")}
        strangers = {name for name in names if name.endswith((".lock", ".incomplete")) and name != "poetry.lock"}
        self.expect("materialize: no token, lock or unfinished file", not strangers | names & {"token", "stored_tokens", "xet"}, names)
        self.hub.take_log()
        self.job("offline, root", generation, EVERYTHING, home)
        self.expect("offline: no request", not self.hub.take_log())
        self.whole("after offline")

        home, _ = self.tree(generation, "other", owner=4242)
        self.job("offline, another user", generation, EVERYTHING, home, prefix=OTHER_USER)
        home, _ = self.tree(generation, "foreign")
        # Loading a dataset takes a lock in its directory, which is root's here.
        self.job("offline, root's tree, another user", generation, [*READS, "load"], home, prefix=OTHER_USER, fails=["load"])
        self.whole("after another user")

        home, _ = self.tree(generation, "read-only")
        subprocess.run(["mount", "--bind", home, home], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,bind,ro", home], check=True)
            self.job("offline, mounted read-only", generation, [*READS, "load"], home, fails=["load"])
        finally:
            subprocess.run(["umount", home], check=True)
        self.whole("after a read-only mount")

        home, _ = self.tree(generation, "eight", owner=4242)
        jobs = [self.begin_job(generation, EVERYTHING, home, prefix=OTHER_USER) for _ in range(PROCESSES)]
        for number, job in enumerate(jobs):
            self.end_job("offline, process %d of %d" % (number + 1, PROCESSES), job)
        self.whole("after %d processes" % PROCESSES)

        home, _ = self.tree(generation, "online")
        verify = [] if generation.startswith("0.") else ["verify_model", "verify_dataset"]
        self.hub.take_log()
        self.job("online, root", generation, [*EVERYTHING, *verify], home, online=True)
        fetched = [path for method, path in self.hub.take_log() if method == "GET" and "/resolve/" in path]
        self.expect("online: no file is downloaded again", not fetched, fetched)
        self.whole("after online")
        self.move(generation, home)

        home, _ = self.tree(generation, "removed")
        self.job("removed by its client", generation, ["remove"], home)
        self.whole("after removing")
        home, _ = self.tree(generation, "again")
        self.job("materialized again", generation, EVERYTHING, home)
        self.whole("after all that")

    def move(self, generation, home):
        """The branch moves on the hub while jobs have trees of the old commit."""
        repo = self.hub.repos["models", "org/tiny-model"]
        old = repo.branches["main"]
        new = repo.commit({**{path: file.data for path, file in repo.commits[old].items()}, "README.md": b"second"})
        self.job("branch moved", generation, ["moved"], home, online=True, NEW_COMMIT=new)
        other, _ = self.tree(generation, "not-moved")
        for name in ("not-moved", "offline"):
            ref = self.room / generation / name / "hf/hub/models--org--tiny-model/refs/main"
            self.expect("branch moved: the ref of %s stays" % name, ref.read_text() == old)
        self.whole("after a moved branch")
        repo.branches["main"] = old

    def run_job(self, generation, what, host, steps, online):
        """A job of a project on a host, which is a home and a place for caches; what it was told on stderr."""
        place = self.room / generation / host
        (place / "home").mkdir(parents=True)
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(place / "home"), "STORE_URL": str(self.room / "store"), "USER": "tester",
            "HF_ENDPOINT": self.hub.endpoint, "HF_HUB_OFFLINE": "0" if online else "1", "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1", "CLIENT_VERSION": generation, "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        words = ["run", "--project", "run-" + generation, "--base", str(place / "caches"), "--", *self.battery(generation, steps)]
        job = subprocess.Popen([self.command, *words], env=environment, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.end_job(what, job)
        self.expect("%s: ends with 0" % what, job.returncode == 0, job.returncode)

    def jobs(self, generation):
        # Twice: what tokenizers ask for in vain is known after the first time.
        steps = ["version", "snapshot", "config", "tokenizer", "tokenizer", "mapped", "download"]
        self.hub.take_log()
        self.run_job(generation, "run, the first job", "node-1", steps, online=True)
        self.expect("run: the first job asks the hub", self.hub.take_log())
        self.run_job(generation, "run, another host, offline", "node-2", EVERYTHING, online=False)
        self.expect("run: the second job asks nobody", not self.hub.take_log())
        self.run_job(generation, "run, a third host, online", "node-3", EVERYTHING, online=True)
        fetched = [path for method, path in self.hub.take_log() if method == "GET" and "/resolve/" in path]
        self.expect("run: the third job downloads nothing", not fetched, fetched)
        self.whole("after jobs of a project")

    def run(self):
        model, dataset = contents(self.venvs, self.room)
        self.hub.add("models", "org/tiny-model", model)
        self.hub.add("datasets", "org/tiny-set", dataset)
        self.store("init")
        for generation in self.generations:
            print("--- huggingface_hub " + generation, flush=True)
            self.seed(generation)
            self.use(generation)
            self.jobs(generation)
        print("--- all together", flush=True)
        self.token_is_nowhere()
        self.repositories_are_stored_once()

    def token_is_nowhere(self):
        """Raw bytes of the store, the pool and the host's caches, and every file that comes out."""
        places = [self.room / "store", self.room / "home", pathlib.Path(self.pool)]
        for generation in self.stored:
            out = self.room / generation / "got"
            self.store("get", "project/clients/hub-" + generation, out)
            places.append(out)
        files = [path for place in places for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
        found = [str(path) for path in files if TOKEN.encode() in path.read_bytes()]
        self.expect("the planted token is in none of %d files" % len(files), files and not found, found)

    def repositories_are_stored_once(self):
        first, *others = self.stored.values()
        for report in others:
            new, whole = report["new_bytes"], report["bytes"]
            self.expect("the same repositories from another home are stored once (%d of %d bytes new)" % (new, whole), new < whole / 10)


def contents(venvs, room):
    python = next(iter(sorted(venvs.glob("hub-*/bin/python"))))
    subprocess.run([python, HERE / "content.py", room / "content"], check=True)
    files = lambda at: {str(path.relative_to(at)): path.read_bytes() for path in at.rglob("*") if path.is_file()}
    return files(room / "content" / "model"), files(room / "content" / "dataset")


if __name__ == "__main__":
    if os.geteuid() != 0:
        sys.exit("tests/clients: must run as root, to become another user")
    command, venvs = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    generations = sys.argv[3:] or ["2.4.0", "1.28.0", "0.36.2"]
    main("clients", lambda room: Clients(command, venvs, generations, room))
