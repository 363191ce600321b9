"""Writing 2.x files: refusals before a byte, nothing visible after failures, pages as asked."""

import numpy as np
import pyarrow as pa
import pytest

from lancelet.buffers import ByteRanges
from lancelet.encodings.base import RowRange
from lancelet.encodings.choice import options
from lancelet.errors import InvalidInputError, StorageError, UnsupportedError
from lancelet.file import LanceFileWriter
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.footer import ALIGNMENT, PADDING_BYTE
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.memory import MemoryStore

VERSIONS = [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2, FileVersion.V2_3]
fsl_of_struct = pa.list_(pa.struct([("a", pa.int8())]), 2)
UNION = pa.dense_union([pa.field("a", pa.int8())])


class RecordingStore(MemoryStore):
    """Counts the objects that were started, and may fail after some writes."""

    def __init__(self, bucket, fail_after=None):
        super().__init__(bucket)
        self.started = 0
        self.fail_after = fail_after

    def open_writer(self, path):
        self.started += 1
        writer = super().open_writer(path)
        if self.fail_after is None:
            return writer
        write, left = writer.write, [self.fail_after]

        def failing(*buffers):
            left[0] -= 1
            if left[0] < 0:
                raise StorageError("no space left")
            write(*buffers)

        writer.write = failing
        return writer


def random_table(rows=10_000):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "a": pa.array(rng.integers(0, 1 << 60, rows)),
            "s": pa.array([f"{value:x}" for value in rng.integers(0, 1 << 60, rows)], pa.string()),
            "l": pa.array([[1, 2]] * rows, pa.list_(pa.int64())),
        }
    )


def start(store, table, **options):
    schema = Schema.from_arrow(table.schema)
    return create_data_file(store, "data/f.lance", schema, WriterOptions(**options))


def write_all(writer, table):
    for batch in table.to_batches(max_chunksize=100):
        writer.write(batch)
    writer.finish()


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "data_type",
    [
        UNION,
        pa.month_day_nano_interval(),
        pa.list_view(pa.int8()),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.decimal32(5, 2),
        pa.decimal64(5, 2),
    ],
    ids=str,
)
def test_types_that_the_format_lacks_are_rejected_by_name(version, data_type):
    store = RecordingStore("refused")
    with pytest.raises(UnsupportedError) as caught:
        start(store, pa.table({"x": pa.nulls(0, data_type)}), version=version)
    assert caught.value.facts["field"] == "x"
    assert store.started == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "data_type",
    [
        pa.list_(pa.int8(), 0),
        pa.list_(pa.list_(pa.int8(), 0), 2),
        pa.list_(pa.string(), 2),
        pa.list_(pa.list_(pa.dictionary(pa.int8(), pa.string()), 2), 2),
    ],
    ids=str,
)
def test_values_that_could_not_be_read_again_are_rejected_by_name(version, data_type):
    store = RecordingStore("refused")
    column = pa.nulls(0, pa.struct([("a", pa.int8()), ("x", data_type)]))
    with pytest.raises(UnsupportedError, match="store") as caught:
        start(store, pa.table({"s": column}), version=version)
    assert caught.value.facts["column"] == "s.x"
    assert store.started == 0


@pytest.mark.parametrize("version", [v for v in VERSIONS if v is not FileVersion.V2_2])
def test_binary_of_no_bytes_is_rejected_unless_it_is_null(version):
    store = MemoryStore("refused")
    table = pa.table({"x": pa.array([None, b""], pa.binary(0))})
    writer = start(store, table, version=version)
    writer.write(table)
    with pytest.raises(UnsupportedError, match=r"2\.2"):
        writer.finish()
    writer.abort()
    assert not list(store.list())


@pytest.mark.parametrize(
    ("version", "data_type"),
    [
        (FileVersion.V2_0, pa.map_(pa.string(), pa.int8())),
        (FileVersion.V2_1, pa.map_(pa.string(), pa.int8())),
        (FileVersion.V2_0, fsl_of_struct),
        (FileVersion.V2_1, fsl_of_struct),
        (FileVersion.V2_0, pa.struct([("m", pa.list_(pa.map_(pa.string(), pa.int8())))])),
    ],
)
def test_unsupported_types_report_the_required_version(version, data_type):
    store = RecordingStore("refused")
    with pytest.raises(UnsupportedError, match=r"2\.2"):
        start(store, pa.schema([("x", data_type)]).empty_table(), version=version)
    assert store.started == 0


def test_null_structs_are_rejected_by_2_0_and_leave_nothing(store):
    table = pa.table({"x": pa.array([{"a": 1}, None])})
    writer = start(store, table, version=FileVersion.V2_0)
    writer.write(table)
    with pytest.raises(UnsupportedError, match="null structs"):
        writer.finish()
    writer.abort()
    assert list(store.list()) == []


def test_wrong_batches_are_rejected_before_any_column_takes_them(store):
    table = random_table(10)
    writer = start(store, table)
    for wrong in (table.drop_columns(["l"]), table.set_column(2, "l", pa.array(["x"] * 10))):
        with pytest.raises(InvalidInputError):
            writer.write(wrong)
    writer.write(table)
    assert writer.finish().num_rows == 10


def test_dictionaries_that_outgrow_their_keys_are_rejected(store):
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [pa.array([f"{start + i}" for i in range(100)]).cast(kind) for start in (0, 100)]
    writer = start(store, pa.table({"d": batches[0]}))
    for batch in batches:
        writer.write(pa.table({"d": batch}))
    with pytest.raises(InvalidInputError, match="range of the index type") as caught:
        writer.finish()
    assert caught.value.facts["field"] == "d"
    writer.abort()


# --- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fail_after", range(12))
def test_a_failed_write_leaves_no_file(fail_after):
    store = RecordingStore(f"failing-{fail_after}", fail_after)
    table = random_table(40_000)
    writer = start(store, table, data_cache_bytes=200_000)
    with pytest.raises(StorageError):
        write_all(writer, table)
    writer.abort()
    assert list(store.list()) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_in_the_making_count_as_soon_as_they_might_matter(version):
    values = pa.array(np.random.default_rng(0).integers(-(2**62), 2**62, 2**18))
    table = pa.table({"x": values})
    writer = start(RecordingStore("pages"), table, version=version, data_cache_bytes=values.nbytes)
    writer.write(table)
    assert writer.reaches(values.nbytes)
    assert not writer.reaches(2 * values.nbytes)


@pytest.mark.parametrize("version", VERSIONS)
def test_null_items_do_not_prevent_dictionary_unification(version):
    parts = [
        pa.DictionaryArray.from_arrays(pa.array([2, 1, None, 0], pa.int8()), ["a", None, "b"]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["c", "a"]),
    ]
    table = pa.table({"x": pa.chunked_array(parts)})
    store = RecordingStore("items")
    write_all(start(store, table, version=version), table)
    reader = open_data_file(store, "data/f.lance")
    (found,) = reader.read(reader.schema.fields, RowRange(0, 6))
    assert found.to_pylist() == ["b", None, None, "a", "c", "a"]


def test_nothing_is_visible_before_the_end(store):
    table = random_table()
    writer = start(store, table, data_cache_bytes=1000)
    writer.write(table)
    assert writer.reaches(1)
    assert list(store.list()) == []
    summary = writer.finish()
    assert [info.path for info in store.list()] == ["data/f.lance"]
    assert store.size("data/f.lance") == summary.size_bytes
    assert (summary.num_rows, writer.num_rows) == (10_000, 10_000)


# --- pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_buffers_are_aligned_and_padded(store, version):
    table = random_table()
    writer = start(store, table, version=version, data_cache_bytes=30_000)
    writer.write(table)
    writer.finish()
    data = np.frombuffer(store.read("data/f.lance"), np.uint8)
    reader = open_data_file(store, "data/f.lance")
    ends = []
    for index in range(len(reader.metadata.columns)):
        for page in reader.column(index).pages:
            assert (page.position % ALIGNMENT == 0).all()
            ends += (page.position + page.size).tolist()
    for end in ends:
        assert (data[end : -(-end // ALIGNMENT) * ALIGNMENT] == PADDING_BYTE).all()


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_are_cut_by_bytes_and_numbered_by_rows(store, version):
    table = random_table()
    writer = start(store, table, version=version, data_cache_bytes=48_000)
    for batch in table.to_batches(max_chunksize=333):
        writer.write(batch)
    writer.finish()
    reader = open_data_file(store, "data/f.lance")
    pages = reader.column(0).pages
    assert len(pages) >= 5
    assert [page.priority for page in pages] == [page.first_row for page in pages]
    assert sum(page.length for page in pages) == 10_000
    assert max(page.length for page in pages) * 8 <= 2 * 16_000


def test_the_cache_is_shared_by_all_columns(store):
    table = random_table()
    writer = start(store, table, data_cache_bytes=3 * 8_000)
    for batch in table.to_batches(max_chunksize=100):
        writer.write(batch)
    writer.finish()
    reader = open_data_file(store, "data/f.lance")
    assert len(reader.column(0).pages) >= 8


def test_a_large_array_is_cut_without_copying_it_first(store):
    numbers = pa.array(np.arange(3_000_000))
    writer = start(store, pa.table({"x": numbers[:0]}))
    writer.write(pa.table({"x": numbers}))
    before = pa.total_allocated_bytes()
    writer.finish()
    assert pa.total_allocated_bytes() - before < numbers.nbytes
    reader = open_data_file(store, "data/f.lance")
    assert len(reader.column(0).pages) >= 1


# --- what else is in a file -------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_global_buffers_and_metadata_read_back(store, version):
    table = random_table(100).replace_schema_metadata({"k": "v"})
    writer = start(store, table, version=version)
    assert writer.add_global_buffer(b"first") == 1
    writer.write(table)
    assert writer.add_global_buffer(b"") == 2
    writer.add_schema_metadata("more", "é")
    writer.finish()
    reader = open_data_file(store, "data/f.lance")
    assert reader.global_buffer(1).tobytes() == b"first"
    assert reader.global_buffer(2).tobytes() == b""
    assert reader.schema.metadata == {"k": "v", "more": "é"}
    assert reader.version is version
    for index in (-1, 9):
        with pytest.raises(InvalidInputError, match="index is out of range"):
            reader.global_buffer(index)


def test_the_report_shows_what_was_chosen_for_every_page(store):
    table = random_table(1000)
    writer = start(store, table)
    writer.write(table)
    writer.finish()
    report = writer.encoding_report()
    assert {choice.path.split(".")[0] for choice in report} == {"a", "s", "l"}
    assert all(choice.encoding and choice.raw_bytes > 0 for choice in report)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_without_rows_reads_back(store, version):
    table = random_table(0)
    writer = start(store, table, version=version)
    assert writer.finish().num_rows == 0
    reader = open_data_file(store, "data/f.lance")
    found = reader.read(reader.schema.fields, RowRange(0, 0))
    assert [len(array) for array in found] == [0, 0, 0]
    assert list(reader.iter_batches(reader.schema.fields, RowRange(0, 0))) == []


def test_field_ids_of_the_table_are_stored_in_the_file(store):
    schema = Schema.from_arrow(random_table(0).schema, first_id=7)
    writer = create_data_file(store, "data/f.lance", schema)
    writer.write(random_table(5))
    writer.finish()
    assert writer.placement == {7: 0, 8: 1, 10: 2}
    assert open_data_file(store, "data/f.lance").field_ids == (7, 8, 10)


# --- blobs ------------------------------------------------------------------------------------


def blob_table(values):
    metadata = {"ARROW:extension:name": "lance.blob.v2"}
    data_type = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    rows = [None if value is None else {"data": value, "uri": None} for value in values]
    field = pa.field("b", data_type, metadata=metadata)
    return pa.table([pa.array(rows, data_type)], schema=pa.schema([field]))


def test_blobs_go_where_their_size_puts_them(store):
    values = [b"tiny", None, b"", b"p" * 70_000, b"d" * (5 << 20), b"q" * 70_001]
    table = blob_table(values)
    writer = start(store, table)
    writer.write(table)
    writer.finish()
    reader = open_data_file(store, "data/f.lance")
    (places,) = reader.read(reader.schema.fields, RowRange(0, len(values)))
    sidecar = "data/f/{}.blob".format
    for value, place in zip(values, places.to_pylist(), strict=True):
        if value is None:
            assert place is None
            continue
        start_at, stop = place["position"], place["position"] + place["size"]
        if place["kind"] == 0:
            found = reader.fetch(ByteRanges.of((start_at, place["size"]))).slice_bytes(0).tobytes()
            assert start_at % ALIGNMENT == 0
        else:
            bits = f"{place['blob_id']:032b}"[::-1]
            found = store.read(sidecar(bits))[start_at:stop]
        assert found == value
    assert [place and place["kind"] for place in places.to_pylist()] == [0, None, 0, 1, 2, 1]
    assert len(list(store.list("data/f"))) == 2


def test_an_abort_takes_the_sidecars_along(store):
    table = blob_table([b"p" * 70_000, b"d" * (5 << 20)])
    writer = start(store, table, data_cache_bytes=1)
    writer.write(table)
    writer.abort()
    assert list(store.list()) == []


@pytest.mark.parametrize("version", [FileVersion.V2_0, FileVersion.V2_1])
def test_blobs_of_old_versions_read_back_whole(store, version):
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = [b"hello", None, b"", b"x" * 100_000]
    table = pa.table([pa.array(values, pa.large_binary())], schema=pa.schema([field]))
    writer = start(store, table, version=version)
    writer.write(table)
    writer.finish()
    reader = open_data_file(store, "data/f.lance")
    (found,) = reader.read(reader.schema.fields, RowRange(0, 4))
    assert found.to_pylist() == values


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "data_type",
    [
        pa.bool_(),
        pa.null(),
        pa.binary(0),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.bool_(), 2),
    ],
    ids=str,
)
def test_structs_that_cannot_be_packed_are_rejected_by_name(version, data_type):
    store = RecordingStore("refused")
    struct = pa.struct([("a", pa.int8()), ("b", data_type)])
    field = pa.field("x", struct, metadata={"lance-encoding:packed": "true"})
    with pytest.raises(UnsupportedError, match=r"pack(ed)? (a )?struct"):
        start(store, pa.schema([field]).empty_table(), version=version)
    assert store.started == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("word", ["true", "false"])
@pytest.mark.parametrize(
    "data_type",
    [pa.int8(), pa.null(), pa.string(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())])],
    ids=str,
)
def test_blobs_of_other_types_are_rejected_by_name(version, data_type, word):
    store = RecordingStore("refused")
    field = pa.field("x", data_type, metadata={"lance-encoding:blob": word})
    with pytest.raises(UnsupportedError, match="blobs") as caught:
        start(store, pa.schema([field]).empty_table(), version=version)
    assert caught.value.facts["column"] == "x"
    assert store.started == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_nested", [False, True])
def test_unknown_encoding_options_of_a_field_are_rejected(version, is_nested):
    store = RecordingStore("refused")
    field = pa.field("x", pa.int32(), metadata={"lance-encoding:compression": "brotli"})
    if is_nested:
        field = pa.field("l", pa.list_(field))
    with pytest.raises(InvalidInputError, match="invalid encoding option") as caught:
        start(store, pa.schema([field]).empty_table(), version=version)
    assert caught.value.facts["field"] == "x"
    assert store.started == 0


def test_requested_zstd_takes_fewer_bytes_than_the_default(tmp_path):
    words = pa.array([f"compress_me_please-{number}" for number in range(10_240)])
    sizes = []
    for metadata in ({"lance-encoding:compression": "zstd"}, None):
        schema = pa.schema([pa.field("words", pa.string(), metadata=metadata)])
        path = tmp_path / f"{len(sizes)}.lance"
        with LanceFileWriter(str(path), schema) as writer:
            writer.write_batch(pa.table([words], schema=schema))
        sizes.append(path.stat().st_size)
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_environment_is_read_once_for_a_file(monkeypatch, version):
    column = pa.array([{"a": 1, "b": [2]}, {"a": 3, "b": []}])
    table = pa.table({"x": column, "y": column})
    looks = []
    read = options._environment_defaults
    monkeypatch.setattr(options, "_environment_defaults", lambda: looks.append(None) or read())
    chosen = WriterOptions(version=version, zone_rows=1)
    writer = create_data_file(MemoryStore(), "x", Schema.from_arrow(table.schema), chosen)
    writer.write(table)
    writer.finish()
    assert len(looks) == 1
