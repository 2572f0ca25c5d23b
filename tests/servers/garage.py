"""Garage: three nodes of one cluster, every object on each. It takes no conditional put for what it is: a store with one
writer. A node may be killed (`Place.kill`, its name is `garage-0` and so on) and started again."""

import secrets

from place import BUCKET, INSTALLED, answers, free_port

NODES = 3
REGION = "garage"
PROGRAM = INSTALLED / "garage/bin/garage"
CONFIG = """metadata_dir = "{path}/meta"
data_dir = "{path}/data"
db_engine = "lmdb"
replication_factor = {nodes}
rpc_bind_addr = "127.0.0.1:{rpc}"
rpc_public_addr = "127.0.0.1:{rpc}"
rpc_secret = "{secret}"
[s3_api]
s3_region = "{region}"
api_bind_addr = "127.0.0.1:{api}"
root_domain = ".s3.garage.localhost"
[admin]
api_bind_addr = "127.0.0.1:{admin}"
admin_token = "{secret}"
"""


class Garage:
    def __init__(self, place):
        self.place, self.key, self.secret = place, "GK" + secrets.token_hex(12), secrets.token_hex(32)
        rpc_secret = secrets.token_hex(32)
        self.endpoints = []
        for number in range(NODES):
            rpc, api, admin = free_port(), free_port(), free_port()
            self.config(number).parent.mkdir()
            self.config(number).write_text(CONFIG.format(
                path=self.config(number).parent, nodes=NODES, region=REGION, rpc=rpc, api=api, admin=admin,
                secret=rpc_secret))
            self.endpoints.append("http://127.0.0.1:%d" % api)

    def config(self, number):
        return self.place.path / ("node-%d" % number) / "garage.toml"

    def start(self, number):
        """Starts a node, the first time or again, and waits until it answers."""
        self.place.start("garage-%d" % number, PROGRAM, "-c", self.config(number), "server", RUST_LOG="garage=info")
        self.place.until("an answer of garage", lambda: answers(self.endpoints[number]))

    def run(self, number, *words):
        return self.place.run(PROGRAM, "-c", self.config(number), *words)

    def join(self):
        """Makes one cluster of the nodes, with a key and a bucket."""
        addresses = [self.run(number, "node", "id", "-q").strip() for number in range(NODES)]
        for address in addresses[1:]:
            self.run(0, "node", "connect", address)
        for number, address in enumerate(addresses):
            self.run(0, "layout", "assign", "-z", "dc%d" % number, "-c", "1G", address.split("@")[0])
        self.run(0, "layout", "apply", "--version", "1")
        self.run(0, "key", "import", self.key, self.secret, "-n", "tests", "--yes")
        self.run(0, "bucket", "create", BUCKET)
        self.run(0, "bucket", "allow", "--read", "--write", "--owner", BUCKET, "--key", "tests")


def cluster(place):
    """A cluster that serves."""
    garage = Garage(place)
    for number in range(NODES):
        garage.start(number)
    garage.join()
    return garage


def start(place):
    """Returns endpoint of the first node, access key, secret and region."""
    garage = cluster(place)
    return garage.endpoints[0], garage.key, garage.secret, REGION
