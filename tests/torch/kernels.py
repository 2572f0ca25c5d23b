"""Kernels in the cache of Triton, by its own code, which needs no accelerator for that.

kernels.py make KEY...    a group of files for each, and a launcher; and one that was left half-way
kernels.py read KEY...    prints what it finds of each: names, and where they are"""

import json
import os
import sys

from triton.runtime.cache import FileCacheManager

ENDS = ["ttir", "ttgir", "llir", "ptx", "cubin", "json"]


def content(key, end):
    return (key + end).encode() * 1000


def make(*keys):
    for key in keys:
        cache = FileCacheManager(key)
        group = {"add." + end: cache.put(content(key, end), "add." + end) for end in ENDS}
        cache.put_group("add.json", group)
        FileCacheManager(key + "LAUNCHER").put(content(key, "so"), "__triton_launcher.so")
    FileCacheManager("HALF").put(content("HALF", "ttir"), "add.ttir")
    os.makedirs(os.path.join(os.environ["TRITON_CACHE_DIR"], keys[0], "tmp.pid_1_left"))
    return {}


def read(*keys):
    told = {}
    for key in keys:
        group = FileCacheManager(key).get_group("add.json") or {}
        for name, path in group.items():
            with open(path, "rb") as file:
                assert file.read() == content(key, name.split(".")[1]), path
        launcher = FileCacheManager(key + "LAUNCHER").get_file("__triton_launcher.so")
        told[key] = {"files": sorted(group), "places": sorted({os.path.dirname(os.path.dirname(path)) for path in group.values()}), "launcher": launcher is not None}
    return told


print(json.dumps({"make": make, "read": read}[sys.argv[1]](*sys.argv[2:])))
