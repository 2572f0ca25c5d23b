"""Trees to compare tools on: made from a seed, or unpacked from packages of PyPI. Each is a pair, a tree and its next version."""

import json
import pathlib
import shutil
import struct
import subprocess
import sys
import zipfile

import numpy
import pyarrow
import pyarrow.ipc

SEED = 20260101
# Two versions of packages with much machine code.
WHEELS = [
    ("scipy", "1.14.1", "1.15.3"),
    ("numpy", "2.1.3", "2.2.6"),
    ("pyarrow", "19.0.1", "20.0.0"),
    ("polars", "1.29.0", "1.30.0"),
    ("scikit-learn", "1.6.0", "1.6.1"),
]


def binaries(before, after, scale):
    """Unpacked wheels, and their next versions."""
    wheels = WHEELS[: max(1, round(len(WHEELS) * min(scale, 1)))]
    downloads = before.parent / "wheels"
    for place, versions in ((before, [(n, a) for n, a, _ in wheels]), (after, [(n, b) for n, _, b in wheels])):
        for name, version in versions:
            target = downloads / f"{name}-{version}"
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                 "--python-version", "3.12", "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64",
                 "--platform", "manylinux_2_17_x86_64", "--dest", target, f"{name}=={version}"],
                check=True, stdout=sys.stderr,
            )
            for wheel in target.glob("*.whl"):
                zipfile.ZipFile(wheel).extractall(place / name)
    shutil.rmtree(downloads)


def safetensors(path, tensors):
    """Writes bf16 tensors, {name: array of uint16}, in the format of the crate safetensors."""
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            array.tofile(file)


def bf16(random, shape):
    """Normal values of a width that differs by tensor, cut to their upper halves."""
    values = random.standard_normal(shape, dtype=numpy.float32) * numpy.float32(random.uniform(0.01, 0.05))
    return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)


def weights(before, after, scale):
    """Shards of bf16 tensors; one tensor in ten of the next version was trained on, and moved a little."""
    random = numpy.random.default_rng(SEED)
    for shard in range(max(1, round(6 * scale))):
        tensors = {f"layers.{n}.weight": bf16(random, (1024, 4096)) for n in range(10)}
        safetensors(before / f"model-{shard:05}.safetensors", tensors)
        name = f"layers.{shard % 10}.weight"
        old = (tensors[name].astype(numpy.uint32) << 16).view(numpy.float32)
        moved = old + random.standard_normal(old.shape, dtype=numpy.float32) * numpy.float32(5e-3) * numpy.abs(old)
        tensors[name] = (moved.view(numpy.uint32) >> 16).astype(numpy.uint16)
        safetensors(after / f"model-{shard:05}.safetensors", tensors)


def arrow(before, after, scale):
    """A table of text and numbers in the IPC format; 0.5 % of the rows of the next version differ, and 2 % follow."""
    random = numpy.random.default_rng(SEED + 1)
    words = numpy.array(["".join(map(chr, random.integers(97, 123, random.integers(2, 10)))) for _ in range(20_000)])
    weights = 1 / numpy.arange(1, len(words) + 1)
    rows = 5_000

    def batch():
        lengths = random.integers(20, 160, rows)
        chosen = random.choice(words, lengths.sum(), p=weights / weights.sum())
        texts = [" ".join(part) for part in numpy.split(chosen, lengths.cumsum()[:-1])]
        return {"id": random.integers(0, 1 << 40, rows), "score": random.random(rows, dtype=numpy.float32), "text": texts}

    old = [batch() for _ in range(max(2, round(110 * scale)))]
    new = [dict(one) for one in old]
    for one in new[:: 20]:
        one["text"] = [text if n % 10 else text.upper() for n, text in enumerate(one["text"])]
    new += [batch() for _ in range(max(1, len(old) // 50))]
    for place, batches in ((before, old), (after, new)):
        tables = [pyarrow.record_batch(one) for one in batches]
        with pyarrow.ipc.new_stream(place / "train.arrow", tables[0].schema) as out:
            for table in tables:
                out.write_batch(table)


def neff(before, after, scale):
    """Directories like those of a compiler's cache: machine code of a small alphabet, padding, a graph in text; one in
    eight of the next version is new."""
    random = numpy.random.default_rng(SEED + 2)
    kernels = [random.integers(0, 64, random.integers(2_000, 60_000), dtype=numpy.uint8).tobytes() for _ in range(400)]

    def module(place, number):
        directory = place / f"neuronxcc-2.16/MODULE_{number:016x}+abcdef01"
        directory.mkdir(parents=True)
        parts = []
        for _ in range(260):
            parts.append(kernels[random.integers(len(kernels))])
            parts.append(random.integers(0, 256, random.integers(100, 9_000), dtype=numpy.uint8).tobytes())
            parts.append(bytes(int(random.integers(0, 20_000))))
        (directory / "model.neff").write_bytes(b"".join(parts))
        graph = "\n".join(f"%{n} = f32[{n % 64},128] dot(%{n - 1}, %{n // 2})" for n in range(20_000))
        (directory / "model.hlo_module.pb").write_text(f"module {number}\n{graph}")
        (directory / "model.done").write_text("")

    count = max(2, round(48 * scale))
    for number in range(count):
        module(before, number)
    shutil.copytree(before, after, dirs_exist_ok=True)
    for number in range(count, count + max(1, count // 8)):
        module(after, number)


def small(before, after, scale):
    """100,000 files in 10,000 directories; one in a hundred of the next version differs."""
    random = numpy.random.default_rng(SEED + 3)
    words = [random.bytes(int(random.integers(2, 9))).hex() for _ in range(5_000)]
    directories = max(100, round(10_000 * scale))
    for number in range(directories):
        place = before / f"{number // 100:03}/{number % 100:02}"
        place.mkdir(parents=True)
        for file in range(10):
            chosen = random.integers(0, len(words), random.integers(10, 700))
            (place / f"{file}.json").write_text(" ".join(words[one] for one in chosen))
    subprocess.run(["cp", "-a", f"{before}/.", after], check=True)
    for number in range(0, directories, 10):
        (after / f"{number // 100:03}/{number % 100:02}/3.json").write_text(f"changed {number}")


CORPORA = {"binaries": binaries, "weights": weights, "arrow": arrow, "neff": neff, "small": small}


def make(name, place, scale):
    """The pair of trees, made unless they are there."""
    before, after = place / name / "1", place / name / "2"
    done = place / name / "done"
    if not done.exists() or done.read_text() != str(scale):
        shutil.rmtree(place / name, ignore_errors=True)
        before.mkdir(parents=True)
        after.mkdir()
        CORPORA[name](before, after, scale)
        done.write_text(str(scale))
    return before, after


def size_of(tree):
    """Bytes of all files, and their number."""
    files = [path for path in pathlib.Path(tree).rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(path.stat().st_size for path in files), len(files)
