"""A server for the tests of this folder, which are there where one is installed."""

import pytest

from tests.kit.postgres_server import find_programs, postgres_server

PROGRAMS = find_programs()
collect_ignore_glob = [] if PROGRAMS else ["test_*.py"]


@pytest.fixture(scope="session")
def dsn():
    with postgres_server(PROGRAMS) as found:
        yield found
