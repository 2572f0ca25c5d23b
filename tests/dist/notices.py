"""The licences of all that is linked into the command. notices.py TARGET; prints one text.

Crates come from cargo's own resolution: those of the target, without what only runs while building. A crate that
brings no text of its licence stands in the list with its name; one that names no licence is an error.
"""

import json
import os
import re
import subprocess
import sys

LICENCE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def linked(target):
    """Every crate from a registry that the command is linked from, sorted by name and version."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    metadata = json.loads(subprocess.check_output(command))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    queue = [id for id, package in packages.items() if package["name"] == "cli" and package["source"] is None]
    assert queue, "there is no package `cli`"
    seen = set()
    while queue:
        id = queue.pop()
        if id in seen or any("proc-macro" in kind["kind"] for kind in packages[id]["targets"]):
            continue
        seen.add(id)
        for edge in nodes[id]["deps"]:
            if any(kind["kind"] is None for kind in edge["dep_kinds"]):
                queue.append(edge["pkg"])
    crates = [packages[id] for id in seen if packages[id]["source"] is not None]
    return sorted(crates, key=lambda crate: (crate["name"], crate["version"]))


def texts(crate):
    """Its licences: at its top, and at the top of a C library inside of it."""
    top = os.path.dirname(crate["manifest_path"])
    below = [entry.path for entry in os.scandir(top) if entry.is_dir()]
    for place in [top, *sorted(below)]:
        for name in sorted(os.listdir(place)):
            path = os.path.join(place, name)
            if LICENCE.match(name) and os.path.isfile(path) and not name.endswith((".rs", ".py", ".sh")):
                with open(path, encoding="utf-8", errors="replace") as file:
                    yield file.read().strip()


def main():
    crates = linked(sys.argv[1])
    holders, without = {}, []
    for crate in crates:
        name = f"{crate['name']} {crate['version']}"
        assert crate["license"] or crate["license_file"], f"{name} names no licence"
        found = list(texts(crate))
        if not found:
            without.append(f"{name}: {crate['license']}, by {', '.join(crate['authors']) or 'its authors'}")
        for text in found:
            # Line breaks alone make no other text.
            _, names = holders.setdefault(" ".join(text.split()), (text, []))
            if name not in names:
                names.append(name)
    print("The command `store` contains the standard library of Rust (MIT OR Apache-2.0), and these crates:\n")
    for crate in crates:
        print(f"    {crate['name']} {crate['version']}: {crate['license']}")
    if without:
        print("\nThese bring no text of their licence:\n")
        print("\n".join(f"    {line}" for line in without))
    for text, names in holders.values():
        print(f"\n{'=' * 80}\n{', '.join(names)}\n\n{text}")


main()
