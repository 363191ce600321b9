"""Files whose parts contradict each other; most were found by `fuzz/fuzz_file.py`."""

import pyarrow as pa
import pytest

from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.file.open import open_data_file
from lancelet.file.v2.footer import range_at
from lancelet.format.protos import file_pb
from lancelet.format.version import FileVersion


def with_rows_claimed(store, num_rows):
    """Let the file in the store say that it has `num_rows` rows; the descriptor keeps its size."""
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
    with pytest.raises(CorruptDataError, match="do not have the rows of the file") as caught:
        reader.read(reader.schema.fields, RowRange(0, claimed))
    assert (caught.value.facts["expected"], caught.value.facts["found"]) == (claimed, 3)
