"""Fixtures of fault tests: requests are the same in every run."""

import pytest

from lancelet.io.cache import CACHE


@pytest.fixture(autouse=True)
def nothing_is_kept_between_requests():
    """Keep nothing of files, so that the number of a request means the same request each time.

    A file is kept only once it is old enough to tell it from another of the same name, so
    whether it is read twice would depend on how fast the test gets there.
    """
    before = CACHE.stats.budget_bytes
    CACHE.resize(0)
    yield
    CACHE.resize(before)
