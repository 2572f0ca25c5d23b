"""A job with the cache of optimum-neuron, and a compiler that makes the bytes of a key and says that it did.

job.py compile DIR MODEL KEY...   compiles what the cache does not have
job.py registry DIR               what the cache in a directory notes of models, by its links
job.py synchronize DIR REPO       gives a directory to the Hub, as a trainer does in the end
job.py models MODEL REPO          what the registry on the Hub says of models

Prints one object. The packages of optimum-neuron itself import what runs on the accelerator, so only their directories are made known."""

import importlib.util
import json
import os
import pathlib
import struct
import sys
import tempfile
import types

import optimum


def package(name, path):
    module = types.ModuleType(name)
    module.__path__ = path
    sys.modules[name] = module
    return module


neuron = os.path.join(importlib.util.find_spec("optimum.neuron").submodule_search_locations[0])
package("optimum.neuron", [neuron])
package("optimum.neuron.utils", [os.path.join(neuron, "utils")])
package("optimum.exporters", [])
package("optimum.exporters.tasks", []).TasksManager = None

import libneuronxla  # noqa: E402
from libneuronxla.neuron_cc_cache import CacheUrl  # noqa: E402
from optimum.neuron.cache import hub_cache  # noqa: E402
from optimum.neuron.cache.entries.cache_entry import ModelCacheEntry  # noqa: E402

TASK = "text-generation"


def neff(key):
    """As the Neuron SDK documents it: a header of 1024 bytes, which tells its own length and that of the data behind it."""
    data = (key * 5000).encode()
    return struct.pack("<QQQ", 2, 1024, len(data)).ljust(1024, b"\0") + data


def compile_missing(directory, model, *keys):
    entry = ModelCacheEntry.create(model, TASK)
    entry._model_id = entry.model_id = "org/tiny"
    told = {"compiled": [], "found": []}
    with hub_cache.hub_neuronx_cache(entry, cache_dir=directory):
        cache = libneuronxla.create_compile_cache(CacheUrl.get_cache_url(directory))
        told["cache"] = type(cache).__name__
        for key in keys:
            place = cache.get_cache_dir(key, "d41d8cd9")
            with tempfile.TemporaryDirectory() as room:
                made = os.path.join(room, "made")
                if cache.exists(place + "/model.done"):
                    cache.download_file(place + "/model.neff", made)
                    with open(made, "rb") as file:
                        assert file.read() == neff(key), place
                    told["found"].append(key)
                    continue
                with open(made, "wb") as file:
                    file.write(neff(key))
                cache.upload_string_to_file(place + "/compile_flags.json", "[]")
                cache.upload_file(place + "/model.neff", made)
                cache.upload_string_to_file(place + "/model.done", "")
                told["compiled"].append(key)
    return told


def registry(directory):
    """The links by the names of models lead to the entries, in this very directory."""
    told = {}
    for link in pathlib.Path(directory).glob("neuronxcc-*/%s/*/*/*/*.json" % hub_cache.REGISTRY_FOLDER):
        real = link.resolve(strict=True)
        assert link.is_symlink() and real.is_relative_to(pathlib.Path(directory).resolve()), (link, real)
        entry = ModelCacheEntry.deserialize(real.read_text())
        assert real.name == entry.hash + ".json" and real.parent.name == entry.arch_digest(), real
        told[entry.model_id] = os.stat(real).st_mtime_ns
    return told


def synchronize(directory, repo):
    hub_cache.HfApi().create_repo(repo, exist_ok=True)
    hub_cache.synchronize_hub_cache(directory, repo)
    return {}


def models(model, repo):
    entries = hub_cache.get_hub_cached_entries(model, TASK, repo)
    return {"entries": len(entries), "models": sorted(map(list, hub_cache.get_hub_cached_models(repo)))}


steps = {"compile": compile_missing, "registry": registry, "synchronize": synchronize, "models": models}
print(json.dumps(steps[sys.argv[1]](*sys.argv[2:])))
