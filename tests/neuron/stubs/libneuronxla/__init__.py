"""A stub of the runtime: the cache in a directory, with the names and the layout of the original."""

from .neuron_cc_cache import create_compile_cache  # noqa: F401
