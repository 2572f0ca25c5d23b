"""Puts a directory into a store, written from store/FORMATS.md alone: writer.py STORE SOURCE REF.

Shares no code with the engine; what it and the engine do not agree on is a defect of one of the three. Skips chunks
that the store offers, and cuts where the store's own writers cut. Little goes into one pack of both kinds, and all
segments of no pass are folded. Prints what was new, as JSON.
"""

import datetime
import json
import os
import stat
import struct
import sys
import time

import zstandard
from blake3 import blake3

import fastcdc
from reader import Store, check, digest, entry_id, total, two_lines

FRAME_BYTES = 1 << 20
PACK_BYTES = 64 << 20
TOGETHER_BYTES = 256 << 10


class Pack:
    def __init__(self, kind):
        self.kind, self.id = kind, os.urandom(16)
        self.frames, self.rows, self.raw, self.waiting, self.size = [], [], b"", [], 80

    def add(self, chunk, data):
        if self.raw and len(self.raw) + len(data) > FRAME_BYTES:
            self.flush()
        self.waiting.append((chunk, len(data)))
        self.raw += data

    def flush(self):
        if not self.raw:
            return
        stored = b"\1" + zstandard.ZstdCompressor().compress(self.raw)
        if len(stored) > len(self.raw):
            stored = b"\0" + self.raw
        self.frames.append((stored, len(self.raw) | self.kind << 31, self.waiting))
        self.raw, self.waiting = b"", []
        self.size += len(stored)

    def with_metadata(self, other):
        """One pack of both kinds."""
        self.flush()
        other.flush()
        self.kind = 2
        self.frames += other.frames

    def bytes(self, store, began):
        self.flush()
        header = struct.pack("<8sHB5x16s16sQ16x", b"STOREPAK", 2, self.kind, self.id, store, began)
        header += total(header)
        body = b"".join(stored for stored, _, _ in self.frames)
        table = b""
        for stored, raw, chunks in self.frames:
            table += struct.pack("<3I8s", len(stored), raw, len(chunks), total(stored))
        for _, _, chunks in self.frames:
            for chunk, length in chunks:
                table += struct.pack("<32sI", chunk, length)
        count = sum(len(chunks) for _, _, chunks in self.frames)
        end = struct.pack("<8sH2xIII8x", b"STOREPKE", 2, 80 + len(body), len(self.frames), count)
        return header + body + table + end + digest(header + table + end)


class Writer:
    def __init__(self, root):
        self.root = root
        self.store = Store(root, True)
        description = json.loads(two_lines(self.store.read("format"))[0][:-73])
        self.chunker = fastcdc.Chunker(description["chunker"])
        self.began = self.store.number
        self.known = set(self.store.places)
        self.open, self.packs = {}, []
        self.new_bytes = self.files = 0

    def chunk(self, kind, data):
        name = digest(data)
        if name not in self.known:
            self.known.add(name)
            if kind not in self.open or self.open[kind].size > PACK_BYTES:
                self.open[kind] = Pack(kind)
                self.packs.append(self.open[kind])
            self.open[kind].add(name, data)
            self.new_bytes += len(data) if kind == 0 else 0
        return name

    def content(self, kind, data, cuts):
        """Stores bytes and their list: size, depth, root."""
        if not data:
            return 0, 0, digest(b"")
        children = [(self.chunk(kind, data[start:end]), end - start) for start, end in cuts]
        depth = 0
        while len(children) > 1:
            children = [self.node(depth, node) for node in nodes(children)]
            depth += 1
        return len(data), depth, children[0][0]

    def node(self, level, children):
        data = struct.pack("<4sBBH", b"clst", 1, level, len(children))
        data += b"".join(struct.pack("<32sQ", *child) for child in children)
        return self.chunk(1, data), sum(size for _, size in children)

    def metadata(self, data):
        return self.content(1, data, self.chunker.by_content(data, 0, len(data)))

    def tree(self, path, stats):
        """Stores a directory: its content, entries and bytes."""
        stats.append(os.lstat(path))
        data, entries, size = b"tree\1\0\0\0", 0, 0
        for name in sorted(os.listdir(path)):
            place = os.path.join(path, name)
            found = os.lstat(place)
            entries += 1
            if stat.S_ISDIR(found.st_mode):
                below, count, total_bytes = self.tree(place, stats)
                data += struct.pack("<BB", 3, len(name)) + name + struct.pack("<QB32s", *below)
                data += struct.pack("<QQ", count, total_bytes)
                entries, size = entries + count, size + total_bytes
                continue
            stats.append(found)
            if stat.S_ISLNK(found.st_mode):
                target = os.readlink(place)
                data += struct.pack("<BB", 2, len(name)) + name + struct.pack("<H", len(target)) + target
                continue
            with open(place, "rb") as file:
                read = file.read()
            self.files += 1
            content = self.content(0, read, self.chunker.file(read))
            kind = 1 if found.st_mode & 0o100 else 0
            data += struct.pack("<BB", kind, len(name)) + name + struct.pack("<Q", content[0])
            if content[0]:
                data += struct.pack("<B32s", *content[1:])
            size += len(read)
        return self.metadata(data), entries, size

    def together(self):
        """What is little becomes one pack, data first."""
        for pack in self.packs:
            pack.flush()
        if len(self.packs) == 2 and sum(pack.size - 80 for pack in self.packs) <= TOGETHER_BYTES:
            data, metadata = sorted(self.packs, key=lambda pack: pack.kind)
            data.with_metadata(metadata)
            self.packs = [data]

    def put_objects(self):
        """Uploads all that is new; the changes that make it live."""
        self.together()
        store = bytes.fromhex(self.store.id)
        frames, entries, packs, bases, written = [], [], [], [], 0
        for pack in self.packs:
            data = pack.bytes(store, self.began)
            create(self.root, f"packs/{pack.id.hex()[:2]}/{pack.id.hex()}", data)
            at = 80
            for stored, raw, chunks in pack.frames:
                offset = 0
                for chunk, length in chunks:
                    entries.append(struct.pack("<32s3I", chunk, len(frames), offset, length))
                    offset += length
                frames.append(struct.pack("<4I", len(packs), at, len(stored), raw))
                at += len(stored)
            packs.append(struct.pack("<16sIB11x", pack.id, len(data), pack.kind))
            written += len(data)
        folded = [name for name, own in self.store.passes.items() if name in self.store.segments and not own]
        for name in folded:
            written += self.fold(name, entries, frames, packs, bases)
        added = self.segment(store, sorted(entries), frames, bases, packs, written)
        into = added["segment"]
        return [added] + [{"op": "drop_segment", "segment": name, "into": into} for name in folded]

    def fold(self, name, entries, frames, packs, bases):
        """Appends what a segment offers; the bytes of packs that it alone has named so far."""
        old_frames, old_packs, rows, needs = self.store.tables[name]
        places, moved, written = {}, {}, 0
        named = {row[:16]: at for at, row in enumerate(packs)}
        for at, (own, length, kind, _) in enumerate(old_packs):
            if own.hex() in self.store.condemned:
                continue
            places[at] = named.get(own, len(packs))
            if own not in named:
                packs.append(struct.pack("<16sIB11x", own, length, kind))
                written += length
        there = {entry[:32] for entry in entries}
        for chunk, frame, offset, length in struct.iter_unpack("<32s3I", rows):
            pack, *place = old_frames[frame]
            if chunk in there or pack not in places:
                continue
            if frame not in moved:
                moved[frame] = len(frames)
                frames.append(struct.pack("<4I", places[pack], *place))
                bases += [struct.pack("<I32s", moved[frame], base) for base in needs.get(frame, [])]
            entries.append(struct.pack("<32s3I", chunk, moved[frame], offset, length))
        return written

    def segment(self, store, entries, frames, bases, packs, written):
        name = os.urandom(16)
        bits = 0
        while len(entries) > 8 << bits:
            bits += 1
        counts = (bits, name, store, self.began, len(entries), len(frames), len(packs), len(bases))
        header = struct.pack("<8sHB5x16s16sQQIII12x", b"STORESEG", 2, *counts)
        header += total(header)
        firsts, at = [], 0
        for prefix in range((1 << bits) + 1):
            while at < len(entries) and int.from_bytes(entries[at][:4], "big") >> (32 - bits) < prefix:
                at += 1
            firsts.append(at if prefix < 1 << bits else len(entries))
        data = header + struct.pack(f"<{len(firsts)}I", *firsts) + b"".join(entries + frames + bases + packs)
        data += b"STORESGE" + digest(data)
        create(self.root, f"segments/{name.hex()}", data)
        lengths = [struct.unpack("<I", entry[40:])[0] for entry in entries]
        return {
            "op": "add_segment",
            "segment": name.hex(),
            "chunks": len(entries),
            "packs": len(packs),
            "pack_bytes": written,
            "raw_bytes": sum(lengths),
            "bytes": len(data),
        }

    def commit(self, changes):
        """Put-if-absent of the next entry. Whoever comes between has won; this writer does not begin again."""
        number = self.store.number + 1
        before = self.store.read(log_key(number - 1)) if number > 1 else b""
        before = two_lines(before)[0] if before else b""
        entry = {"magic": "store-log", "version": 2, "number": number, "store": self.store.id}
        if before:
            entry["prev"] = entry_id(before)
        now = datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
        who = {"host": "elsewhere", "user": "stranger", "program": "writer.py"}
        entry |= {"commit": os.urandom(16).hex(), "time": now, "who": who, "changes": changes}
        line = json.dumps(entry, separators=(",", ":")).encode()
        text = line + b"\nblake3 " + blake3(line).hexdigest().encode() + b"\n"
        create(self.root, log_key(number), text + before)
        return number


def nodes(children):
    node = []
    for child in children:
        node.append(child)
        if len(node) == 1024 or (len(node) >= 64 and child[0][0] == 0):
            yield node
            node = []
    if node:
        yield node


def log_key(number):
    return f"log/{number // 10000:06}/{number:08}"


def create(root, key, data):
    """Durable under its name, or not there at all; fails where something is there."""
    path = os.path.join(root, key)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.urandom(8).hex()}"
    with open(temporary, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, path)
    os.unlink(temporary)
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def leb128(number):
    data = b""
    while number >= 0x80:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def times(stamps):
    data, before = b"time\1\0\0\0", 0
    for stamp in stamps:
        secs, nanos = divmod(stamp, 10**9)
        delta, before = secs - before, secs
        data += leb128((delta << 1) ^ (delta >> 63)) + leb128(nanos)
    return data


def kept(magic, entries):
    return magic + b"\1\0\0\0" + b"".join(leb128(number) for entry in entries for number in entry)


def described(content):
    return {"size": content[0], "depth": content[1], "root": content[2].hex()}


def main():
    root, source, name = sys.argv[1:]
    began = time.monotonic()
    writer = Writer(root)
    stats = []
    content, entries, size = writer.tree(os.fsencode(source), stats)
    lists = {
        "modes": kept(b"mode", [[found.st_mode & 0o7777] for found in stats]),
        "owners": kept(b"ownr", [[found.st_uid, found.st_gid] for found in stats]),
        "times": times([found.st_mtime_ns for found in stats]),
    }
    sides = [{"kind": kind, "content": described(writer.metadata(data))} for kind, data in lists.items()]
    changes = writer.put_objects() if writer.packs else []
    versions = writer.store.refs.get(name, {})
    check(not versions, f"{name}: is a new ref")
    tree = {"kind": "tree", "content": described(content)}
    changes.append(
        {
            "op": "set_ref",
            "name": name,
            "version": 1,
            "root": tree | {"totals": {"entries": entries, "bytes": size}},
            "sides": sides,
            "message": "",
            "expires": None,
        }
    )
    number = writer.commit(changes)
    told = {"entry": number, "files": writer.files, "bytes": size, "new_bytes": writer.new_bytes}
    print(json.dumps(told | {"packs": len(writer.packs), "seconds": round(time.monotonic() - began, 1)}))


if __name__ == "__main__":
    main()
