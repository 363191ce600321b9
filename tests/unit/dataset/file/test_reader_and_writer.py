"""The reader and writer with the API of the reference: extensions and rejected arguments."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.file import LanceFileReader, LanceFileSession, LanceFileWriter

ROWS = 20_000


@pytest.fixture
def path(tmp_path):
    """A file of one column of random numbers."""
    path = tmp_path / "f.lance"
    numbers = np.random.default_rng(1).integers(0, 1 << 62, ROWS)
    with LanceFileWriter(path) as writer:
        writer.write_batch(pa.table({"x": numbers}))
    return path


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(bytes(data))


def damaged_reads(path, verify, tries):
    """Return the number of `tries` new readers that fail to read all of a file."""
    refused = 0
    for _ in range(tries):
        reader = LanceFileReader(path, verify=verify)
        try:
            reader.read_all().to_table()
        except CorruptDataError:
            refused += 1
    return refused


def test_all_damage_is_found_by_default(path):
    whole = LanceFileReader(path).read_all().to_table()
    flip(path, ROWS)
    with pytest.raises(CorruptDataError, match="checksum") as caught:
        LanceFileReader(path).read_all().to_table()
    assert str(path).endswith(caught.value.facts["path"])
    found = LanceFileReader(path, verify="off").read_all().to_table()
    assert found.schema == whole.schema
    assert not found.equals(whole)


def test_sampling_finds_some_damage(path):
    """The file has ten blocks, and one in 64 is verified; the seed is not ours to choose."""
    flip(path, ROWS)
    assert damaged_reads(path, "full", 20) == 20
    assert damaged_reads(path, "off", 20) == 0
    assert 0 < damaged_reads(path, "sample", 1000) < 100


def test_undamaged_rows_of_a_damaged_file_are_read(path):
    expected = LanceFileReader(path).take_rows([0, 1]).to_table()
    flip(path, 4 * ROWS)
    reader = LanceFileReader(path)
    assert reader.take_rows([0, 1]).to_table().equals(expected)
    with pytest.raises(CorruptDataError):
        reader.take_rows([ROWS // 2]).to_table()


def test_a_session_hands_verification_on(path):
    flip(path, ROWS)
    session = LanceFileSession(path.parent)
    assert session.open_reader("f.lance", verify="off").read_all().to_table().num_rows == ROWS
    with pytest.raises(CorruptDataError):
        session.open_reader("f.lance").read_all().to_table()


@pytest.mark.parametrize(
    "indices", [[0.5], [1.0], ["1"], [None], [[1, 2]], 3, [1 << 63], [1 << 64], [0, 1 << 63], [-1]]
)
def test_rows_that_are_not_numbers_of_rows_are_rejected(path, indices):
    with pytest.raises(InvalidInputError):
        LanceFileReader(path).take_rows(indices)


@pytest.mark.parametrize("indices", [[], [2, 5], range(3), np.array([1, 7], np.uint64), (0,)])
def test_rows_may_be_given_in_any_sequence(path, indices):
    whole = LanceFileReader(path).read_all().to_table()
    found = LanceFileReader(path).take_rows(indices).to_table()
    assert found.equals(whole.take(pa.array(indices, pa.int64())))


@pytest.mark.parametrize(
    "option", [{"max_page_bytes": 0}, {"max_page_bytes": -1}, {"data_cache_bytes": -1}]
)
def test_impossible_limits_are_rejected(tmp_path, option):
    with pytest.raises(InvalidInputError, match="an integer is"):
        LanceFileWriter(tmp_path / "f.lance", pa.schema([("x", pa.int8())]), **option)
    assert not list(tmp_path.iterdir())


def test_an_unknown_verification_is_rejected(path):
    with pytest.raises(InvalidInputError, match="'sample'"):
        LanceFileReader(path, verify="some")


def test_the_report_lists_chosen_and_rejected_encodings(tmp_path):
    small = np.random.default_rng(2).integers(0, 1000, ROWS)
    writer = LanceFileWriter(tmp_path / "f.lance")
    assert writer.encoding_report() == ()
    writer.write_batch(pa.table({"x": small, "s": [{"y": value} for value in small.tolist()]}))
    writer.close()
    report = {choice.path: choice for choice in writer.encoding_report()}
    assert set(report) == {"x", "s.y"}
    for choice in report.values():
        assert "bitpacking" in choice.encoding
        assert choice.raw_bytes == 8 * ROWS
        assert choice.encoded_bytes < choice.raw_bytes / 5
        assert choice.refused["flat(64)"]


def test_an_empty_batch_is_not_written(tmp_path):
    path = str(tmp_path / "f.lance")
    with LanceFileWriter(path, pa.schema({"a": pa.int64()})) as writer:
        writer.write_batch(pa.table({"a": []}))
        writer.write_batch(pa.table({"a": [1]}))
    assert LanceFileReader(path).read_all().to_table() == pa.table({"a": [1]})


def test_batches_may_come_from_many_threads(tmp_path):
    """Each batch is one value, over and over; batches of any thread stay whole."""
    batches = [pa.record_batch({"x": [n] * 500, "y": [str(n)] * 500}) for n in range(100)]
    writer = LanceFileWriter(tmp_path / "f.lance", batches[0].schema, data_cache_bytes=4096)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(writer.write_batch, batches))
    assert writer.close() == 50_000
    found = LanceFileReader(tmp_path / "f.lance").read_all().to_table()
    x = found["x"].to_numpy().reshape(100, 500)
    assert (x == x[:, :1]).all()
    assert sorted(x[:, 0].tolist()) == list(range(100))
    assert found["y"].to_pylist() == [str(value) for value in x.reshape(-1).tolist()]


def test_pages_are_cut_where_the_reference_cuts_them(tmp_path):
    """Only 2.0 splits pages when it writes; there the limit may be a single value."""
    pages = {}
    for version in ("2.0", "2.1", "2.2"):
        path = tmp_path / f"{version}.lance"
        with LanceFileWriter(path, max_page_bytes=1, version=version) as writer:
            writer.write_batch(pa.table({"a": [1, 2, 3]}))
        pages[version] = len(LanceFileReader(path).metadata().columns[0].pages)
    assert pages == {"2.0": 3, "2.1": 1, "2.2": 1}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_leave_their_pages_and_the_page_is_one(tmp_path, version):
    """A hundred values of 200 KB would fill three pages."""
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = [bytes([n]) * 200_000 if n % 7 else None for n in range(100)] + [b""]
    path = tmp_path / "f.lance"
    with LanceFileWriter(path, pa.schema([field]), version=version) as writer:
        for start in range(0, 101, 10):
            part = pa.array(values[start : start + 10], pa.large_binary())
            writer.write_batch(pa.table({"b": part}))
    reader = LanceFileReader(path)
    assert len(reader.metadata().columns[0].pages) == 1
    assert reader.read_all().to_table()["b"].to_pylist() == values
    assert reader.take_rows([0, 99]).to_table()["b"].to_pylist() == [None, values[99]]


def test_a_writer_needs_rows_or_a_schema(tmp_path):
    with (
        pytest.raises(ValueError, match="Schema is unknown and file cannot be created"),
        LanceFileWriter(tmp_path / "f.lance"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["0.1", "legacy"])
def test_files_of_0_1_belong_to_datasets(tmp_path, version):
    with pytest.raises(UnsupportedError, match="part of its dataset"):
        LanceFileWriter(tmp_path / "f.lance", pa.schema([("a", pa.int8())]), version=version)


def test_a_wrong_argument_does_not_cost_the_file(tmp_path):
    path = str(tmp_path / "a.lance")
    with LanceFileWriter(path) as writer:
        for call in (
            lambda: writer.add_schema_metadata("k", 1),
            lambda: writer.add_global_buffer("text"),
            lambda: writer.write_batch([1]),
        ):
            with pytest.raises(InvalidInputError) as caught:
                call()
            assert isinstance(caught.value, TypeError)
        writer.write_batch(pa.table({"a": [1]}))
    assert LanceFileReader(path).num_rows() == 1


def test_a_batch_has_at_least_one_row(tmp_path):
    path = str(tmp_path / "a.lance")
    with LanceFileWriter(path) as writer:
        writer.write_batch(pa.table({"a": [1]}))
    with pytest.raises(InvalidInputError, match="batch_size"):
        LanceFileReader(path).read_all(batch_size=0)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_lists_of_no_bytes_that_are_not_null_are_rejected(tmp_path, version):
    table = pa.table({"x": pa.array([[b"", None]], pa.list_(pa.binary(0), 2))})
    with (
        pytest.raises(UnsupportedError, match="zero-length"),
        LanceFileWriter(str(tmp_path / "a.lance"), table.schema, version=version) as writer,
    ):
        writer.write_batch(table)
    assert list(tmp_path.iterdir()) == []
