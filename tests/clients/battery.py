"""The steps of one job, with the clients of the interpreter that runs it. Prints one JSON object: step -> "ok" or the error.

battery.py STEP...   HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE are the caller's. Nothing of a client is replaced or patched."""

import contextlib
import glob
import io
import json
import os
import subprocess
import sys
import traceback
import warnings

MODEL, DATASET = "org/tiny-model", "org/tiny-set"
HF = os.path.join(os.path.dirname(sys.executable), "hf")


def version():
    """The client is the one that is meant, and comes from its own environment."""
    import huggingface_hub

    found = huggingface_hub.__version__, os.path.realpath(huggingface_hub.__file__)
    assert found[0] == os.environ["CLIENT_VERSION"] and "/hub-%s/" % found[0] in found[1], found


def login():
    from huggingface_hub import login as hf_login

    hf_login(token=os.environ["PLANTED_TOKEN"], add_to_git_credential=False)
    home = os.environ["HF_HOME"]
    assert os.environ["PLANTED_TOKEN"] in open(os.path.join(home, "token")).read()


def snapshot():
    from huggingface_hub import snapshot_download

    path = snapshot_download(MODEL)
    files = {os.path.relpath(os.path.join(at, name), path) for at, _, names in os.walk(path) for name in names}
    assert files >= {"config.json", "model.safetensors", "weights.npy", "table.arrow", "sub/poetry.lock"}, files
    return path


def download():
    from huggingface_hub import hf_hub_download

    with open(hf_hub_download(MODEL, "sub/poetry.lock")) as file:
        assert file.read().startswith("# not a lock of ours")


def scan():
    from huggingface_hub import scan_cache_dir

    info = scan_cache_dir()
    assert not info.warnings, info.warnings
    found = {(repo.repo_type, repo.repo_id) for repo in info.repos}
    assert found >= {("model", MODEL), ("dataset", DATASET)}, found


def config():
    from transformers import AutoConfig

    assert AutoConfig.from_pretrained(MODEL).hidden_size == 8


def tokenizer():
    from transformers import AutoTokenizer

    assert AutoTokenizer.from_pretrained(MODEL)("hello world")["input_ids"] == [1, 2]


def load():
    from datasets import load_dataset

    table = load_dataset(DATASET, split="train")
    assert table[99]["text"] == "row 99" and len(table) == 2000
    return table


def square(row):
    return {"square": row["number"] ** 2}


def mapped():
    assert load().map(square)[12]["square"] == 144


def mapped_again():
    """As `mapped`, but what the seed job computed must be found, and nothing computed anew."""
    table = load()
    pattern = os.path.join(os.path.dirname(table.cache_files[0]["filename"]), "cache-*.arrow")
    before = {path: os.stat(path).st_ino for path in glob.glob(pattern)}
    assert before, "nothing in " + pattern
    result = table.map(square)
    after = {path: os.stat(path).st_ino for path in glob.glob(pattern)}
    assert result[12]["square"] == 144 and before == after, (before, after)


def memory():
    """Linked files are mapped and read: numpy, safetensors, pyarrow."""
    import numpy
    import pyarrow
    from safetensors import safe_open

    path = snapshot()
    weights = numpy.load(os.path.join(path, "weights.npy"), mmap_mode="r")
    assert weights.shape == (100_000,) and weights[7] == 7
    raw = numpy.memmap(os.path.join(path, "weights.npy"), dtype="<f4", mode="r", offset=128)
    assert raw[99_999] == 99_999
    with safe_open(os.path.join(path, "model.safetensors"), framework="numpy") as file:
        assert file.get_tensor("weight").shape == (60_000,)
    with pyarrow.memory_map(os.path.join(path, "table.arrow")) as source:
        assert pyarrow.ipc.open_stream(source).read_all().num_rows == 2000
    for name in ("weights.npy", "model.safetensors", "table.arrow"):
        with contextlib.suppress(PermissionError):
            if os.geteuid() != 0:
                open(os.path.join(path, name), "r+b").close()
                assert os.stat(os.path.join(path, name)).st_nlink == 1, "a linked file can be written to"


def cache_ls():
    assert MODEL in hf("cache", "ls") or MODEL in hf("cache", "scan")


def verify_model():
    hf("cache", "verify", MODEL)


def verify_dataset():
    hf("cache", "verify", DATASET, "--repo-type", "dataset")


def remove():
    """`hf cache rm` for those who have it, its predecessor's call for the others."""
    if "rm" in hf("cache", "--help").split():
        hf("cache", "rm", "model/" + MODEL, "--yes")
    else:
        from huggingface_hub import scan_cache_dir

        info = scan_cache_dir()
        commits = [rev.commit_hash for repo in info.repos if repo.repo_id == MODEL for rev in repo.revisions]
        info.delete_revisions(*commits).execute()
    assert not os.path.exists(os.path.join(os.environ["HF_HOME"], "hub", "models--org--tiny-model"))


def moved():
    """The branch moved on the hub: the new commit comes into this tree, and its ref follows."""
    path = snapshot()
    assert os.path.basename(path) == os.environ["NEW_COMMIT"], path
    ref = os.path.join(os.path.dirname(os.path.dirname(path)), "refs", "main")
    assert open(ref).read() == os.environ["NEW_COMMIT"]
    with open(os.path.join(path, "README.md")) as file:
        assert file.read() == "second"


def hf(*arguments):
    # By this interpreter: its own first line may lead where another user may not go.
    done = subprocess.run([sys.executable, HF, *arguments], capture_output=True, text=True)
    if done.returncode != 0 and arguments[:2] != ("cache", "ls"):
        raise RuntimeError("hf %s: %d: %s%s" % (" ".join(arguments), done.returncode, done.stdout, done.stderr))
    return done.stdout


def run(step):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            globals()[step]()
        return "ok"
    except Exception:
        return traceback.format_exc()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({step: run(step) for step in sys.argv[1:]}))
