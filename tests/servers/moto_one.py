"""moto's S3 server on loopback at the port of the first argument, one request at a time.

moto looks whether a key is there and writes it in two steps, with other threads between them: a put-if-absent is one
step only when requests wait for each other."""

import io
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


class OneAtATime:
    def __init__(self, application):
        self.application, self.turn = application, threading.Lock()

    def __call__(self, environ, start_response):
        # A slow client must not hold up the others: its body comes before its turn.
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        if len(body) < length:
            raise ConnectionError("the client went away")
        environ["wsgi.input"] = io.BytesIO(body)
        with self.turn:
            return list(self.application(environ, start_response))


run_simple("127.0.0.1", int(sys.argv[1]), OneAtATime(DomainDispatcherApplication(create_backend_app)), threaded=True)
