"""Sessions: what they count, and the ways to say it."""

import pytest

from lancelet import Session
from lancelet.errors import InvalidInputError


@pytest.mark.parametrize(
    "backend", ["moka://?capacity=7", {"kind": "MOKA", "options": {"capacity": "7"}}]
)
def test_a_backend_is_a_size(backend):
    session = Session(index_cache_backend=backend, metadata_cache_backend=backend)
    assert session.size_bytes() <= 14
    assert session.index_cache_size_bytes() == 0
    assert session.is_same_as(Session())


@pytest.mark.parametrize(
    ("backend", "message"),
    [
        ("moka", "missing ':'"),
        ("disk://?capacity=1", "unknown cache backend kind"),
        ("moka://", "capacity is required"),
        ("moka://?capacity=", "capacity must not be empty"),
        ("moka://?capacity=x", "cannot parse capacity"),
        ("moka://?capacity=1&x=2", "unknown option"),
        ({"kind": "moka", "capacity": "1"}, "unknown dict key"),
        ({"options": {}}, "must contain a 'kind' key"),
        ({"kind": "moka", "options": {"capacity": 1}}, "values must be strings"),
        (5, "expected str"),
    ],
)
def test_other_backends_are_refused(backend, message):
    with pytest.raises(InvalidInputError, match=message):
        Session(index_cache_backend=backend)


def test_a_size_is_said_once():
    with pytest.raises(InvalidInputError, match="mutually exclusive"):
        Session(1024, index_cache_backend="moka://?capacity=1")
