"""An S3 server in its own process that tests can pause and kill.

    with S3Server() as server:
        store = open_folder("s3://shelf/t", server.storage_options)
        server.pause()      requests are no longer answered
        server.resume()     pending requests are answered

The server is `moto`, which stores objects in memory and supports conditional puts. By itself, it
checks whether an object exists and writes it later, so two threads can both find the name unused.
Here, requests are processed one at a time, after their body was received.
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
    """A server that runs until its context ends or until it is killed."""

    def __init__(self, *buckets: str) -> None:
        """Start the server, with some empty buckets."""
        self._process = subprocess.Popen(  # fixed arguments
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
        """The storage options for the server."""
        return {
            "aws_access_key_id": "key",
            "aws_secret_access_key": "secret",
            "aws_region": "us-east-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    def make_bucket(self, bucket: str) -> None:
        """Create an empty bucket."""
        self.request("PUT", bucket)

    def request(self, method: str, path: str) -> bytes:
        """Send an HTTP request and return the body of the response."""
        request = urllib.request.Request(f"{self.endpoint}/{path}", method=method)  # a local server
        with urllib.request.urlopen(request, timeout=10) as answer:  # the same
            body: bytes = answer.read()
        return body

    def pause(self) -> None:
        """Stop answering requests; connections are still accepted."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume answering requests, first the pending ones."""
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server; connections are refused afterwards."""
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
        """Stop the server."""
        self.kill()
