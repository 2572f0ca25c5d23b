"""Makes files of tensors, whole and broken, in a new directory: samples.py DIRECTORY.

With --trained STEPS: a model of single and one of half the precision, after so many steps of a little training.
"""

import io
import os
import random
import struct
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


def trained(steps, directory):
    weights = [0.0] * 400_000
    for step in range(steps + 1):
        source = random.Random(step)
        by = 0.001 if step else 0.1
        weights = [weight + source.gauss(0, by) * 0.2 for weight in weights]
    single = struct.pack(f"<{len(weights)}f", *weights)
    half = b"".join(single[at + 2 : at + 4] for at in range(0, len(single), 4))
    os.makedirs(directory, exist_ok=True)
    for name, data in ("single", single), ("half", half):
        with open(os.path.join(directory, name + ".safetensors"), "wb") as file:
            file.write(safetensors({"all": data}, {"format": "pt"}))
    with open(os.path.join(directory, "plain"), "wb") as file:
        file.write(bytes(31) + half)


def main():
    if sys.argv[1] == "--trained":
        return trained(int(sys.argv[2]), sys.argv[3])
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
