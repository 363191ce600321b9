"""Goal: of conditional puts of one name that meet, the server takes exactly one."""

import http.client
import threading

import pytest

from tests.kit import s3_server
from tests.kit.s3_server import S3Server

SLOW = """
import time
from moto.s3.responses import S3Response
check = S3Response._get_checksum
def slow(*given):
    time.sleep(0.1)  # between the look for the object and its write
    return check(*given)
S3Response._get_checksum = slow
server.start()
"""


@pytest.fixture
def server(monkeypatch):
    program = s3_server._PROGRAM.replace("server.start()\n", SLOW)
    monkeypatch.setattr(s3_server, "_PROGRAM", program)
    with S3Server("shelf") as server:
        yield server


def test_one_of_several_puts_takes_a_name(server):
    start = threading.Barrier(4)
    answers = []

    def put():
        connection = http.client.HTTPConnection(server.endpoint.removeprefix("http://"))
        start.wait()
        connection.request("PUT", "/shelf/name", body=b"x", headers={"If-None-Match": "*"})
        answers.append(connection.getresponse().status)
        connection.close()

    threads = [threading.Thread(target=put) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert answers.count(200) == 1
