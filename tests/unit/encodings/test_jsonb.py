"""JSON columns: text in, text out, and errors that show the row."""

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.jsonb import documents_from_storage, documents_to_storage
from lancelet.errors import CorruptDataError, InvalidInputError


def test_nulls_differ_from_json_nulls():
    texts = pa.array(["null", None, '{"a": 1}', None])
    found = documents_from_storage(documents_to_storage(texts))
    assert found.type == pa.json_(pa.string())
    assert found.to_pylist() == ["null", None, '{"a":1}', None]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_slices_of_every_kind_of_string_are_stored(kind):
    texts = pa.array(["[0]", "[1]", None, "[3]", "[4]"], kind)
    assert documents_from_storage(documents_to_storage(texts[1:4])).to_pylist() == [
        "[1]",
        None,
        "[3]",
    ]
    assert len(documents_to_storage(texts[2:2])) == 0
    assert documents_from_storage(documents_to_storage(texts[2:2])).to_pylist() == []


def test_stored_slices_are_read():
    stored = documents_to_storage(pa.array(["1", None, "2", "3"]))
    assert documents_from_storage(stored[1:3]).to_pylist() == [None, "2"]


def test_a_wrong_document_is_shown_with_its_row_and_the_fault():
    with pytest.raises(InvalidInputError, match="Expecting value") as caught:
        documents_to_storage(pa.array(["1", "[1,x]"]))
    assert caught.value.facts == {"row": 1, "text": "[1,x]"}


def test_strings_that_are_not_utf8_are_rejected():
    stored = bytes.fromhex("2000000010000001ff")
    with pytest.raises(CorruptDataError, match="UTF-8"):
        documents_from_storage(pa.array([stored], pa.large_binary()))


def test_many_documents_keep_their_order():
    numbers = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, 20_000).tolist()
    texts = pa.array([f'{{"n":{number}}}' for number in numbers])
    assert documents_from_storage(documents_to_storage(texts)).storage.equals(texts)
