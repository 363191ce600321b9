"""Sessions: what they count, and the ways to say it."""

import pyarrow as pa
import pytest

import lancelet
from lancelet import Session
from lancelet.errors import InvalidInputError
from lancelet.fragment import LanceFragment, write_fragments


@pytest.mark.parametrize(
    "backend", ["moka://?capacity=7", {"kind": "MOKA", "options": {"capacity": "7"}}]
)
def test_a_backend_is_a_size(backend):
    session = Session(index_cache_backend=backend, metadata_cache_backend=backend)
    assert session.size_bytes() <= 14
    assert session.index_cache_size_bytes() == 0


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


def test_a_session_counts_what_its_tables_read(tmp_path):
    rows = pa.table({"a": range(1000)})
    lancelet.write_dataset(rows, tmp_path, max_rows_per_file=250)
    dataset = lancelet.dataset(tmp_path)
    before = dataset.session().size_bytes()
    dataset.to_table()
    assert dataset.session().size_bytes() > before
    shared = lancelet.dataset(tmp_path, session=dataset.session())
    assert shared.session().is_same_as(dataset.session())
    assert not shared.session().is_same_as(lancelet.dataset(tmp_path).session())


def test_fragments_are_written_with_a_session(tmp_path):
    rows = pa.table({"a": [1]})
    dataset = lancelet.write_dataset(rows, tmp_path)
    session = dataset.session()
    before = session.size_bytes()
    write_fragments(rows, str(tmp_path), session=session)
    between = session.size_bytes()
    LanceFragment.create(str(tmp_path), rows, session=session)
    assert before < between < session.size_bytes()
    assert len(write_fragments(rows, dataset, session=session)) == 1
    with pytest.raises(ValueError, match="not the destination dataset's own session"):
        write_fragments(rows, dataset, session=Session())
