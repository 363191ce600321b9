"""An S3 server in a process of its own, so that tests can slow it down and kill it.

    with S3Server() as server:
        store = open_folder("s3://shelf/t", server.storage_options)
        server.pause()      from now on no request is answered
        server.resume()     the ones that waited are

It is `moto`, which keeps everything in memory and knows conditional puts. By itself it looks
whether an object is there, and writes it some lines later, so that two of its threads may both find
the name free: here each request is answered as a whole, once all of its body has come.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from types import TracebackType
from typing import Final, Self

from tests.kit.child import bound_to_us

_PROGRAM: Final = """
import logging, sys, threading
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer
lock = threading.RLock()
def whole(answer):
    def locked(*given, **named):
        with lock:
            return answer(*given, **named)
    return locked
S3Response._key_response = whole(S3Response._key_response)
S3Response._bucket_response = whole(S3Response._bucket_response)
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


class S3Server:
    """A server that lives until its context ends, or until it is killed."""

    def __init__(self, *buckets: str) -> None:
        """Start the server, with some empty buckets."""
        self._process = subprocess.Popen(  # our own interpreter and program
            bound_to_us([sys.executable, "-c", _PROGRAM]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self.endpoint = f"http://127.0.0.1:{port}"
        for bucket in buckets:
            self.make_bucket(bucket)

    @property
    def storage_options(self) -> dict[str, str]:
        """What a store needs to find the server."""
        return {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def make_bucket(self, bucket: str) -> None:
        """Make an empty bucket."""
        self.request("PUT", bucket)

    def request(self, method: str, path: str) -> bytes:
        """Send a plain request, and return the body of the answer."""
        request = urllib.request.Request(f"{self.endpoint}/{path}", method=method)  # our own server
        with urllib.request.urlopen(request, timeout=10) as answer:  # the same
            body: bytes = answer.read()
        return body

    def pause(self) -> None:
        """Answer nothing from now on, while connections are still accepted."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again, first what came in meanwhile."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the server at once; connections are refused from now on."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server."""
        self.kill()
