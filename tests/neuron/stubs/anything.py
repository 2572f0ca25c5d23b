"""What is asked of a stub is there, does nothing, and is a class, as annotations and bases want it."""


class Anything(type):
    def __getattr__(cls, name):
        return anything(name)


def anything(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Anything(name, (), {})
