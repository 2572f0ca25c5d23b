"""Makes libraries that stand for those of CUDA, so that the torch of PyPI runs on the processor without 3 GB of them.

stubs.py TORCH   TORCH is the directory of the package. What its libraries want and is nowhere is made by gcc in
                 nvidia/cu13/lib beside it, where they look: functions that say that there is no device."""

import pathlib
import subprocess
import sys
import tempfile

NO_DEVICE = 100


def answer(*words):
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


def wanted(library):
    """The libraries that it names."""
    lines = answer("readelf", "--dynamic", "--wide", library).splitlines()
    return {line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line}


def undefined(library):
    """Its symbols that others must have, each with its version or nothing."""
    for line in answer("nm", "--dynamic", "--undefined-only", library).splitlines():
        kind, symbol = line.split()
        if kind == "U":
            name, _, version = symbol.partition("@")
            yield name, version


def versions(library):
    """For each version of a symbol that it wants: the library that has it."""
    said, file = {}, None
    for line in answer("readelf", "--version-info", "--wide", library).splitlines():
        words = line.split()
        if "File:" in words:
            file = words[words.index("File:") + 1]
        elif "Name:" in words and "Flags:" in words and file:
            said[words[words.index("Name:") + 1]] = file
    return said


def defined(library):
    return {line.split("@")[0] for line in answer("nm", "--dynamic", "--defined-only", "--format=just-symbols", library).splitlines()}


def body(name):
    if name.endswith(("String", "Name", "GetLastError")) and "Error" in name:
        return 'const char *%s(void) { return "a stub"; }' % name if name.endswith(("String", "Name")) else "int %s(void) { return 0; }" % name
    return "int %s(void) { return %d; }" % (name, NO_DEVICE)


def make(place, soname, version, names, room):
    source, script = room / "stub.c", room / "stub.map"
    source.write_text("".join(body(name) + "\n" for name in sorted(names)))
    script.write_text("%s { global: *; };\n" % version)
    answer("gcc", "-w", "-shared", "-fPIC", "-fno-builtin", source, "-Wl,-soname," + soname, "-Wl,--version-script," + str(script), "-o", place / soname)


def main():
    torch = pathlib.Path(sys.argv[1])
    libraries = [*(torch / "lib").glob("*.so*"), *torch.glob("_C*.so")]
    known = {library.name for library in libraries}
    here = answer("/sbin/ldconfig", "-p")
    missing = {name for library in libraries for name in wanted(library) if name not in known and name + " " not in here and not name.startswith("ld-linux")}
    theirs = set().union(*map(defined, libraries))
    names = {soname: set() for soname in missing}
    of = {version: soname for library in libraries for version, soname in versions(library).items() if soname in missing}
    rest = set()
    for library in libraries:
        for name, version in undefined(library):
            if version in of:
                names[of[version]].add(name)
            elif not version and name not in theirs and not name.startswith(("_Z", "Py", "_Py")):
                rest.add(name)
    # What has no version is found in whichever library has it.
    names[min(name for name in missing if name.startswith("libcudart"))] |= rest
    place = torch.parent / "nvidia" / "cu13" / "lib"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as room:
        for soname, functions in names.items():
            version = next((version for version, has in of.items() if has == soname), soname)
            make(place, soname, version, functions, pathlib.Path(room))


if __name__ == "__main__":
    main()
