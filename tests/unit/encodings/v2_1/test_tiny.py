import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.encodings import v2_1
from lancelet.encodings.base import EncodedPage, FileVersion
from lancelet.encodings.v2_1 import fields
from lancelet.encodings.v2_1.tiny import encode_tiny
from lancelet.format.field import Field

VERSIONS = st.sampled_from([FileVersion.V2_1, FileVersion.V2_2])

PLAIN = st.one_of(
    st.lists(st.integers(-128, 127), min_size=1, max_size=80).flatmap(
        lambda values: st.sampled_from([pa.int8(), pa.int32(), pa.int64(), pa.decimal128(20)]).map(
            lambda data_type: pa.array(values).cast(data_type)
        )
    ),
    st.lists(st.floats(width=32), min_size=1, max_size=80).map(lambda v: pa.array(v, pa.float32())),
    st.lists(st.text(max_size=9), min_size=1, max_size=40).flatmap(
        lambda values: st.sampled_from([pa.string(), pa.large_string(), pa.binary()]).map(
            lambda data_type: pa.array(values).cast(data_type)
        )
    ),
)


def bytes_of(page: EncodedPage) -> tuple[object, ...]:
    buffers = tuple(buffer.tobytes() for buffer in page.buffers)
    return page.column, page.first_row, page.length, buffers, page.encoding, page.report


@given(
    PLAIN | st.just(pa.array([7, 7])) | st.just(pa.array(["ab", "ab"])), st.integers(0, 5), VERSIONS
)
def test_a_tiny_page_is_what_the_general_way_makes(array, start, version):
    array = array[min(start, len(array) - 1) :]
    field = Field.from_arrow(pa.field("x", array.type), iter(range(1)))
    tiny = encode_tiny(array, field, version)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fields, "encode_tiny", lambda *_: None)
        (general,) = v2_1.encode_field(array, field, version, blobs=None)
    if tiny is None:
        assert array.nbytes > 512
    else:
        assert bytes_of(tiny) == bytes_of(general)


@pytest.mark.parametrize(
    ("array", "metadata"),
    [
        (pa.array([1, None]), {}),
        (pa.array([True, False]), {}),
        (pa.array([[1], [2]]), {}),
        (pa.array(range(1000)), {}),
        (pa.array([1, 2]), {"lance-encoding:compression": "zstd"}),
    ],
    ids=["nulls", "bits", "lists", "many", "wishes"],
)
def test_what_needs_more_is_left_to_the_general_way(array, metadata):
    field = Field.from_arrow(pa.field("x", array.type, metadata=metadata), iter(range(9)))
    assert encode_tiny(array, field, FileVersion.V2_2) is None


def test_wishes_of_the_environment_are_left_to_the_general_way(monkeypatch):
    field = Field.from_arrow(pa.field("x", pa.int64()), iter(range(1)))
    assert encode_tiny(pa.array([1, 2]), field, FileVersion.V2_2) is not None
    monkeypatch.setenv("LANCE_ENCODING_DICT_DIVISOR", "4")
    assert encode_tiny(pa.array([1, 2]), field, FileVersion.V2_2) is None
