"""hf_xet's local mode as a command: xet.py REPOSITORY put TREE LIST | get LIST OUT."""

import json
import pathlib
import sys

import hf_xet

repository, verb, first, second = sys.argv[1:]
endpoint = f"local://{repository}"
if verb == "put":
    files = sorted(path for path in pathlib.Path(first).rglob("*") if path.is_file() and not path.is_symlink())
    sent = hf_xet.upload_files([str(path) for path in files], endpoint, None, None, None, None, skip_sha256=True)
    rows = [(str(path.relative_to(first)), one.hash, path.stat().st_size) for path, one in zip(files, sent, strict=True)]
    pathlib.Path(second).write_text(json.dumps(rows))
else:
    wanted = []
    for name, content, size in json.loads(pathlib.Path(first).read_text()):
        path = pathlib.Path(second, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        wanted.append(hf_xet.PyXetDownloadInfo(str(path), content, size))
    hf_xet.download_files(wanted, endpoint, None, None, None)
