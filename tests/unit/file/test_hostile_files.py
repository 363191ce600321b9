"""Files with contradicting parts; most were found by `fuzz/fuzz_file.py`."""

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.file import LanceFileReader
from lancelet.file.checksums import Verify
from lancelet.file.open import open_data_file
from lancelet.file.v0_1 import LegacyFileWriter
from lancelet.file.v2.footer import range_at
from lancelet.format.protos import file_pb
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion


def with_rows_claimed(store, num_rows):
    """Set the number of rows of the file in the store; the size of the descriptor is unchanged."""
    reader = open_data_file(store, "f.lance")
    position, size = (int(number) for number in range_at(reader.metadata.buffers, 0))
    message = file_pb.FileDescriptor.FromString(reader.global_buffer(0).tobytes())
    message.length = num_rows
    descriptor = message.SerializeToString()
    assert len(descriptor) == size
    data = bytearray(store.read("f.lance"))
    data[position : position + size] = descriptor
    store.put("f.lance", bytes(data))


@pytest.mark.parametrize("version", [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2])
@pytest.mark.parametrize("claimed", [2, 4, 100])
def test_pages_must_have_the_rows_of_the_file(store, write, version, claimed):
    write(store, pa.table({"x": [1, 2, 3]}), version=version, checksums=False)
    with_rows_claimed(store, claimed)
    reader = open_data_file(store, "f.lance")
    with pytest.raises(CorruptDataError, match="different number of rows than the file") as caught:
        reader.read(reader.schema.fields, RowRange(0, claimed))
    assert (caught.value.facts["expected"], caught.value.facts["found"]) == (claimed, 3)


def replace_once(store, found, wanted):
    data = store.read("f.lance")
    assert data.count(found) == 1
    assert len(found) == len(wanted)
    store.put("f.lance", data.replace(found, wanted))


@pytest.mark.parametrize(
    ("found", "wanted", "match"),
    [
        pytest.param(b'"kinds": ["int64"]', b'"kinds": ["int32"]', "do not match", id="other type"),
        pytest.param(b'"fields": [0]', b'"fields":[99]', None, id="other field"),
        pytest.param(b'"fields": [0]', b'"fields": 000', "damaged", id="no fields"),
        pytest.param(b'"zone_rows": 100', b'"zone_rows": 000', "damaged", id="no rows in a zone"),
        pytest.param(b'"zone_rows": 100', b'"zone_rows": 010', "damaged", id="not JSON"),
        pytest.param(b'"zone_rows": 100', b'"zone_rows": 1.0', "do not match", id="too many zones"),
        pytest.param(
            b'"num_rows": 1000', b'"num_rows": 2000', "different number of rows", id="other rows"
        ),
    ],
)
def test_zone_statistics_must_be_of_the_file(store, write, found, wanted, match):
    write(store, pa.table({"x": np.arange(1000)}), zone_rows=100, checksums=False)
    replace_once(store, found, wanted)
    reader = open_data_file(store, "f.lance", verify=Verify.OFF)
    if match is None:
        assert reader.zone_statistics(reader.schema.fields[0]) is None
        return
    with pytest.raises(CorruptDataError, match=match):
        reader.zone_statistics(reader.schema.fields[0])


def test_errors_in_metadata_name_the_file(store, write):
    write(store, pa.table({"x": [1, 2, 3]}), checksums=False)
    replace_once(store, b"/lance.encodings21.PageLayout", b"/lance.encodings99.PageLayout")
    reader = LanceFileReader(f"{store.uri}/f.lance", verify="off")
    with pytest.raises(UnsupportedError, match="unknown encoding type") as caught:
        reader.metadata()
    assert caught.value.facts["path"] == "f.lance"


def test_statistics_of_0_1_must_have_every_part_once(store):
    table = pa.table({"x": [1, 2, 3]})
    writer = LegacyFileWriter(store.open_writer("f.lance"), Schema.from_arrow(table.schema))
    writer.write(table)
    writer.finish()
    replace_once(store, b"max_value", b"min_value")
    reader = open_data_file(store, "f.lance")
    assert reader.zone_statistics(reader.schema.fields[0]) is None
