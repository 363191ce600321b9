"""Numbers and JSON in stored texts are bounded for every kind of file."""

import uuid

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError
from lancelet.format.field import Field
from lancelet.format.trailer import with_trailer
from lancelet.format.wire import parse_number
from lancelet.index.vector.graph import _parse_metadata
from lancelet.index.vector.layout import (
    NUM_SKIPPED_KEY,
    STORAGE_KEY,
    read_num_skipped,
    read_storage_metadata,
)
from lancelet.memwal.shard import HINT_PATH, Shard
from lancelet.table.removals import Removals

DEEP = "[" * 100_000
LONG = "9" * 5000


class File:
    path = "x"

    def __init__(self, **metadata):
        self.metadata = metadata


@pytest.mark.parametrize("text", [None, "", "-1", "1.5", "\u00b2", b"\xb2", LONG, str(1 << 64)])
def test_a_text_that_is_no_number_of_64_bits_is_none(text):
    assert parse_number(text) is None
    assert parse_number(str((1 << 64) - 1)) == (1 << 64) - 1
    assert parse_number(b"12") == 12


@pytest.mark.parametrize(
    "content", [DEEP, '{"removed": {}, "forgotten": Infinity}', f'{{"removed": {DEEP}']
)
def test_a_record_of_removed_versions_that_makes_no_sense(content):
    with pytest.raises(CorruptDataError):
        Removals.parse(with_trailer(content.encode()))


@pytest.mark.parametrize("text", [DEEP, "Infinity"])
def test_the_notes_on_codes_and_graphs_of_an_index(text):
    with pytest.raises(CorruptDataError):
        read_storage_metadata(File(**{STORAGE_KEY: text}))
    with pytest.raises(CorruptDataError):
        _parse_metadata(text)
    assert read_num_skipped(File(**{NUM_SKIPPED_KEY: LONG})) is None


@pytest.mark.parametrize("hint", [DEEP, '{"version": Infinity}', '{"version": 1e999}', "[1]"])
def test_the_hint_of_a_shard_is_advice(tmp_path, hint):
    dataset = lancelet.write_dataset(pa.table({"id": np.arange(3)}), tmp_path / "t")
    shard = Shard(dataset.snapshot.location, uuid.uuid4())
    shard.store.put(HINT_PATH, hint.encode())
    assert shard.latest() is None


def test_the_place_of_a_field_in_the_key(tmp_path):
    metadata = {"lance-schema:unenforced-primary-key:position": LONG}
    schema = pa.schema([pa.field("id", pa.int64(), metadata=metadata)])
    dataset = lancelet.write_dataset(pa.table([[1]], schema), tmp_path / "t")
    assert lancelet.dataset(dataset.uri).to_table()["id"].to_pylist() == [1]
    assert isinstance(dataset.snapshot.schema.fields[0], Field)
