"""What one client does at an endpoint. Prints one JSON object: step -> "ok" or the error.

steps.py STEP...   HF_HOME, HF_ENDPOINT and HF_TOKEN are the caller's. Nothing of a client is replaced or patched."""

import contextlib
import filecmp
import hashlib
import io
import json
import os
import subprocess
import sys
import traceback
import warnings

MODEL, DATASET, PLAIN = "org/tiny-model", "org/tiny-set", "plain/files"
OWN, OWN_SET = "org/own-model", "org/own-set"
HF = os.path.join(os.path.dirname(sys.executable), "hf")
SOURCE = os.environ.get("SOURCE", "")


def version():
    import huggingface_hub

    found = huggingface_hub.__version__, os.path.realpath(huggingface_hub.__file__)
    assert found[0] == os.environ["CLIENT_VERSION"] and "/hub-%s/" % found[0] in found[1], found


def whoami():
    from huggingface_hub import HfApi

    me = HfApi().whoami()
    assert me["auth"]["accessToken"]["role"] == "write", me


def model():
    from huggingface_hub import snapshot_download

    path = snapshot_download(MODEL)
    assert os.path.basename(path) == os.environ["MODEL_COMMIT"], path
    assert same(os.path.join(SOURCE, "model"), path), path
    by_commit = snapshot_download(MODEL, revision=os.environ["MODEL_COMMIT"])
    assert by_commit == path


def again():
    """All of it is here: one question whether that is still so."""
    from huggingface_hub import snapshot_download

    assert os.path.basename(snapshot_download(MODEL)) == os.environ["MODEL_COMMIT"]


def dataset():
    from huggingface_hub import snapshot_download

    assert same(os.path.join(SOURCE, "dataset"), snapshot_download(DATASET, repo_type="dataset"))


def names():
    """Names in a cache are the hashes of what is in it."""
    hub = os.path.join(os.environ["HF_HOME"], "hub")
    seen = 0
    for at, _, files in os.walk(hub):
        for name in files:
            if os.path.basename(at) != "blobs" or len(name) not in (40, 64):
                continue
            data = open(os.path.join(at, name), "rb").read()
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            assert name in (git, hashlib.sha256(data).hexdigest()), (at, name)
            seen += 1
    assert seen, hub


def plain():
    from huggingface_hub import snapshot_download

    assert same(os.path.join(SOURCE, "plain"), snapshot_download(PLAIN))


def one():
    from huggingface_hub import HfApi, file_exists, hf_hub_download
    from huggingface_hub.utils import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    with open(hf_hub_download(MODEL, "sub/poetry.lock")) as file:
        assert file.read().startswith("# not a lock of ours")
    assert file_exists(MODEL, "config.json") and not file_exists(MODEL, "none.json")
    for error, arguments in [
        (EntryNotFoundError, (MODEL, "none.json")),
        (RepositoryNotFoundError, ("org/none", "config.json")),
    ]:
        try:
            hf_hub_download(*arguments)
        except error:
            continue
        raise AssertionError(arguments)
    try:
        hf_hub_download(MODEL, "config.json", revision="none")
        raise AssertionError("none")
    except RevisionNotFoundError:
        pass
    api = HfApi()
    assert {branch.name for branch in api.list_repo_refs(MODEL).branches} == {"main"}
    assert len(api.list_repo_commits(PLAIN)) == 1
    assert MODEL in {found.id for found in api.list_models(search="tiny")}
    info = api.model_info(MODEL, files_metadata=True)
    assert {file.rfilename for file in info.siblings} >= {"config.json", "model.safetensors"}
    infos = api.get_paths_info(MODEL, ["config.json", "sub", "none"])
    assert {info.path for info in infos} == {"config.json", "sub"}, infos


def system():
    from huggingface_hub import HfFileSystem

    fs = HfFileSystem()
    assert MODEL + "/config.json" in fs.ls(MODEL, detail=False)
    assert fs.glob(MODEL + "/**/*.lock") == [MODEL + "/sub/poetry.lock"]
    with fs.open(MODEL + "/weights.npy", "rb") as file:
        file.seek(200_000)
        expected = open(os.path.join(SOURCE, "model/weights.npy"), "rb").read()
        assert file.read(1000) == expected[200_000:201_000]
        file.seek(len(expected) - 10)
        assert file.read(1000) == expected[-10:]


def frames():
    import pandas

    assert len(pandas.read_parquet("hf://datasets/%s/data/train.parquet" % DATASET)) == 2000


def tensors():
    from huggingface_hub import get_safetensors_metadata

    assert get_safetensors_metadata(MODEL).parameter_count == {"F32": 60_000}


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
    streamed = load_dataset(DATASET, split="train", streaming=True)
    assert sum(1 for _ in streamed) == 2000


def verify():
    hf("cache", "verify", MODEL)
    hf("cache", "verify", DATASET, "--repo-type", "dataset")
    hf("cache", "verify", PLAIN)


def verify_damaged():
    """One byte of a file in the cache is another: the hashes of this endpoint say so."""
    from huggingface_hub import hf_hub_download

    path = os.path.realpath(hf_hub_download(MODEL, "weights.npy"))
    with open(path, "r+b") as file:
        file.seek(1000)
        file.write(b"\xff")
    done = subprocess.run([sys.executable, HF, "cache", "verify", MODEL], capture_output=True, text=True)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)


def upload():
    from huggingface_hub import HfApi, snapshot_download

    api = HfApi()
    api.create_repo(OWN, exist_ok=True)
    api.create_repo(OWN, exist_ok=True)
    folder = os.path.join(SOURCE, "upload")
    done = api.upload_folder(repo_id=OWN, folder_path=folder, commit_message="first")
    assert done.oid == api.model_info(OWN).sha
    assert same(folder, snapshot_download(OWN))
    again = api.upload_folder(repo_id=OWN, folder_path=folder, commit_message="nothing new")
    assert again.oid == done.oid, (again.oid, done.oid)


def commits():
    from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, hf_hub_download
    from huggingface_hub.utils import HfHubHTTPError

    api = HfApi()
    head = api.model_info(OWN).sha
    add = CommitOperationAdd("notes/new.txt", b"new")
    done = api.create_commit(OWN, [add, CommitOperationDelete("gone.txt")], commit_message="second", parent_commit=head)
    assert "gone.txt" not in api.list_repo_files(OWN)
    with open(hf_hub_download(OWN, "notes/new.txt")) as file:
        assert file.read() == "new"
    try:
        late = CommitOperationAdd("notes/late.txt", b"late")
        api.create_commit(OWN, [late], commit_message="late", parent_commit=head)
        raise AssertionError("a commit onto an old parent was taken")
    except HfHubHTTPError as error:
        assert error.response.status_code == 412, error
    copy = CommitOperationCopy(src_path_in_repo="large.bin", path_in_repo="copy.bin")
    copied = api.create_commit(OWN, [copy, CommitOperationDelete("notes/", is_folder=True)], commit_message="third", parent_commit=done.oid)
    files = api.list_repo_files(OWN)
    assert "copy.bin" in files and not any(name.startswith("notes/") for name in files), files
    assert filecmp.cmp(hf_hub_download(OWN, "copy.bin"), os.path.join(SOURCE, "upload/large.bin"), shallow=False)
    assert [commit.title for commit in api.list_repo_commits(OWN)][:3] == ["third", "second", "first"]
    assert copied.oid == api.model_info(OWN).sha


def command():
    folder = os.path.join(SOURCE, "upload")
    hf("upload", "org/by-command", folder, ".")
    local = os.path.join(os.environ["HF_HOME"], "local")
    hf("download", "org/by-command", "--local-dir", local)
    assert same(folder, local)


def large_folder():
    from huggingface_hub import HfApi, snapshot_download

    api = HfApi()
    folder = os.path.join(os.environ["HF_HOME"], "folder")
    os.makedirs(os.path.join(folder, "sub"))
    for number in range(40):
        with open(os.path.join(folder, "sub", "%d.txt" % number), "w") as file:
            file.write("file %d\n" % number)
    if hasattr(api, "upload_large_folder"):
        api.upload_large_folder(repo_id="org/large-folder", folder_path=folder, repo_type="model", num_workers=4)
    else:
        # In 2.x every folder is uploaded so.
        api.create_repo("org/large-folder")
        api.upload_folder(repo_id="org/large-folder", folder_path=folder)
    assert same(folder, snapshot_download("org/large-folder"))


def push():
    from datasets import Dataset, load_dataset

    rows = {"number": list(range(500)), "text": ["row %d" % at for at in range(500)]}
    Dataset.from_dict(rows).push_to_hub(OWN_SET)
    table = load_dataset(OWN_SET, split="train")
    assert table["number"][499] == 499 and table[7]["text"] == "row 7"
    Dataset.from_dict(rows).push_to_hub(OWN_SET, config_name="other")
    assert len(load_dataset(OWN_SET, "other", split="train")) == 500


def hf(*arguments):
    done = subprocess.run([sys.executable, HF, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError("hf %s: %d: %s%s" % (" ".join(arguments), done.returncode, done.stdout, done.stderr))
    return done.stdout


def same(one, other):
    """Files of the one are files of the other, byte for byte; what a client keeps for itself does not count."""
    def files(top):
        found = {}
        for at, directories, names in os.walk(top):
            directories[:] = [name for name in directories if name != ".cache"]
            for name in names:
                path = os.path.join(at, name)
                if name != ".gitattributes":
                    found[os.path.relpath(path, top)] = path
        return found
    one, other = files(one), files(other)
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return all(filecmp.cmp(one[name], other[name], shallow=False) for name in one)


def run(step):
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            globals()[step]()
        return "ok"
    except BaseException:
        return traceback.format_exc()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({step: run(step) for step in sys.argv[1:]}))
