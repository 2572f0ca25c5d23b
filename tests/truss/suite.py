"""The cache summary of truss, unmodified, beside that of `store summarize --truss`.

suite.py STORE PYTHON   STORE is the command, PYTHON has what requirements.txt names.

For each of several trees: a server of this file says of a ref, as the platform says of a project, what `store summarize
--json` says. Truss asks it, and prints the same as the store: in three outputs, by five keys, up and down."""

import csv
import http.server
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from checks import Suite, main  # noqa: E402

KEY = "a-dummy-key"
SORTS = {"filepath": "name", "size": "size", "modified": "modified", "type": "type", "permissions": "permissions"}
ORDERS = ["asc", "desc"]
ROW = re.compile(r"^(.*?) +(\d+(?:\.\d\d [KMGT])? ?B) +(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) +(file|directory|symlink) +(\S{10})$")
BEGIN = 1_700_000_000


class Platform(http.server.ThreadingHTTPServer):
    """What it says of projects: `summaries`, by their id. As a proxy, since truss has one address for a server of one's own."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.summaries, self.asked = {}, []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.removeprefix("http://api.localhost:8000")
        self.server.asked.append((path, self.headers["Authorization"]))
        named = re.fullmatch("/v1/training_projects/([^/]+)/cache/summary", path)
        if path == "/v1/training_projects":
            code, said = 200, {"training_projects": [{"id": key, "name": "project-" + key} for key in self.server.summaries]}
        elif named and named[1] in self.server.summaries:
            code, said = 200, self.server.summaries[named[1]]
        else:
            code, said = 404, {"message": "no " + path}
        body = json.dumps(said).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def write(path, size, at, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    path.chmod(mode)
    os.utime(path, ns=(at, at))


def at(number):
    """Times of which some are of whole seconds, some equal, and none in the order of the names."""
    return (BEGIN + number * 7919 % 10_007) * 10**9 + (0, 500_000_000, 123_456_789)[number % 3]


def empty(_):
    pass


def deep(place):
    directory = place
    for level in range(60):
        directory = directory / ("d%d" % level)
        write(directory / "file", 1 + 37 * level, at(level))


def links(place):
    write(place / "target" / "file", 1001, at(1))
    for name, to in [("to-file", "target/file"), ("to-directory", "target"), ("to-nothing", "nowhere"), ("target/up", "..")]:
        (place / name).symlink_to(to)


def names(place):
    # What sorts between a directory and what is in it, quotes, letters of two to four bytes, and as long as a name may be.
    for number, name in enumerate(["a/b", "a-b", "a.b", "a b", "A", "a\u00e9", "a\u4e2d\U0001f600", "z" * 255, "q,uo\"te", "e=mc^2", "two  blanks", "-o"]):
        write(place / name, number, at(number))
    write(place / ("l" * 200) / ("m" * 200) / ("n" * 200), 5, at(3))


def sizes(place):
    for size in [0, 1, 999, 1000, 1001, 1004, 1005, 1015, 1025, 99_994, 99_995, 999_999, 1_000_000, 1_000_001, 1_234_567, 2_500_000]:
        write(place / str(size), size, at(size))
    for number, mode in enumerate([0o400, 0o755, 0o600, 0o664]):
        write(place / "modes" / str(number), 1, at(number), mode)


def many(place):
    for number in range(2000):
        write(place / ("%d" % (number % 13)) / ("%d" % (number % 5)) / ("f%d" % number), number * 31 % 4099, at(number))


TREES = [empty, deep, links, names, sizes, many]


class Truss(Suite):
    def __init__(self, command, python, room):
        super().__init__(command, room)
        self.platform, self.python = Platform(), python
        # So wide that no cell is folded.
        self.theirs = self.environment(
            http_proxy="http://127.0.0.1:%d" % self.platform.server_port, COLUMNS="1000", BASETEN_TRUSS_AUTH_KEYRING_DISABLED="1", PYTHONDONTWRITEBYTECODE="1"
        )
        config = room / "home" / ".trussrc"
        config.write_text("[here]\nremote_provider = baseten\napi_key = %s\nremote_url = http://localhost:8000\n" % KEY)
        self.truss = subprocess.Popen([python, str(HERE / "asks.py")], env=self.theirs, cwd=room, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def environment(self, home="home", **more):
        return super().environment(home, TZ="Asia/Kathmandu", **more)

    def equal(self, what, found, expected):
        detail = "" if found == expected else "%s\nexpected\n%s" % different(found, expected)
        self.expect(what, found == expected, detail)

    def ask(self, project, *options):
        """What truss prints, which must end well."""
        print(json.dumps(["train", "cache", "summarize", project, "--remote", "here", *options]), file=self.truss.stdin, flush=True)
        answer = json.loads(self.truss.stdout.readline())
        if answer["code"] != 0:
            raise RuntimeError("truss %s: %s" % (options, answer))
        return answer["said"]

    def tree(self, make):
        name = make.__name__
        place, ref = self.room / name, "project/%s/cache" % name
        place.mkdir()
        make(place)
        self.store("put", place, ref)
        said = self.store("summarize", ref, "--depth", "1000", "--sort", "name")
        # Truss itself adds up what is in a directory.
        files = [
            {"path": part["path"], "size_bytes": 0 if part["type"] == "directory" else part["bytes"], "modified": part["modified"], "file_type": part["type"], "permissions": part["permissions"]}
            for part in said["parts"]
        ]
        self.platform.summaries[name] = {"timestamp": said["time"], "project_id": said["target"], "file_summaries": files}
        for sort in SORTS:
            for order in ORDERS:
                self.compare(name, ref, sort, order)

    def compare(self, name, ref, sort, order):
        for output, read in [("cli-table", table), ("csv", lines), ("json", json.loads)]:
            theirs = self.ask(name, "--sort", sort, "--order", order, "-o", output)
            ours = self.said("summarize", ref, "--truss", "--sort", SORTS[sort], "--order", order, "-o", output)
            self.equal("%s: %s by %s, %s" % (name, output, sort, order), read(ours), read(theirs))

    def defaults(self):
        """Without options, by the name of the project, and by the command itself."""
        for output, read in [("cli-table", table), ("csv", lines), ("json", json.loads)]:
            words = [os.path.join(os.path.dirname(self.python), "truss"), "train", "cache", "summarize", "project-names", "--remote", "here"]
            done = subprocess.run([*words, "-o", output], env=self.theirs, cwd=self.room, capture_output=True)
            self.equal("the command: " + output, read(done.stdout.decode()), read(self.said("summarize", "project/names/cache", "--truss", "-o", output)))
        ours = self.said("summarize", "project/names/cache", "--truss")
        self.equal("a table is the default of both", table(ours), table(self.ask("names")))

    def run(self):
        self.store("init")
        for make in TREES:
            self.tree(make)
        self.defaults()
        self.equal("truss came with its key", {key for _, key in self.platform.asked}, {"Api-Key " + KEY})
        self.truss.stdin.close()
        self.equal("truss ends well", self.truss.wait(), 0)


def different(found, expected):
    """The part of two answers where they begin to differ."""
    pair = [json.dumps(one, indent=1, ensure_ascii=False, default=str) for one in (found, expected)]
    start = max(len(os.path.commonprefix(pair)) - 200, 0)
    return tuple(one[start:start + 1000] for one in pair)


def table(text):
    """What stands above a table, and its cells, without frames, pictures and the title."""
    said = {}
    rows = []
    for line in text.splitlines():
        told = re.search(r"(Cache captured at|Project ID|Total files|Total size): (.*)", line)
        if told and not rows:
            said[told[1]] = told[2].strip()
        elif line.startswith("\u2502"):
            cells = line.split("\u2502")[1:-1]
            rows.append([cells[0][1:].rstrip(), *(cell.strip() for cell in cells[1:])])
        elif ROW.match(line):
            cells = ROW.match(line).groups()
            rows.append([cells[0].rstrip(), *cells[1:]])
    return {**said, "rows": rows}


def lines(text):
    """Rows of fields. Truss ends lines with CR LF, as csv of Python does, the store with LF."""
    return list(csv.reader(io.StringIO(text)))


if __name__ == "__main__":
    words = map(os.path.abspath, sys.argv[1:3])
    main("truss", lambda room: Truss(*words, room))
