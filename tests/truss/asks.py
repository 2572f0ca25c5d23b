"""Runs the command of truss once for each line of standard input, a list of its arguments, and prints what it said.

One process, because an import takes seconds: a line of JSON for each, what came on standard output and the exit code."""

import contextlib
import io
import json
import sys

from truss.cli.cli import truss_cli


def ask(words):
    said, code = io.StringIO(newline=""), 0
    with contextlib.redirect_stdout(said):
        try:
            truss_cli.main(words, prog_name="truss", standalone_mode=True)
        except SystemExit as end:
            code = end.code or 0
    return {"said": said.getvalue(), "code": code}


for line in sys.stdin:
    print(json.dumps(ask(json.loads(line))), flush=True)
