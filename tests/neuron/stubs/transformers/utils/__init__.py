"""A stub: see anything.py."""

import logging as python_logging

from anything import anything as __getattr__  # noqa: F401


def is_safetensors_available():
    return False


class logging:
    @staticmethod
    def get_logger(name=None):
        return python_logging.getLogger(name)
