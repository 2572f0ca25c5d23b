"""Ceph: a monitor, one object store daemon in memory, and the RADOS gateway that speaks S3.

It listens on loopback, and at the address of STORE_TESTS_ADDRESS where that is set, at the same port."""

import os
import uuid

from place import answers, free_port

CONFIG = """[global]
fsid = {fsid}
mon_initial_members = a
mon_host = v1:127.0.0.1:{port}
ms_bind_msgr2 = false
public_addr = 127.0.0.1
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_crush_update_on_start = false
osd_class_update_on_start = false
osd_objectstore = memstore
memstore_device_bytes = 8589934592
osd_memory_target = 939524096
mon_allow_pool_size_one = true
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
mon_data_avail_crit = 1
mon_data_avail_warn = 2
run_dir = {path}
log_file = {path}/$name.own.log
admin_socket = {path}/$name.asok
keyring = {path}/keyring
mon_data = {path}/mon
osd_data = {path}/osd
rgw_thread_pool_size = 64
rgw_enable_usage_log = false
rgw_gc_obj_min_wait = 5
rgw_relaxed_s3_bucket_names = true
"""


def start(place):
    """Returns endpoint, access key, secret and region."""
    port, fsid, osd = free_port(), str(uuid.uuid4()), str(uuid.uuid4())
    (place.path / "ceph.conf").write_text(CONFIG.format(path=place.path, port=port, fsid=fsid))
    (place.path / "mon").mkdir()
    (place.path / "osd").mkdir()
    config = ["-c", place.path / "ceph.conf"]
    place.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", "[v1:127.0.0.1:%d]" % port, "monmap")
    place.run("ceph-mon", *config, "--mkfs", "-i", "a", "--monmap", "monmap")
    place.start("mon", "ceph-mon", *config, "-i", "a", "-f")
    place.until("a monitor in quorum", lambda: place.succeeds("ceph", *config, "--connect-timeout", "60", "mon", "stat"))
    # On a busy machine the monitor is in quorum before it knows its own commands. Both may be said again.
    for words in (["osd", "new", osd], ["osd", "crush", "add", "osd.0", "1", "root=default"]):
        place.until("a monitor that takes `%s`" % words[1], lambda: place.succeeds("ceph", *config, *words))
    place.run("ceph-osd", *config, "-i", "0", "--mkfs", "--osd-uuid", osd)
    place.start("osd", "ceph-osd", *config, "-i", "0", "-f")
    place.until("a running object store daemon", lambda: "1 up" in place.run("ceph", *config, "osd", "stat"))
    place.run("radosgw-admin", *config, "user", "create", "--uid=tests", "--display-name=tests",
              "--access-key=CEPHKEY", "--secret=CEPHSECRET")
    port, more = free_port(), os.environ.get("STORE_TESTS_ADDRESS")
    listens = "".join(" endpoint=%s:%d" % (address, port) for address in ("127.0.0.1", more) if address)
    place.start("rgw", "radosgw", *config, "-n", "client.rgw", "--rgw_frontends=beast tcp_nodelay=1%s" % listens, "-f")
    endpoint = "http://127.0.0.1:%d" % port
    place.until("an answer of the gateway", lambda: answers(endpoint))
    return endpoint, "CEPHKEY", "CEPHSECRET", "us-east-1"
