"""What is compared: how each tool makes a repository, stores a tree, brings it back, and gives space back.

A verb that a tool has not is None. Commands are argument lists; each is run in the working directory of the tool, with
HOME there, too, so that no cache of another run is found.
"""

import os
import pathlib
import shutil
import subprocess
import sys


class Tool:
    """A tool with its repository at `place`. Verbs return a command to be timed."""

    name = ""
    #: Says what the figures of this tool mean where that is not plain.
    remark = ""

    def __init__(self, place, store):
        self.place, self.store = pathlib.Path(place), store
        self.repository = self.place / "repository"

    @classmethod
    def is_there(cls):
        return shutil.which(cls.name) is not None

    def run(self, *command, **options):
        subprocess.run(command, check=True, cwd=self.place, stdout=subprocess.DEVNULL, **options)

    def init(self):
        pass

    def before_put(self, tree, label):
        """What a user had done before, and is not timed."""

    def put(self, tree, label):
        return None

    def before_get(self, label):
        """What a user had done before, and is not timed."""

    def get(self, label, out):
        return None

    def materialize(self, out):
        """A tree of version 1 that shares its files."""
        return None

    def drop(self):
        """Commands that drop both versions and give their space back, or None."""
        return None


class Store(Tool):
    name = "store"

    @classmethod
    def is_there(cls):
        return True

    def command(self, *words):
        return [self.store, "--store", str(self.repository), *words]

    def init(self):
        self.run(*self.command("init"))

    def put(self, tree, label):
        return self.command("put", str(tree), "project/compare/tree")

    def get(self, label, out):
        return self.command("get", f"project/compare/tree@{label}", str(out))

    def drop(self):
        rm = self.command("rm", "project/compare/tree", "--yes")
        return rm, self.command("gc", "--grace", "0", "--min-age", "0")

    def materialize(self, out):
        return self.command("materialize", "--copy-below", "0", "--pool", str(self.place / "pool"),
                            "project/compare/tree@1", str(out))


class Restic(Tool):
    name = "restic"

    def init(self):
        os.environ["RESTIC_PASSWORD"] = "compare"
        self.run("restic", "-q", "-r", self.repository, "init")

    def put(self, tree, label):
        return ["sh", "-ec", f'cd "$1"; restic -q -r "$2" backup --tag {label} .', "sh", str(tree), str(self.repository)]

    def get(self, label, out):
        return ["restic", "-q", "-r", str(self.repository), "restore", "latest", "--tag", str(label), "--target", str(out)]

    def drop(self):
        ids = ["sh", "-ec", 'restic -q -r "$1" forget $(restic -r "$1" list snapshots)', "sh", str(self.repository)]
        return ids, ["restic", "-q", "-r", str(self.repository), "prune"]


class Rustic(Tool):
    name = "rustic"

    def init(self):
        os.environ["RUSTIC_PASSWORD"] = "compare"
        self.run("rustic", "-r", self.repository, "init", stderr=subprocess.DEVNULL)

    def put(self, tree, label):
        return ["rustic", "--no-progress", "-r", str(self.repository), "backup", "--tag", str(label), "--as-path", "/t", str(tree)]

    def get(self, label, out):
        return ["sh", "-ec", 'exec rustic --no-progress -r "$1" restore --filter-tags "$2" latest:/t "$3"', "sh",
                str(self.repository), str(label), str(out)]


class Borg(Tool):
    name = "borg"

    def init(self):
        os.environ["BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK"] = "yes"
        self.run("borg", "init", "-e", "none", self.repository)

    def put(self, tree, label):
        # An archive of that name would be refused.
        return ["sh", "-ec", f'cd "$1"; exec borg create "$2::{label}-$$" .', "sh", str(tree), str(self.repository)]

    def get(self, label, out):
        script = 'mkdir "$3"; cd "$3"; exec borg extract "$1::$(borg list --short "$1" | grep "^$2-" | head -n 1)"'
        return ["sh", "-ec", script, "sh", str(self.repository), str(label), str(out)]

    def drop(self):
        return ["borg", "delete", "-a", "*", str(self.repository)], ["borg", "compact", str(self.repository)]


class Bupstash(Tool):
    name = "bupstash"

    def init(self):
        self.run("bupstash", "new-key", "-o", "key")
        self.run("bupstash", "init", "-r", self.repository)

    def words(self, verb):
        return ["bupstash", verb, "-r", str(self.repository), "-k", str(self.place / "key")]

    def put(self, tree, label):
        return [*self.words("put"), "--quiet", f"label={label}", str(tree)]

    def get(self, label, out):
        # The tree was put twice under one label, and a restore takes one item.
        script = """out=$1; label=$2; shift 2; mkdir "$out"
        id=$(bupstash list "$@" "label=$label" | sed -n '1s/^id="\\([^"]*\\)".*/\\1/p')
        exec bupstash restore "$@" --quiet --into "$out" "id=$id" """
        return ["sh", "-ec", script, "sh", str(out), str(label), *self.words("restore")[2:]]


class Ostree(Tool):
    name = "ostree"
    remark = "whole files, compressed not at all"

    def init(self):
        self.run("ostree", f"--repo={self.repository}", "init", "--mode=bare-user")

    def put(self, tree, label):
        return ["ostree", f"--repo={self.repository}", "commit", "-b", f"v{label}", "--canonical-permissions", f"--tree=dir={tree}"]

    def get(self, label, out):
        return ["ostree", f"--repo={self.repository}", "checkout", "-U", "-C", f"v{label}", str(out)]

    def materialize(self, out):
        return ["ostree", f"--repo={self.repository}", "checkout", "-U", "-H", "v1", str(out)]

    def drop(self):
        refs = ["sh", "-ec", 'ostree --repo="$1" refs --delete v1; ostree --repo="$1" refs --delete v2', "sh", str(self.repository)]
        return refs, ["ostree", f"--repo={self.repository}", "prune", "--refs-only"]


class Casync(Tool):
    name = "casync"

    def put(self, tree, label):
        return ["casync", "make", f"--store={self.repository}", "--with=unix", f"{label}.caidx", str(tree)]

    def get(self, label, out):
        return ["casync", "extract", f"--store={self.repository}", f"{label}.caidx", str(out)]


class Dvc(Tool):
    name = "dvc"
    remark = "whole files by MD5; the tree lies in its workspace before a put, and a get makes hard links"

    @classmethod
    def is_there(cls):
        return (pathlib.Path(sys.executable).parent / "dvc").exists()

    def dvc(self):
        return str(pathlib.Path(sys.executable).parent / "dvc")

    def init(self):
        self.repository.mkdir()
        subprocess.run([self.dvc(), "init", "-q", "--no-scm"], check=True, cwd=self.repository)
        for setting in (("core.analytics", "false"), ("cache.type", "hardlink,copy")):
            subprocess.run([self.dvc(), "config", *setting], check=True, cwd=self.repository)

    def before_put(self, tree, label):
        shutil.rmtree(self.repository / "data", ignore_errors=True)
        self.run("cp", "-a", tree, self.repository / "data")

    def put(self, tree, label):
        return ["sh", "-ec", f'cd "$1"; "$2" add -q data; cp data.dvc {label}.kept', "sh", str(self.repository), self.dvc()]

    def before_get(self, label):
        shutil.rmtree(self.repository / "data", ignore_errors=True)
        shutil.copy(self.repository / f"{label}.kept", self.repository / "data.dvc")

    def get(self, label, out):
        return ["sh", "-ec", 'cd "$1"; "$2" checkout -q data.dvc; mv data "$3"', "sh", str(self.repository), self.dvc(), str(out)]


class Xet(Tool):
    name = "xet"
    remark = "hf_xet in its local mode, from Python: files only, without modes, times and links"

    @classmethod
    def is_there(cls):
        return True

    def script(self, *words):
        return [sys.executable, "-B", str(pathlib.Path(__file__).parent / "xet.py"), str(self.repository), *words]

    def put(self, tree, label):
        return self.script("put", str(tree), f"{label}.json")

    def get(self, label, out):
        return self.script("get", f"{label}.json", str(out))


class Tar(Tool):
    name = "zstd"
    remark = "`tar | zstd -T0`: nothing is shared between versions"

    def init(self):
        self.repository.mkdir()

    def put(self, tree, label):
        return ["sh", "-ec", f'tar -C "$1" -c . | zstd -q -f -T0 -o "$2/{label}.tar.zst"', "sh", str(tree), str(self.repository)]

    def get(self, label, out):
        return ["sh", "-ec", 'mkdir "$2"; zstd -q -dc "$1" | tar -C "$2" -x', "sh", f"{self.repository}/{label}.tar.zst", str(out)]


class Rsync(Tool):
    name = "rsync"
    remark = "keeps the newest version only"

    def put(self, tree, label):
        return ["rsync", "-a", "--delete", f"{tree}/", str(self.repository)]


class Copy(Tool):
    name = "cp"
    remark = "`cp -a`, the limit of a plain copy"

    def init(self):
        self.repository.mkdir()

    def put(self, tree, label):
        return ["cp", "-aT", str(tree), f"{self.repository}/{label}"]

    def get(self, label, out):
        return ["cp", "-a", f"{self.repository}/{label}", str(out)]

    def materialize(self, out):
        return ["cp", "-al", f"{self.repository}/1", str(out)]


TOOLS = [Store, Restic, Rustic, Borg, Bupstash, Ostree, Casync, Dvc, Xet, Tar, Rsync, Copy]
