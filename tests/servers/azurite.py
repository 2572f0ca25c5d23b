"""Azurite from npm, Microsoft's own stand-in for the blobs of Azure: one account with a key of its own, all in memory."""

import base64
import datetime
import hashlib
import hmac
import secrets
import urllib.parse
import urllib.request

from place import BUCKET, INSTALLED, answers, free_port

ACCOUNT = "tests"
VERSION = "2018-11-09"


class Azurite:
    """A server with an empty container; `endpoint` is that of the account."""

    def __init__(self, place):
        port, self.key = free_port(), base64.b64encode(secrets.token_bytes(64)).decode()
        program = INSTALLED / "azurite/node_modules/.bin/azurite-blob"
        place.start("azurite", program, "--inMemoryPersistence", "--silent", "--skipApiVersionCheck",
                    "--blobHost", "127.0.0.1", "--blobPort", port, AZURITE_ACCOUNTS="%s:%s" % (ACCOUNT, self.key))
        self.endpoint = "http://127.0.0.1:%d/%s" % (port, ACCOUNT)
        place.until("an answer of azurite", lambda: answers(self.endpoint))
        url = "%s/%s?restype=container&%s" % (self.endpoint, BUCKET, self.signature())
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers={"x-ms-version": VERSION})).close()

    def signature(self):
        """A shared access signature for everything, good for a day."""
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
        fields = {"sp": "rwdlac", "ss": "b", "srt": "sco", "st": "", "se": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "sip": "",
                  "spr": "https,http", "sv": VERSION}
        text = "\n".join([ACCOUNT, *fields.values()]) + "\n"
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        given = {name: value for name, value in fields.items() if value}
        return urllib.parse.urlencode({**given, "sig": base64.b64encode(digest).decode()})

    def connection(self, **fields):
        """A connection string with these fields beside the endpoint."""
        return "".join("%s=%s;" % pair for pair in [("BlobEndpoint", self.endpoint), *fields.items()])
