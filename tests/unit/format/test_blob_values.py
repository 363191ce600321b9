"""Arrow knows the type of blobs wherever a schema is read, over either of its storages."""

import pickle

import pyarrow as pa
import pytest

from lancelet.errors import InvalidInputError
from lancelet.format.blob_values import STORAGE_WITHOUT_RANGE, BlobType, blob_array, blob_field
from lancelet.format.field import Field

# Whoever imported a reader of Lance first has registered its class for the type.
BLOB = pa.ipc.read_schema(pa.schema([blob_field("b")]).serialize()).field(0).type


def test_a_schema_shows_blobs_and_not_their_storage():
    stored = Field.from_arrow(blob_field("b"), iter(range(9)))
    assert stored.to_arrow().type == BLOB
    assert isinstance(BLOB, pa.ExtensionType)
    assert BLOB.extension_name == "lance.blob.v2"


@pytest.mark.parametrize("storage", [STORAGE_WITHOUT_RANGE, BlobType().storage_type])
def test_the_type_keeps_the_storage_that_it_was_read_with(storage):
    found = BlobType.__arrow_ext_deserialize__(storage, b"")
    assert found.storage_type == storage
    assert pickle.loads(pickle.dumps(found)).storage_type == storage
    array = pa.ExtensionArray.from_storage(found, pa.array([{"data": b"x"}], storage))
    assert array.to_pylist()[0]["data"] == b"x"


def test_other_storage_is_no_blob():
    with pytest.raises(InvalidInputError, match="unexpected fields"):
        BlobType.__arrow_ext_deserialize__(pa.struct([("data", pa.int8())]), b"")


def test_columns_are_made_of_bytes_and_uris():
    blobs = blob_array([b"x", None, "s3://b/y"])
    assert [row and (row["data"], row["uri"]) for row in blobs.to_pylist()] == [
        (b"x", None),
        None,
        (None, "s3://b/y"),
    ]
