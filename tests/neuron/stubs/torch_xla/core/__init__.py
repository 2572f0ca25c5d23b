"""A stub: see anything.py."""

from anything import anything as __getattr__  # noqa: F401
