"""Forwards connections to one address, each byte a while later, and counts them; of HTTP it counts the requests.

A byte that comes in at one time goes out after half the delay in its direction, however many are under way."""

import queue
import re
import socket
import threading
import time

REQUEST = re.compile(rb"(?:GET|PUT|POST|HEAD|DELETE) [^ \r\n]+ HTTP/1\.1\r\n")


class Forwarder:
    def __init__(self, host, port, delay_secs):
        self.target, self.delay = (host, port), delay_secs / 2
        self.bytes = self.requests = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.join, args=(client,), daemon=True).start()

    def join(self, client):
        # The handshake of a connection takes one way there and back.
        time.sleep(2 * self.delay)
        try:
            server = socket.create_connection(self.target)
        except OSError:
            client.close()
            return
        for one, other, asks in ((client, server, True), (server, client, False)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            under_way = queue.Queue(4096)
            threading.Thread(target=self.read, args=(one, under_way, asks), daemon=True).start()
            threading.Thread(target=self.write, args=(other, under_way), daemon=True).start()

    def read(self, source, under_way, asks):
        data = b"-"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            with self.lock:
                self.bytes += len(data)
                self.requests += len(REQUEST.findall(data)) if asks else 0
            under_way.put((time.monotonic() + self.delay, data))

    def write(self, sink, under_way):
        while True:
            due, data = under_way.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
            except OSError:
                return

    def take(self):
        """Bytes in both directions and requests since the last call."""
        with self.lock:
            counted, self.bytes, self.requests = (self.bytes, self.requests), 0, 0
        return counted
