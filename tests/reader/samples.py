"""Makes files of tensors, whole and broken, in a new directory: samples.py DIRECTORY."""

import io
import os
import random
import sys
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tensors"))

from models import gguf, safetensors


def pytorch(tensors):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", "a pickle")
        for name, data in tensors.items():
            archive.writestr(f"model/data/{name}", data)
    return file.getvalue()


def main():
    (directory,) = sys.argv[1:]
    os.mkdir(directory)
    source = random.Random(7)
    sizes = {"embed": 2_000_000, "norm": 4096, "up": 700_001, "bias": 16384, "down": 262_144}
    tensors = {name: source.randbytes(size) for name, size in sizes.items()}
    for name, data in {
        "safetensors": safetensors(tensors, {"format": "pt"}),
        "gguf": gguf(tensors),
        "pt": pytorch(tensors),
    }.items():
        broken = bytearray(data)
        broken[len(data) - 12 if name == "pt" else 9] ^= 0x55
        for kind, text in {"whole": data, "short": data[: len(data) // 2], "broken": bytes(broken)}.items():
            with open(os.path.join(directory, f"{kind}.{name}"), "wb") as file:
                file.write(text)


main()
