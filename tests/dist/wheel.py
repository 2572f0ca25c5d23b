"""Adds to a wheel what maturin leaves out: licences, manual pages, completions. wheel.py WHEEL COPYRIGHT SHARE

COPYRIGHT becomes a licence of the package; pip puts what is in the directory SHARE into `share` of the environment,
where `man` and shells look. Written anew beside the old one and moved over it; every file stands in RECORD.
"""

import base64
import hashlib
import os
import sys
import zipfile


def main():
    wheel, copyright, share = sys.argv[1:]
    with zipfile.ZipFile(wheel) as old:
        files = {item.filename: (item, old.read(item)) for item in old.infolist() if not item.is_dir()}
    (record,) = [name for name in files if name.endswith(".dist-info/RECORD")]
    info = os.path.dirname(record)
    data = f"{info.removesuffix('.dist-info')}.data/data/share"
    added = {f"{info}/licenses/copyright": copyright}
    for place, _, names in os.walk(share):
        for name in names:
            path = os.path.join(place, name)
            added[f"{data}/{os.path.relpath(path, share)}"] = path
    modified = files[record][0].date_time
    for name, path in added.items():
        item = zipfile.ZipInfo(name, modified)
        item.external_attr = 0o100644 << 16
        item.compress_type = zipfile.ZIP_DEFLATED
        with open(path, "rb") as file:
            files[name] = (item, file.read())
    # The list of components names the directory of the build.
    here = os.getcwd().encode() + b"/"
    for name, (item, content) in files.items():
        if "/scripts/" not in name:
            files[name] = (item, content.replace(here, b""))
    item, metadata = files[f"{info}/METADATA"]
    licence = b"\nLicense-Expression:"
    files[f"{info}/METADATA"] = (item, metadata.replace(licence, b"\nLicense-File: copyright" + licence, 1))
    head, _ = files.pop(record)
    with zipfile.ZipFile(f"{wheel}.new", "w", zipfile.ZIP_DEFLATED) as new:
        for item, content in files.values():
            new.writestr(item, content)
        new.writestr(head, "".join(line(name, content) for name, (_, content) in files.items()) + f"{record},,\n")
    os.replace(f"{wheel}.new", wheel)


def line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


main()
