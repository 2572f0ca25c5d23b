"""Garage: three nodes of one cluster, every object on each. It takes no conditional put for what it is: a store with one
writer. `garage-0.pid` and so on in its place hold the process ids, for tests that kill one."""

import secrets

from place import BUCKET, INSTALLED, answers, free_port

NODES = 3
PROGRAM = INSTALLED / "garage/bin/garage"
CONFIG = """metadata_dir = "{path}/meta"
data_dir = "{path}/data"
db_engine = "lmdb"
replication_factor = {nodes}
rpc_bind_addr = "127.0.0.1:{rpc}"
rpc_public_addr = "127.0.0.1:{rpc}"
rpc_secret = "{secret}"
[s3_api]
s3_region = "garage"
api_bind_addr = "127.0.0.1:{api}"
root_domain = ".s3.garage.localhost"
[admin]
api_bind_addr = "127.0.0.1:{admin}"
admin_token = "{secret}"
"""


def start(place):
    """Returns endpoint of the first node, access key, secret and region."""
    rpc_secret = secrets.token_hex(32)
    configs, endpoints, addresses = [], [], []
    for number in range(NODES):
        path = place.path / ("node-%d" % number)
        path.mkdir()
        rpc, api = free_port(), free_port()
        config = path / "garage.toml"
        config.write_text(CONFIG.format(path=path, nodes=NODES, rpc=rpc, api=api, admin=free_port(), secret=rpc_secret))
        child = place.start("garage-%d" % number, PROGRAM, "-c", config, "server", RUST_LOG="garage=info")
        (place.path / ("garage-%d.pid" % number)).write_text(str(child.pid))
        configs.append(config)
        endpoints.append("http://127.0.0.1:%d" % api)
    for config, endpoint in zip(configs, endpoints):
        place.until("an answer of garage", lambda: answers(endpoint))
        addresses.append(place.run(PROGRAM, "-c", config, "node", "id", "-q").strip())
    garage = [PROGRAM, "-c", configs[0]]
    for address in addresses[1:]:
        place.run(*garage, "node", "connect", address)
    for number, address in enumerate(addresses):
        place.run(*garage, "layout", "assign", "-z", "dc%d" % number, "-c", "1G", address.split("@")[0])
    place.run(*garage, "layout", "apply", "--version", "1")
    key, secret = "GK" + secrets.token_hex(12), secrets.token_hex(32)
    place.run(*garage, "key", "import", key, secret, "-n", "tests", "--yes")
    place.run(*garage, "bucket", "create", BUCKET)
    place.run(*garage, "bucket", "allow", "--read", "--write", "--owner", BUCKET, "--key", "tests")
    return endpoints[0], key, secret, "garage"
