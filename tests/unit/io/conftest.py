from collections.abc import Iterator

import pytest

from tests.kit.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server that tests share; one that is killed or paused is the test's own."""
    with S3Server() as server:
        yield server
