"""An empty bucket behind HTTPS on 127.0.0.1:443, and a name server that knows it. endpoint.py NAME CERTIFICATE KEY

Made for a network namespace of its own. Prints "ready" when both answer.
"""

import http.server
import socket
import ssl
import sys
import threading

NOTHING = b"<Error><Code>NoSuchKey</Code><Message>there is nothing</Message></Error>"


class Bucket(http.server.BaseHTTPRequestHandler):
    """Has no object."""

    def do_GET(self):
        self.send_response(404)
        self.send_header("Content-Length", str(len(NOTHING)))
        self.end_headers()
        self.wfile.write(NOTHING)

    def log_message(self, *arguments):
        pass


def answer(query, name):
    """The address 127.0.0.1 for `name`; no other names and no other kinds of address."""
    end = query.index(b"\0", 12) + 1
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    known, kind = query[12:end].lower() == labels, query[end : end + 2]
    address = known and kind == b"\0\1"
    flags = b"\x81\x80" if known else b"\x81\x83"
    counts = b"\0\1" + (b"\0\1" if address else b"\0\0") + b"\0\0\0\0"
    record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if address else b""
    return query[:2] + flags + counts + query[12 : end + 4] + record


def serve_names(names, name):
    while True:
        query, client = names.recvfrom(512)
        names.sendto(answer(query, name), client)


def main():
    name, certificate, key = sys.argv[1:]
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    threading.Thread(target=serve_names, args=(names, name), daemon=True).start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Bucket)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print("ready", flush=True)
    server.serve_forever()


main()
