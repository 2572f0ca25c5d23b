"""Where FORMATS.md says that bytes are cut, one byte at a time, with the tables of fixtures/chunks/tables.txt."""

import hashlib
import json
import math
import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLES = os.path.join(HERE, "../../fixtures/chunks/tables.txt")
U64 = (1 << 64) - 1


def tables():
    found = {"gear": [], "mask": []}
    with open(TABLES) as lines:
        for line in lines:
            if not line.startswith("#"):
                name, index, value = line.split()
                assert int(index) == len(found[name])
                found[name].append(int(value, 16))
    return found["gear"], found["mask"]


class Chunker:
    def __init__(self, params):
        assert params["algorithm"] == "fastcdc-v2020" and params.get("tensors", 0) in (0, 1)
        self.min, self.avg, self.max = params["min"], params["avg"], params["max"]
        self.tensors = params.get("tensors", 0)
        gear, masks = tables()
        self.gear = [value ^ params["seed"] for value in gear]
        bits = math.floor(math.log2(self.avg) + 0.5)
        self.strict = masks[bits + params["normalization"]]
        self.relaxed = masks[bits - params["normalization"]]

    def cut(self, data, start, end):
        """Where the chunk ends that begins at `start`; nothing of `data` counts from `end` on."""
        size = min(end - start, self.max)
        if size <= self.min:
            return start + size
        gear, hash_ = self.gear, 0
        turn, last = start + self.avg, start + size // 2 * 2
        for at in range(start + self.min, last):
            hash_ = ((hash_ << 1) + gear[data[at]]) & U64
            if not hash_ & (self.strict if at < turn else self.relaxed):
                return at
        return start + size

    def by_content(self, data, start, end):
        while start < end:
            cut = self.cut(data, start, end)
            yield start, cut
            start = cut

    def file(self, data):
        """The chunks of a file: between its large tensors by content, in each at every `max` bytes."""
        at = 0
        for start, end in tensors(data, self.min) if self.tensors else ():
            yield from self.by_content(data, at, start)
            for cut in range(start, end, self.max):
                yield cut, min(cut + self.max, end)
            at = end
        yield from self.by_content(data, at, len(data))


class Another(Exception):
    """No file of tensors."""


def tensors(data, least):
    """Where the tensors of at least `least` bytes lie, in order."""
    if len(data) < max(least, 16):
        return []
    try:
        if data[:4] == b"GGUF":
            found = gguf(data)
        elif data[:4] == b"PK\3\4":
            found = pytorch(data)
        elif data[8:9] == b"{":
            found = list(safetensors(data))
        else:
            return []
    except (Another, ValueError, KeyError, TypeError, struct.error, RecursionError):
        return []
    before = 0
    for start, end in sorted(found):
        if not before <= start <= end <= len(data):
            return []
        before = end
    return [(start, end) for start, end in sorted(found) if end - start >= least]


def safetensors(data):
    (length,) = struct.unpack_from("<Q", data)
    if length > min(16 << 20, len(data) - 8):
        raise Another
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    for about in header.values():
        start, end = about["data_offsets"]
        if not (type(start) is type(end) is int and min(start, end) >= 0):
            raise Another
        yield 8 + length + start, 8 + length + end


class Cursor:
    def __init__(self, data, at):
        self.data, self.at = data, at

    def take(self, layout):
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.skip(struct.calcsize("<" + layout))
        return values[0] if len(values) == 1 else values

    def skip(self, length):
        self.at += length
        if self.at > len(self.data):
            raise Another


def gguf(data):
    header = Cursor(data, 4)
    version, count, values = header.take("IQQ")
    if version not in (2, 3):
        raise Another
    alignment = 32
    for _ in range(values):
        length = header.take("Q")
        name = data[header.at : header.at + length]
        header.skip(length)
        kind = header.take("I")
        if name == b"general.alignment":
            if kind != 4:
                raise Another
            alignment = header.take("I")
        else:
            pass_over(header, kind, 0)
    offsets = []
    for _ in range(count):
        header.skip(header.take("Q"))
        dimensions = header.take("I")
        if dimensions > 16:
            raise Another
        header.skip(8 * dimensions + 4)
        offsets.append(header.take("Q"))
    if alignment == 0:
        raise Another
    begin = -(-header.at // alignment) * alignment
    starts = sorted(begin + offset for offset in offsets)
    return list(zip(starts, starts[1:] + [len(data)]))


WIDTHS = {0: 1, 1: 1, 7: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 10: 8, 11: 8, 12: 8}


def pass_over(header, kind, depth):
    if kind in WIDTHS:
        header.skip(WIDTHS[kind])
    elif kind == 8:
        header.skip(header.take("Q"))
    elif kind == 9 and depth < 4:
        kind, count = header.take("IQ")
        if kind in WIDTHS:
            header.skip(count * WIDTHS[kind])
        else:
            for _ in range(count):
                pass_over(header, kind, depth + 1)
    else:
        raise Another


def pytorch(data):
    end = len(data) - 22
    magic, disks, here, count, length, start, comment = struct.unpack_from("<4sIHHIIH", data, end)
    if magic != b"PK\5\6" or disks or comment or here != count:
        raise Another
    if count == 0xFFFF or length == 0xFFFFFFFF or start == 0xFFFFFFFF:
        magic, disk, record = struct.unpack_from("<4sIQ", data, end - 20)
        if magic != b"PK\6\7" or disk or record > end - 20 or data[record : record + 4] != b"PK\6\6":
            raise Another
        here, count, length, start = struct.unpack_from("<4Q", data, record + 24)
        end = record
        if here != count:
            raise Another
    if start + length > end:
        raise Another
    directory, found, is_of_pytorch = Cursor(data, start), [], False
    for _ in range(count):
        magic, flags, method, stored, size = directory.take("4s4xHH8xII")
        name_len, extra_len, comment_len, at = directory.take("HHH8xI")
        if magic != b"PK\1\2":
            raise Another
        name = data[directory.at : directory.at + name_len]
        directory.skip(name_len)
        extra = data[directory.at : directory.at + extra_len]
        directory.skip(extra_len + comment_len)
        size, stored, at = long_numbers(extra, [size, stored, at])
        inside = name.split(b"/", 1)[1] if b"/" in name else b""
        is_of_pytorch |= inside == b"data.pkl"
        if inside.startswith(b"data/") and method == 0 and not flags & 1 and stored == size:
            magic, name_len, extra_len = struct.unpack_from("<4s22xHH", data, at)
            begin = at + 30 + name_len + extra_len
            if magic != b"PK\3\4" or begin + size > start:
                raise Another
            found.append((begin, begin + size))
    if not is_of_pytorch or directory.at != start + length:
        raise Another
    return found


def long_numbers(extra, numbers):
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        field, at = extra[at + 4 : at + 4 + length], at + 4 + length
        if at > len(extra):
            raise Another
        if kind == 1:
            for index, number in enumerate(numbers):
                if number == 0xFFFFFFFF and len(field) >= 8:
                    numbers[index], field = struct.unpack("<Q", field[:8])[0], field[8:]
    return numbers


def generate(kind, length):
    """The files that fixtures/chunks/boundaries.txt describes."""
    from blake3 import blake3

    if kind == "zeros":
        return bytes(length)
    random = blake3(kind.encode()).digest(length)
    if kind == "random":
        return random
    words = b"the of data model layer token batch weight epoch loss step rank node shard cache ref".split()
    return b"".join(words[byte & 15] + (b"\n" if byte < 16 else b" ") for byte in random)[:length]


def boundaries(lines):
    """Compares each case of fixtures/chunks/boundaries.txt; with others, prints what would stand there."""
    from blake3 import blake3

    for line in lines:
        low, avg, high, normalization, seed, kind, length = line.split()[1:]
        params = dict(algorithm="fastcdc-v2020", min=int(low), avg=int(avg), max=int(high), tensors=0)
        chunker = Chunker(params | dict(normalization=int(normalization), seed=int(seed)))
        data = generate(kind, int(length))
        yield line.strip()
        for start, end in chunker.by_content(data, 0, len(data)):
            yield f"{end - start} {blake3(data[start:end]).hexdigest()}"


def published(path):
    """Compares with what the Remote Execution API has published for FAST_CDC_2020."""
    with open(path, "rb") as file:
        data = file.read()
    found, expected = [], []
    with open(os.path.join(HERE, "../../fixtures/chunks/fast_cdc_2020.txt")) as lines:
        for line in lines:
            words = line.split()
            if words[0] == "image":
                assert [hashlib.sha256(data).hexdigest(), str(len(data))] == words[1:], f"{path}: another file"
            elif words[0] == "seed":
                params = dict(algorithm="fastcdc-v2020", min=4096, avg=16384, max=65536, tensors=0)
                chunker = Chunker(params | dict(normalization=2, seed=int(words[1])))
                for start, end in chunker.by_content(data, 0, len(data)):
                    found.append([str(end - start), hashlib.sha256(data[start:end]).hexdigest()])
            elif words[0] != "#":
                expected.append(words)
    if found != expected or not expected:
        sys.exit("fastcdc: cuts differ from the published ones")
    print(f"fastcdc: {len(expected)} chunks are those that were published")


def main():
    if len(sys.argv) > 1:
        return published(sys.argv[1])
    with open(os.path.join(HERE, "../../fixtures/chunks/boundaries.txt")) as lines:
        expected = [line.strip() for line in lines if not line.startswith("#")]
    cases = [line for line in expected if line.startswith("case ")]
    found = list(boundaries(cases))
    if found != expected:
        sys.exit("fastcdc: boundaries differ from those of the fixture")
    print(f"fastcdc: {len(cases)} files are cut as the fixture says")


if __name__ == "__main__":
    main()
