"""S3 servers that nobody here wrote, started on loopback and stopped again.

    servers.py run NAME... -- COMMAND...    COMMAND with the servers' endpoints in its environment
    servers.py keep PID FILE NAME...        the same lines into FILE when all are ready; serves until process PID ends

NAME is one of moto, ceph, s3rver, garage. The environment gets STORE_TESTS_<NAME>="ENDPOINT KEY SECRET REGION"; each has an
empty bucket `tests`. Without argument what is installed is used, see install.sh; what cannot be started is an error."""

import concurrent.futures
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile

import ceph
import garage
from place import BUCKET, INSTALLED, Failed, Place, answers, free_port


def moto(place):
    port = free_port()
    place.start("moto", INSTALLED / "moto/bin/python", pathlib.Path(__file__).with_name("moto_one.py"), port)
    endpoint = "http://127.0.0.1:%d" % port
    place.until("an answer of moto", lambda: answers(endpoint))
    return endpoint, "MOTOKEY", "MOTOSECRET", "us-east-1"


def s3rver(place):
    port = free_port()
    program = INSTALLED / "s3rver/node_modules/.bin/s3rver"
    place.start("s3rver", program, "-d", place.path / "data", "-a", "127.0.0.1", "-p", port, "--no-vhost-buckets")
    endpoint = "http://127.0.0.1:%d" % port
    place.until("an answer of s3rver", lambda: answers(endpoint))
    return endpoint, "S3RVER", "S3RVER", "us-east-1"


STARTS = {"moto": moto, "ceph": ceph.start, "s3rver": s3rver, "garage": garage.start}


def start(name, room):
    """Starts one server with its bucket; returns the place to stop and what the tests are told."""
    place = Place(room / name)
    try:
        endpoint, key, secret, region = STARTS[name](place)
        if name != "garage":
            make_bucket(endpoint, key, secret, region)
    except BaseException:
        place.stop()
        raise
    return place, "STORE_TESTS_%s" % name.upper(), "%s %s %s %s" % (endpoint, key, secret, region)


def make_bucket(endpoint, key, secret, region):
    import boto3
    client = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret, region_name=region)
    client.create_bucket(Bucket=BUCKET)


def serve(names, then):
    """Starts all of them beside each other, calls `then` with their variables, and stops them."""
    room = pathlib.Path(tempfile.mkdtemp(prefix="store-servers."))
    started = []
    # A child dies with the thread that started it, so the threads stay until the end.
    threads = concurrent.futures.ThreadPoolExecutor(len(names))
    try:
        futures = [threads.submit(start, name, room) for name in names]
        concurrent.futures.wait(futures)
        started = [future.result() for future in futures if future.exception() is None]
        for future in futures:
            future.result()
        return then({variable: value for _, variable, value in started})
    finally:
        for place, _, _ in started:
            place.stop()
        threads.shutdown()
        shutil.rmtree(room, ignore_errors=True)


def keep(pid, file):
    watched = os.pidfd_open(pid)

    def until_it_ends(variables):
        lines = "".join("%s=%s\n" % pair for pair in variables.items())
        pathlib.Path(file + ".new").write_text(lines)
        os.rename(file + ".new", file)
        select.select([watched], [], [])
        return 0

    return until_it_ends


def main():
    # Asked to end, it stops the servers and takes its directory away, as at any other end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    match sys.argv[1:]:
        case ["run", *rest] if "--" in rest:
            names, command = rest[:rest.index("--")], rest[rest.index("--") + 1:]
            return serve(names, lambda variables: subprocess.run(command, env={**os.environ, **variables}).returncode)
        case ["keep", pid, file, *names]:
            return serve(names, keep(int(pid), file))
    sys.exit(__doc__)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failed:
        sys.exit("tests/servers: " + str(failed))
