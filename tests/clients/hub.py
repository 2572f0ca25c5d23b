"""A small hub on loopback: the endpoints that snapshot_download, hf_hub_download, verify and load_dataset ask.

Holds its repositories in memory; every request is logged, so that a test can say that there was none.
Keeps to the letter of the protocol: 404s carry X-Error-Code, files carry their commit and etag."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

LFS_BYTES_MIN = 100_000


def git_name(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class File:
    def __init__(self, data):
        self.data = data
        self.sha256 = hashlib.sha256(data).hexdigest() if len(data) >= LFS_BYTES_MIN else None
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n" % (self.sha256, len(data))
        self.oid = git_name(pointer.encode() if self.sha256 else data)
        self.etag = self.sha256 or self.oid

    def entry(self, path):
        entry = {"type": "file", "path": path, "oid": self.oid, "size": len(self.data)}
        if self.sha256:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.data), "pointerSize": 130}
        return entry


class Repo:
    """Commits by id, and branches that name them."""

    def __init__(self, files):
        self.commits = {}
        self.branches = {}
        self.commit(files)

    def commit(self, files, branch="main"):
        files = {path: File(data) for path, data in sorted(files.items())}
        listing = "".join(path + " " + file.etag + "\n" for path, file in files.items())
        commit = hashlib.sha1(listing.encode()).hexdigest()
        self.commits[commit] = files
        self.branches[branch] = commit
        return commit

    def find(self, revision):
        commit = self.branches.get(revision, revision)
        return (commit, self.commits[commit]) if commit in self.commits else (None, None)


class Hub:
    """Serves until the process ends."""

    def __init__(self):
        self.repos = {}
        self.requests = []
        self.answers_404 = []
        handler = type("Handler", (Handler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.endpoint = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, kind, name, files):
        """`kind` is models or datasets."""
        self.repos[kind, name] = Repo(files)
        return self.repos[kind, name]

    def take_log(self):
        requests, self.requests = self.requests, []
        return requests


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(send_body=True)

    def do_HEAD(self):
        self.answer(send_body=False)

    def do_POST(self):
        self.answer(send_body=True)

    def answer(self, send_body):
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length) if length else b""
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        path = unquote(url.path)
        self.hub.requests.append((self.command, path))
        self.send_body = send_body
        for pattern, handle in ROUTES:
            found = re.fullmatch(pattern, path)
            if found:
                return handle(self, **found.groupdict())
        self.hub.answers_404.append(path)
        return self.missing("EntryNotFound")

    def repo(self, kind, name):
        return self.hub.repos.get((kind or "models", name))

    def whoami(self):
        role = {"accessToken": {"displayName": "planted", "role": "read"}, "type": "access_token"}
        self.json({"type": "user", "id": "1", "name": "tester", "orgs": [], "auth": role})

    def info(self, kind, name, revision="main"):
        repo = self.repo(kind, name)
        if repo is None:
            return self.missing("RepoNotFound")
        commit, files = repo.find(revision)
        if commit is None:
            return self.missing("RevisionNotFound")
        siblings = [{"rfilename": path} for path in files]
        time = "2026-01-02T03:04:05.000Z"
        return self.json(
            {
                "_id": "0", "id": name, "modelId": name, "author": name.split("/")[0], "sha": commit, "lastModified": time,
                "createdAt": time, "private": False, "gated": False, "disabled": False, "downloads": 0, "likes": 0,
                "tags": [], "usedStorage": 0, "siblings": siblings,
            }
        )

    def tree(self, kind, name, revision, folder=None):
        repo = self.repo(kind, name)
        if repo is None:
            return self.missing("RepoNotFound")
        commit, files = repo.find(revision)
        if commit is None:
            return self.missing("RevisionNotFound")
        prefix = folder.rstrip("/") + "/" if folder else ""
        recursive = self.query.get("recursive", ["false"])[0].lower() in ("1", "true")
        entries, folders = [], set()
        for path, file in files.items():
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix):].split("/")
            folders.update(prefix + "/".join(parts[:depth]) for depth in range(1, len(parts)))
            if recursive or len(parts) == 1:
                entries.append(file.entry(path))
        if not recursive:
            folders = {folder for folder in folders if "/" not in folder[len(prefix):]}
        if prefix and not entries and not folders:
            return self.missing("EntryNotFound")
        folders = [{"type": "directory", "path": folder, "oid": "0" * 40, "size": 0} for folder in sorted(folders)]
        return self.json(folders + entries)

    def paths_info(self, kind, name, revision):
        repo = self.repo(kind, name)
        if repo is None:
            return self.missing("RepoNotFound")
        commit, files = repo.find(revision)
        if commit is None:
            return self.missing("RevisionNotFound")
        try:
            wanted = json.loads(self.body)["paths"]
        except ValueError:
            wanted = parse_qs(self.body.decode()).get("paths", [])
        wanted = [wanted] if isinstance(wanted, str) else wanted
        entries = [files[path].entry(path) for path in wanted if path in files]
        for path in wanted:
            if any(other.startswith(path + "/") for other in files):
                entries.append({"type": "directory", "path": path, "oid": "0" * 40, "size": 0})
        return self.json(entries)

    def refs(self, kind, name):
        repo = self.repo(kind, name)
        if repo is None:
            return self.missing("RepoNotFound")
        branches = [{"name": name, "ref": "refs/heads/" + name, "targetCommit": at} for name, at in repo.branches.items()]
        return self.json({"branches": branches, "converts": [], "tags": [], "pullRequests": []})

    def resolve(self, name, revision, path, kind=None):
        repo = self.repo(kind, name)
        if repo is None:
            return self.missing("RepoNotFound")
        commit, files = repo.find(revision)
        if commit is None:
            return self.missing("RevisionNotFound")
        if path not in files:
            return self.missing("EntryNotFound", {"X-Repo-Commit": commit})
        file = files[path]
        headers = {
            "ETag": '"%s"' % file.etag, "X-Repo-Commit": commit, "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        if file.sha256:
            headers["X-Linked-Etag"] = '"%s"' % file.etag
            headers["X-Linked-Size"] = str(len(file.data))
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not wanted:
            return self.send(200, headers, file.data)
        start, end = int(wanted[1]), min(int(wanted[2] or len(file.data) - 1), len(file.data) - 1)
        headers["Content-Range"] = "bytes %d-%d/%d" % (start, end, len(file.data))
        return self.send(206, headers, file.data[start:end + 1])

    def json(self, value):
        self.send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def missing(self, code, headers=None):
        headers = {"X-Error-Code": code, "X-Error-Message": code, "Content-Type": "application/json", **(headers or {})}
        self.send(404, headers, json.dumps({"error": code}).encode())

    def send(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.send_body:
            self.wfile.write(body)


NAME = r"(?P<name>[^/]+/[^/]+)"
ROUTES = [
    (r"/api/whoami-v2", Handler.whoami),
    (r"/api/(?P<kind>models|datasets)/" + NAME, Handler.info),
    (r"/api/(?P<kind>models|datasets)/" + NAME + r"/revision/(?P<revision>.+)", Handler.info),
    (r"/api/(?P<kind>models|datasets)/" + NAME + r"/tree/(?P<revision>[^/]+)(/(?P<folder>.*))?", Handler.tree),
    (r"/api/(?P<kind>models|datasets)/" + NAME + r"/paths-info/(?P<revision>.+)", Handler.paths_info),
    (r"/api/(?P<kind>models|datasets)/" + NAME + r"/refs", Handler.refs),
    (r"/(?P<kind>datasets)/" + NAME + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Handler.resolve),
    (r"/" + NAME + r"/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Handler.resolve),
]
