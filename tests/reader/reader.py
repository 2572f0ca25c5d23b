"""Reads a store in a directory, written from store/FORMATS.md alone: reader.py STORE REF DEST.

Shares no code with the engine, and checks every sum, bound and order that the document names. What it
and the engine do not agree on is a defect of one of the three. Uses the newest checkpoint if there is one
and `--log` is not given.
"""

import json
import os
import struct
import sys

import zstandard
from blake3 import blake3

import fastcdc


# What is left of "raw length and kind" without the kind.
RAW_LENGTH = (1 << 31) - 1


def digest(data):
    return blake3(data).digest()


def check(condition, what):
    if not condition:
        sys.exit(f"reader: {what}")


def unseal(data, magic):
    line, seal = data[:-72], data[-72:]
    check(line.endswith(b"\n") and b"\n" not in line[:-1], f"{magic}: two lines")
    line = line[:-1]
    check(seal == b"blake3 " + blake3(line).hexdigest().encode() + b"\n", f"{magic}: checksum")
    value = json.loads(line)
    check((value["magic"], value["version"]) == (magic, 2), f"{magic}: magic and version")
    return value


def two_lines(data):
    """The sealed text that an object begins with, and what lies behind it."""
    end = data.index(b"\n") + 1 + 72
    return data[:end], data[end:]


def entry_id(text):
    """By what the entry after it names an entry."""
    return json.loads(text[:-73]).get("stands_for") or blake3(text[:-73]).hexdigest()


def leaves(store, content):
    """The lengths of the chunks of a content."""

    def below(name, depth):
        data = store.chunk(name)
        if depth == 0:
            yield len(data)
            return
        for child, _ in struct.iter_unpack("<32sQ", data[8:]):
            yield from below(child, depth - 1)

    size, depth, root = content
    return list(below(root, depth)) if size else []


def check_cuts(store, place, content, data):
    """Whether a file of tensors, or a small one, was cut where the document says."""
    chunker = store.chunker
    is_slow = len(data) > 4 << 20 and not (chunker.tensors and fastcdc.tensors(data, chunker.min))
    if not is_slow:
        expected = [end - start for start, end in chunker.file(data)]
        check(leaves(store, content) == expected, f"cuts of {place}")
        store.compared += 1


def total(data):
    return blake3(data).digest()[:8]


def unpacked(data, length, what):
    frame = zstandard.ZstdDecompressor().decompressobj()
    raw = frame.decompress(data)
    check(frame.eof and not frame.unused_data and len(raw) == length, f"{what}: one frame of {length} bytes")
    return raw


def row_key(data, at):
    """Name and number that a row begins with, and what is behind them."""
    (length,) = struct.unpack_from("<H", data, at)
    (number,) = struct.unpack_from("<Q", data, at + 2 + length)
    return data[at + 2 : at + 2 + length], number, at + 10 + length


def version(value):
    """What the row of a version says, in the words of set_ref."""
    at = 0

    def take(layout):
        nonlocal at
        found = struct.unpack_from("<" + layout, value, at)
        at += struct.calcsize("<" + layout)
        return found

    def content():
        size, depth, root = take("QB32s")
        return {"size": size, "depth": depth, "root": root.hex()}

    (flags,) = take("B")
    check(flags & ~31 == 0 and flags & 3 != 3, "flags of a version")
    root = {"kind": "tree" if flags & 1 else "file", "content": content()}
    if flags & 1:
        entries, size = take("QQ")
        root["totals"] = {"entries": entries, "bytes": size}
    else:
        root["executable"], size = bool(flags & 2), root["content"]["size"]
    take("qi")
    if flags & 16:
        take("qi")
    sides = []
    for _ in range(take("H")[0]):
        (length,) = take("B")
        (kind,) = take(f"{length}s")
        sides.append({"kind": kind.decode(), "content": content()})
    for _ in range(4):
        (length,) = take("I")
        take(f"{length}s")[0].decode()
    more = json.loads(value[at:]) if value[at:] else {}
    return {**more, "root": root, "sides": sides, "private": bool(flags & 8), "bytes": size}


def planes(payload, raw):
    """Numbers of 2 or 4 bytes, whose bytes of equal place were stored side by side."""
    width = {1: 2, 2: 4}[payload[0] & 3]
    turned, phase = payload[0] >> 2 & 1, payload[0] >> 3 & 3
    check(payload[0] < 32 and phase < width, "planes: layout")
    count = (raw - phase) // width
    lengths = struct.unpack_from(f"<{width}I", payload, 1)
    at = 1 + 4 * width + phase
    elements = bytearray(count * width)
    for place, length in enumerate(lengths):
        plane = payload[at : at + length]
        at += length
        if length != count:
            plane = zstandard.ZstdDecompressor().decompress(plane, max_output_size=count)
        elements[place::width] = plane
    if turned:
        form, top = f"<{count}{'H' if width == 2 else 'I'}", 8 * width - 1
        values = struct.unpack(form, elements)
        elements = struct.pack(form, *(value >> 1 | (value & 1) << top for value in values))
    return payload[1 + 4 * width : 1 + 4 * width + phase] + bytes(elements) + payload[at:]


def differences(payload, raw, bring):
    """Width, phase, base chunks, and the bytes that the differences to these stand for; `bring` gives a plain chunk."""
    width = {1: 2, 2: 4}[payload[0] & 3]
    phase = payload[0] >> 2
    (count, skip) = struct.unpack_from("<HI", payload, 1)
    check(phase < width and 1 <= count <= 1024, "delta: elements and bases")
    names = [payload[7 + 32 * at : 39 + 32 * at] for at in range(count)]
    base = b"".join(map(bring, names))[skip:]
    check(len(base) >= raw, "delta: bytes of its base")
    own = plain(payload[7 + 32 * count :], raw)
    elements = (raw - phase) // width
    form, bits = f"<{elements}{'H' if width == 2 else 'I'}", 8 * width
    values = struct.unpack_from(form, own, phase)
    before = struct.unpack_from(form, base, phase)
    mask = (1 << bits) - 1
    values = ((b + (z >> 1 ^ -(z & 1))) & mask for b, z in zip(before, values, strict=True))
    end = phase + elements * width
    return names, own[:phase] + struct.pack(form, *values) + own[end:]


def plain(data, raw):
    """What a frame decodes to that needs no other."""
    check(data[0] in (0, 1, 2), f"codec {data[0]} of a plain frame")
    payload = data[1:]
    if data[0] == 1:
        payload = zstandard.ZstdDecompressor().decompress(payload, max_output_size=raw)
    elif data[0] == 2:
        payload = planes(payload, raw)
    check(len(payload) == raw, "raw length of a frame")
    return payload


class Store:
    def __init__(self, root, use_checkpoint):
        self.root = root
        description = unseal(self.read("format"), "store-format")
        check(description["hash"] == "blake3", "hash")
        check(not description["features"]["incompatible"], "unknown features")
        self.deltas = 0
        self.id, self.last = description["id"], None
        self.chunker, self.compared = fastcdc.Chunker(description["chunker"]), 0
        self.segments, self.condemned, self.refs, self.number = {}, {}, {}, 0
        self.passes, self.tables = {}, {}
        self.layers = 0
        if use_checkpoint:
            self.load_checkpoint()
        self.fold_log()
        self.places, self.frames, self.needs = {}, {}, {}
        for name in sorted(self.segments):
            self.load_segment(name)

    def read(self, key):
        with open(os.path.join(self.root, key), "rb") as file:
            return file.read()

    def load_checkpoint(self):
        place = os.path.join(self.root, "checkpoints")
        names = os.listdir(place) if os.path.isdir(place) else []
        if not names:
            return
        newest = max(int(name) for name in names)
        state, rows, _ = self.open_checkpoint(newest)
        check((state["number"], state["store"]) == (newest, self.id), "number and store of the checkpoint")
        check(state.get("features", {}).get("incompatible", []) in ([], ["delta-frames"]), "unknown features")
        self.number, self.last = newest, state["entry"]
        log = f"log/{newest // 10000:06}/{newest:08}"
        check(entry_id(two_lines(self.read(log))[0]) == self.last, f"{log}: is the one of the checkpoint")
        self.segments = {name: info["added"]["entry"] for name, info in state["segments"].items()}
        self.passes = {name: info.get("pass") for name, info in state["segments"].items()}
        self.condemned = dict.fromkeys(state["condemned"], True)
        before, self.layers = newest, len(state["layers"])
        for layer in state["layers"]:
            check(layer["number"] < before, "layers: in order")
            before = layer["number"]
            _, below, own = self.open_checkpoint(before, layer["bytes"])
            check(own == layer["id"], f"checkpoint {before}: is the one that is named")
            rows = {**below, **rows}
        rows = {key: value for key, value in rows.items() if value}
        for (kind, name, number), value in rows.items():
            if kind == 0:
                last, live, newest, size = struct.unpack("<4Q", value[:32])
                numbers = [at for of, one, at in rows if of and one == name]
                check(len(numbers) == live and max(numbers, default=0) == newest <= last, f"{name}: versions")
                self.refs[name] = {}
        for (kind, name, number), value in rows.items():
            if kind:
                self.refs[name][number] = version(value)
        self.check_sums(state)

    def open_checkpoint(self, number, size=None):
        """Head, rows by key, and id of a checkpoint."""
        what = f"checkpoint {number}"
        data = self.read(f"checkpoints/{number:08}")
        check(size in (None, len(data)), f"{what}: length")
        check(data[:16] == b"STORECKP" + struct.pack("<H6x", 3), f"{what}: header")
        check(data[-16:] == struct.pack("<H6x", 3) + b"STORECKP", f"{what}: end")
        fields = struct.unpack("<5Q", data[-88:-48])
        head_len, head_raw, index_len, index_raw, count = fields
        start = len(data) - 88 - index_len - head_len
        check(start >= 16 and digest(data[start:-48]) == data[-48:-16], f"{what}: checksum")
        head = unpacked(data[start : start + head_len], head_raw, what)
        index = unpacked(data[start + head_len : -88], index_raw, what)
        rows, at, offset = {}, 0, 16
        while at < len(index):
            name, first, at = row_key(index, at)
            stored, raw, expected = struct.unpack_from("<3I", index, at)
            block = data[offset : offset + stored]
            check(total(block) == index[at + 12 : at + 20], f"{what}: sum of the block at {offset}")
            at, offset = at + 20, offset + stored
            block, place, found = unpacked(block, raw, what), 0, []
            while place < len(block):
                key, own, place = row_key(block, place)
                (length,) = struct.unpack_from("<I", block, place)
                found.append(((int(own > 0), key, own), block[place + 4 : place + 4 + length]))
                place += 4 + length
            check(place == len(block) and len(found) == expected > 0, f"{what}: rows of a block")
            check(found[0][0] == (int(first > 0), name, first), f"{what}: first row of a block")
            for key, value in found:
                check(not rows or next(reversed(rows)) < key, f"{what}: order")
                rows[key] = value
        check(offset == start and len(rows) == count, f"{what}: blocks")
        named = {(kind, name.decode(), own): value for (kind, name, own), value in rows.items()}
        return json.loads(head), named, data[-48:-16].hex()

    def check_sums(self, state):
        sums = {}
        for name, versions in self.refs.items():
            if versions:
                own = sums.setdefault("/".join(name.split("/")[:2]), [0] * 5)
                own[0] += 1
                own[1] += len(versions)
                own[2] += sum(one["private"] for one in versions.values())
                own[3] += versions[max(versions)]["bytes"]
                own[4] += sum(one["bytes"] for one in versions.values())
        fields = ("refs", "versions", "private_versions", "bytes", "version_bytes")
        said = {name: [of[field] for field in fields] for name, of in state["namespaces"].items()}
        check(said == sums, "sums of the namespaces")

    def fold_log(self):
        while True:
            number = self.number + 1
            key = f"log/{number // 10000:06}/{number:08}"
            if not os.path.exists(os.path.join(self.root, key)):
                return
            own, behind = two_lines(self.read(key))
            entry = unseal(own, "store-log")
            check((entry["number"], entry["store"]) == (number, self.id), f"{key}: number and store")
            check(entry.get("prev") == self.last, f"{key}: follows another entry")
            if behind:
                check(unseal(behind, "store-log")["number"] == number - 1, f"{key}: the copy behind it")
                check(entry_id(behind) == self.last, f"{key}: the copy behind it is of another entry")
            self.number, self.last = number, entry_id(own)
            for change in entry["changes"]:
                self.fold(change)

    def fold(self, change):
        op = change["op"]
        if op == "add_segment":
            check(change["segment"] not in self.segments, "a new segment")
            self.segments[change["segment"]] = self.number
            self.passes[change["segment"]] = change.get("pass")
        elif op == "drop_segment":
            del self.segments[change["segment"]]
            into = change.get("into")
            check(not into or self.segments.get(into) == self.number, "folded into one that the entry adds")
        elif op == "condemn_packs":
            self.condemned.update(dict.fromkeys(change["packs"], True))
        elif op == "forget":
            for pack in change["packs"]:
                self.condemned.pop(pack, None)
        elif op == "set_ref":
            self.refs.setdefault(change["name"], {})[change["version"]] = change
            for name, own in self.passes.items():
                self.passes[name] = None if own in change.get("ends", []) else own
        elif op == "drop_ref":
            del self.refs[change["name"]][change["version"]]
        elif op == "set_feature":
            is_known = change["name"] == "delta-frames" or change["kind"] != "incompatible"
            check(is_known, f"unknown feature {change['name']}")
        else:
            check(op in ("pin", "set_policy"), f"unknown change {op}")

    def load_segment(self, name):
        data = self.read(f"segments/{name}")
        fields = struct.unpack("<8sHB5s16s16sQQIII12s8s", data[:96])
        magic, version, bits, pad, own, store, began, chunks, frames, packs, bases, pad2, header_sum = fields
        check((magic, version, own.hex()) == (b"STORESEG", 2, name), f"segment {name}: header")
        check(store.hex() == self.id and began < self.segments[name], f"segment {name}: comes from elsewhere")
        check(not any(pad + pad2), f"segment {name}: padding")
        check(total(data[:88]) == header_sum, f"segment {name}: sum of the header")
        entries_at = 96 + ((1 << bits) + 1) * 4
        frames_at = entries_at + 44 * chunks
        bases_at = frames_at + 16 * frames
        packs_at = bases_at + 36 * bases
        check(packs_at + 32 * packs + 40 == len(data), f"segment {name}: length")
        check(data[-40:-32] == b"STORESGE" and digest(data[:-40]) == data[-32:], f"segment {name}: checksum")
        fanout = struct.unpack(f"<{(1 << bits) + 1}I", data[96:entries_at])
        frame_rows = list(struct.iter_unpack("<4I", data[frames_at:bases_at]))
        base_rows = list(struct.iter_unpack("<I32s", data[bases_at:packs_at]))
        check([frame for frame, _ in base_rows] == sorted(frame for frame, _ in base_rows), f"segment {name}: bases")
        needs = {}
        for frame, base in base_rows:
            needs.setdefault(frame, []).append(base)
        pack_rows = list(struct.iter_unpack("<16sIB11s", data[packs_at:-40]))
        found, last = {}, b""
        rows = struct.iter_unpack("<32s3I", data[entries_at:frames_at])
        for position, (chunk, frame, offset, length) in enumerate(rows):
            check(chunk > last, f"segment {name}: order")
            last = chunk
            prefix = int.from_bytes(chunk[:4], "big") >> (32 - bits)
            check(fanout[prefix] <= position < fanout[prefix + 1], f"segment {name}: fan-out")
            pack, begin, stored, raw = frame_rows[frame]
            check(pack_rows[pack][2] in (2, raw >> 31), f"segment {name}: kind of frame {frame}")
            check(0 < length and offset + length <= raw & RAW_LENGTH, f"segment {name}: bounds")
            found[chunk] = (pack_rows[pack][0].hex(), begin, stored, raw, offset, length)
            self.needs[pack_rows[pack][0].hex(), begin] = needs.get(frame, [])
        self.tables[name] = (frame_rows, pack_rows, data[entries_at:frames_at], needs)
        for own, length, kind, _ in pack_rows:
            if own.hex() not in self.condemned:
                self.check_pack(own.hex(), length, kind, found)
        for chunk, place in found.items():
            if place[0] not in self.condemned and (chunk not in self.places or not self.needs[place[:2]]):
                self.places[chunk] = place

    def check_pack(self, name, length, kind, found):
        """The pack's own table says what the segment says about it."""
        data = self.read(f"packs/{name[:2]}/{name}")
        fields = struct.unpack("<8sHB5s16s16sQ16s8s", data[:80])
        magic, version, own_kind, pad, own, store, began, own_key, header_sum = fields
        head = (magic, version, own_kind, own.hex(), len(data))
        check(head == (b"STOREPAK", 2, kind, name, length), f"pack {name}: header")
        check(total(data[:72]) == header_sum and not any(pad), f"pack {name}: sum of the header")
        check(store.hex() == self.id and began < self.number, f"pack {name}: comes from elsewhere")
        check(not any(own_key), f"pack {name}: of a key")
        fields = struct.unpack("<8sH2sIIII4s32s", data[-64:])
        magic, version, _, table, frames, chunks, bases, _, checksum = fields
        check((magic, version) == (b"STOREPKE", 2), f"pack {name}: trailer")
        check(table + 20 * frames + 36 * chunks + 36 * bases + 64 == len(data), f"pack {name}: length")
        check(digest(data[:80] + data[table:-32]) == checksum, f"pack {name}: checksum")
        bases_at = table + 20 * frames + 36 * chunks
        chunk_rows = struct.iter_unpack("<32sI", data[table + 20 * frames : bases_at])
        needs = {}
        for frame, base in struct.iter_unpack("<I32s", data[bases_at:-64]):
            needs.setdefault(frame, []).append(base)
        check(list(needs) == sorted(needs) and len(needs) <= frames, f"pack {name}: bases")
        begin = 80
        rows = struct.iter_unpack("<3I8s", data[table : table + 20 * frames])
        for number, (stored, raw, count, own) in enumerate(rows):
            named = self.needs.get((name, begin))
            check(named in (None, needs.get(number, [])), f"pack {name}: bases of the frame at {begin}")
            check((data[begin] == 3) == (number in needs), f"pack {name}: codec of the frame at {begin}")
            check(kind in (2, raw >> 31), f"pack {name}: kind of the frame at {begin}")
            check(total(data[begin : begin + stored]) == own, f"pack {name}: sum of the frame at {begin}")
            offset = 0
            for _ in range(count):
                chunk, size = next(chunk_rows)
                place = found.get(chunk)
                if place and place[0] == name:
                    check(place[1:] == (begin, stored, raw, offset, size), f"pack {name}: place")
                offset += size
            check(offset == raw & RAW_LENGTH and 2 <= stored <= offset + 1, f"pack {name}: lengths")
            begin += stored
        check(begin == table and next(chunk_rows, None) is None, f"pack {name}: frames fill it")

    def frame(self, pack, begin, stored, raw):
        if (pack, begin) not in self.frames:
            if len(self.frames) > 64:
                self.frames.clear()
            with open(os.path.join(self.root, "packs", pack[:2], pack), "rb") as file:
                file.seek(begin)
                data = file.read(stored)
            if self.needs[pack, begin]:
                check(data[0] == 3, f"pack {pack}: codec {data[0]} of a delta at {begin}")
                named, payload = differences(data[1:], raw, self.base)
                check(named == self.needs[pack, begin], f"pack {pack}: bases of the delta at {begin}")
                self.deltas += 1
            else:
                payload = plain(data, raw)
            self.frames[pack, begin] = payload
        return self.frames[pack, begin]

    def base(self, name):
        """A chunk that others are the difference to lies in a plain frame."""
        check(not self.needs[self.places[name][:2]], f"base {name.hex()}: lies in a delta")
        return self.chunk(name)

    def chunk(self, name):
        pack, begin, stored, raw, offset, length = self.places[name]
        data = self.frame(pack, begin, stored, raw & RAW_LENGTH)[offset : offset + length]
        check(digest(data) == name, f"chunk {name.hex()}")
        return data

    def content(self, size, depth, root):
        if size == 0:
            check((depth, root) == (0, digest(b"")), "the empty content")
            return b""
        data = self.below(root, depth)
        check(len(data) == size, f"size of {root.hex()}")
        return data

    def below(self, name, depth):
        data = self.chunk(name)
        if depth == 0:
            return data
        magic, version, level, count = struct.unpack("<4sBBH", data[:8])
        check((magic, version, level) == (b"clst", 1, depth - 1), f"list {name.hex()}")
        check(1 <= count <= 1024 and len(data) == 8 + 40 * count, f"list {name.hex()}: length")
        parts = []
        for child, size in struct.iter_unpack("<32sQ", data[8:]):
            parts.append(self.below(child, depth - 1))
            check(len(parts[-1]) == size, f"list {name.hex()}: size of {child.hex()}")
        return b"".join(parts)


def tree(data):
    """The entries of a tree: name, kind, and a content, a target, or a content and totals."""
    check(data[:8] == b"tree\x01\0\0\0", "header of a tree")
    at, last = 8, b""
    while at < len(data):
        kind, length = data[at], data[at + 1]
        name = data[at + 2 : at + 2 + length]
        at += 2 + length
        check(name > last and b"/" not in name and name not in (b".", b".."), f"name {name}")
        last = name
        if kind == 2:
            (length,) = struct.unpack_from("<H", data, at)
            yield name, kind, data[at + 2 : at + 2 + length]
            at += 2 + length
            continue
        (size,) = struct.unpack_from("<Q", data, at)
        at += 8
        content = (0, 0, digest(b""))
        if size > 0:
            content = (size, data[at], data[at + 1 : at + 33])
            at += 33
        if kind == 3:
            yield name, kind, (content, struct.unpack_from("<2Q", data, at))
            at += 16
        else:
            check(kind in (0, 1), f"kind {kind}")
            yield name, kind, content


def times(data):
    """Seconds and nanoseconds, one after another."""
    check(data[:8] == b"time\x01\0\0\0", "header of times")
    numbers, value, shift = [], 0, 0
    for byte in data[8:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value, shift = 0, 0
    secs = 0
    for delta, nanos in zip(numbers[::2], numbers[1::2], strict=True):
        secs += (delta >> 1) ^ -(delta & 1)
        yield secs * 10**9 + nanos


def kept(data, magic, count):
    """The numbers of a list of modes (one an entry) or owners (two)."""
    check(data[:8] == magic + b"\1\0\0\0", f"header of {magic}")
    numbers, value, shift = [], 0, 0
    for byte in data[8:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            check(byte or shift == 7, f"{magic}: a number is spelled long")
            numbers.append(value)
            value, shift = 0, 0
    check(shift == 0 and len(numbers) % count == 0, f"{magic}: cut short")
    most = 0o7777 if count == 1 else 2**32 - 2
    check(all(number <= most for number in numbers), f"{magic}: out of range")
    return [tuple(numbers[at : at + count]) for at in range(0, len(numbers), count)]


def number(data, at):
    """A LEB128 number and the offset behind it."""
    value, shift = 0, 0
    while True:
        check(at < len(data) and shift < 35, "xattrs: cut short")
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            check(byte or shift == 7, "xattrs: a number is spelled long")
            return value, at


def attributes(data):
    """The extended attributes of each entry: values by name."""
    check(data[:8] == b"xatr\1\0\0\0", "header of xattrs")
    entries, at = [], 8
    while at < len(data):
        (count, at), start, found = number(data, at), at, {}
        for _ in range(count):
            texts = []
            for most in 255, 65536:
                size, at = number(data, at)
                check(size <= most and at + size <= len(data), "xattrs: too long, or cut short")
                texts.append(data[at : at + size])
                at += size
            check(texts[0] and 0 not in texts[0] and all(name < texts[0] for name in found), "xattrs: names in order")
            found[texts[0]] = texts[1]
        check(at - start <= 1 << 20, "xattrs: bytes of an entry")
        entries.append(found)
    return entries


def extract(store, path, content, stamps):
    """Makes the tree at `path`; gives its entries and bytes."""
    own = next(stamps)
    os.mkdir(path)
    entries, size = 0, 0
    for name, kind, what in tree(store.content(*content)):
        entries += 1
        place = os.path.join(path, name)
        if kind == 3:
            totals = extract(store, place, what[0], stamps)
            check(totals == what[1], f"totals of {place}")
            entries, size = entries + totals[0], size + totals[1]
            continue
        stamp = next(stamps)
        if kind == 2:
            os.symlink(what, place)
        else:
            data = store.content(*what)
            check_cuts(store, place, what, data)
            with open(place, "wb") as file:
                file.write(data)
            os.chmod(place, 0o755 if kind == 1 else 0o644)
            size += len(data)
        os.utime(place, ns=(stamp, stamp), follow_symlinks=False)
    os.utime(path, ns=(own, own))
    return entries, size


def main():
    root, name, destination = [argument for argument in sys.argv[1:] if argument != "--log"]
    store = Store(root, "--log" not in sys.argv)
    versions = store.refs[name]
    version = versions[max(versions)]

    def content(value):
        return value["size"], value["depth"], bytes.fromhex(value["root"])

    check(version["root"]["kind"] == "tree", f"{name}: is no directory")
    sides = {side["kind"]: side["content"] for side in version["sides"]}
    check([side["kind"] for side in version["sides"]] == sorted(sides), f"{name}: order of side objects")
    for side in sides.values():
        store.content(*content(side))
    entries = version["root"]["totals"]["entries"] + 1
    for kind, magic, count in ("modes", b"mode", 1), ("owners", b"ownr", 2):
        if kind in sides:
            found = kept(store.content(*content(sides[kind])), magic, count)
            check(len(found) == entries, f"{name}: {kind} for each entry")
            print(f"reader: {kind}: {sorted(set(found))}")
    if "xattrs" in sides:
        found = attributes(store.content(*content(sides["xattrs"])))
        check(len(found) == entries, f"{name}: xattrs for each entry")
        print(f"reader: xattrs: {sum(map(len, found))} of {sorted({one for entry in found for one in entry})}")
    stamps = times(store.content(*content(sides["times"])))
    totals = extract(store, os.fsencode(destination), content(version["root"]["content"]), stamps)
    said = version["root"]["totals"]
    check(totals == (said["entries"], said["bytes"]), f"{name}: totals")
    check(next(stamps, None) is None, f"{name}: times left over")
    told = f"{totals[0]} entries, {totals[1]} bytes, log of {store.number}, cuts of {store.compared} files compared, {store.layers} layers, {store.deltas} deltas"
    print(f"reader: {name}@{max(versions)}: {told}")


if __name__ == "__main__":
    main()
