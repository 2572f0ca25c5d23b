"""A link with a delay to a network namespace of its own: two TUN devices, and a thread of packets between them.

The kernel at hand may lack netem. Packets go from one device to the other half the delay later, in order, none lost, up
to 64 KiB each as the kernel's own segmentation makes them; so TCP is that of the kernel, with handshakes, slow start
and windows. Counted are bytes in each direction, connections, and what of them begins with a request of HTTP.

    link.py DELAY_MS     serves for a process that holds its standard input open: see Link
"""

import collections
import ctypes
import fcntl
import json
import os
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, TUNSETOFFLOAD, TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02
HEAD_BYTES = 10
CLONE_NEWNET = 0x40000000
REQUEST = b" HTTP/1.1\r\n"
HERE, THERE = "10.213.77.1", "10.213.77.2"
FIN_OR_RST, SYN = 0x05, 0x02


class Link:
    """A link from this host's namespace to a new one, in a process of its own. `enter` goes before commands over there."""

    def __init__(self, delay_ms):
        words = [sys.executable, "-B", __file__, str(delay_ms)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask()
        self.enter = ["nsenter", "--net=/proc/%d/fd/%s" % (self.process.pid, self.namespace), "--"]

    def ask(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("far: the link did not come up: it needs root, /dev/net/tun and nsenter")
        told = json.loads(line)
        self.namespace = told["namespace"]
        return told

    def take(self):
        """What went over since the last call."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.ask()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def tun(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(device, TUNSETVNETHDRSZ, struct.pack("i", HEAD_BYTES))
    fcntl.ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return device


def up(name, own, other):
    """With the congestion control that most hosts have, whatever this one has been given."""
    for words in (["addr", "add", own, "dev", name], ["link", "set", name, "txqueuelen", "10000", "up"],
                  ["route", "add", other, "dev", name, "congctl", "cubic"]):
        subprocess.run(["ip", *words], check=True)


class Counts:
    """Looks into packets from the client."""

    def __init__(self):
        self.open = set()
        self.bytes = [0, 0]
        self.requests = self.most = self.made = 0

    def look(self, packet, way):
        size = len(packet) - HEAD_BYTES
        self.bytes[way] += size
        head = HEAD_BYTES + (packet[HEAD_BYTES] & 15) * 4
        flags = packet[head + 13]
        port = packet[head : head + 2] if way == 0 else packet[head + 2 : head + 4]
        if flags & FIN_OR_RST:
            self.open.discard(port)
        elif way == 0:
            if flags & SYN:
                self.open.add(port)
                self.made += 1
                self.most = max(self.most, len(self.open))
            self.requests += packet.count(REQUEST, head)

    def take(self):
        told = {"up": self.bytes[0], "down": self.bytes[1], "requests": self.requests, "connections": self.made,
                "at_once": self.most}
        still = self.open
        self.__init__()
        self.open, self.most = still, len(still)
        return told


def carry(devices, delay, namespace):
    """Until standard input ends; a line there asks for the counts."""
    counts, under_way = Counts(), (collections.deque(), collections.deque())
    poll = select.poll()
    for one in (*devices, 0):
        poll.register(one, select.POLLIN)
    say = lambda: print(json.dumps({"namespace": namespace, **counts.take()}), flush=True)
    say()
    while True:
        first = min((way[0][0] for way in under_way if way), default=None)
        wait = None if first is None else max(0.0, (first - time.monotonic()) * 1000)
        ready = {one for one, _ in poll.poll(wait)}
        if 0 in ready:
            if not os.read(0, 1):
                return
            say()
        for way, device in enumerate(devices):
            if device not in ready:
                continue
            due = time.monotonic() + delay
            for _ in range(64):
                try:
                    packet = os.read(device, 1 << 17)
                except BlockingIOError:
                    break
                under_way[way].append((due, packet))
                if packet[HEAD_BYTES] >> 4 == 4 and packet[HEAD_BYTES + 9] == 6:
                    counts.look(packet, way)
        now = time.monotonic()
        for way, waiting in enumerate(under_way):
            while waiting and waiting[0][0] <= now:
                try:
                    os.write(devices[1 - way], waiting[0][1])
                except OSError as error:
                    # A packet that is not for this kind of device, as those of IPv6 without an address.
                    print("far: a packet was refused: %s" % error, file=sys.stderr)
                waiting.popleft()


def main():
    delay = float(sys.argv[1]) / 2000
    ours = os.open("/proc/self/ns/net", os.O_RDONLY)
    name = "far%d" % os.getpid()
    here = tun(name)
    up(name, HERE, THERE)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        sys.exit("far: no network namespace: %s" % os.strerror(ctypes.get_errno()))
    theirs = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    there = tun(name)
    up(name, THERE, HERE)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if libc.setns(ours, CLONE_NEWNET) != 0:
        sys.exit("far: %s" % os.strerror(ctypes.get_errno()))
    carry((here, there), delay, theirs)


if __name__ == "__main__":
    main()
