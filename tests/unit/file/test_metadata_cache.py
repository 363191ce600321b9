"""Cached file metadata never belongs to another file or other bytes.

Files are given times in the past, since one that changed just now has no identity yet.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lancelet.errors import CorruptDataError
from lancelet.file import LanceFileReader, LanceFileWriter
from lancelet.file.open import open_data_file
from lancelet.file.v2.reader import FileReader
from lancelet.io.cache import LruCache
from lancelet.io.local import LocalStore
from lancelet.io.mapped import MappedReader
from lancelet.io.metered import IoCounts, IoMeter, metered


def _write(path: Path, values: list[str]) -> None:
    table = pa.table({"x": pa.array(values).dictionary_encode().cast(pa.string())})
    with LanceFileWriter(path, table.schema) as writer:
        writer.write_batch(table)


def _wait_until_it_has_an_identity(path: Path) -> None:
    while MappedReader("a", str(path)).identity is None:
        time.sleep(0.01)


def _read(path: Path) -> list[str]:
    return LanceFileReader(path).read_all().to_table()["x"].to_pylist()


def _opened(path: Path) -> FileReader:
    reader = open_data_file(LocalStore(path.parent), path.name)
    assert isinstance(reader, FileReader)
    return reader


def test_a_file_that_changed_just_now_has_no_identity(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    path.write_bytes(b"1")
    assert MappedReader("a", str(path)).identity is None
    _wait_until_it_has_an_identity(path)
    before = MappedReader("a", str(path)).identity
    assert before == MappedReader("a", str(path)).identity
    # Times that a user may set do not hide a change.
    found = path.stat()
    path.write_bytes(b"2")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert MappedReader("a", str(path)).identity != before


def test_times_in_whole_seconds_are_trusted_after_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.lance"
    path.write_bytes(b"1")
    os.utime(path, ns=(0, 4_000_000_000_000_000_000))
    for seconds, is_known in ((0.5, False), (2.9, False), (3.1, True)):
        now = 4_000_000_000_000_000_000 + int(seconds * 1e9)
        monkeypatch.setattr(time, "time_ns", lambda now=now: now)
        assert (MappedReader("a", str(path)).identity is not None) is is_known


def test_a_file_that_is_opened_again_is_parsed_once(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    _write(path, ["a", "b"] * 600)
    _wait_until_it_has_an_identity(path)
    first, second = _opened(path), _opened(path)
    assert first.metadata is second.metadata
    assert first.schema is second.schema
    assert _read(path) == ["a", "b"] * 600


def test_cached_metadata_does_not_reference_the_file_map(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    _write(path, ["a", "b"] * 600)
    _wait_until_it_has_an_identity(path)
    metadata = _opened(path).metadata
    source = _opened(path).fetch
    assert metadata.checksums is not None
    for kept in (metadata.tail, metadata.checksums.crcs):
        assert kept.flags.owndata
    assert callable(source)


def test_a_file_in_place_of_another_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    # Both have the same size and positions; only the dictionary differs.
    for values in (["abc", "def"], ["ghi", "jkl"]) * 3:
        _write(path, values * 600)
        for _ in range(2):
            assert _read(path) == values * 600
        _wait_until_it_has_an_identity(path)
        assert _read(path) == values * 600


def test_bytes_are_verified_by_every_reader_of_a_known_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lance"
    table = pa.table({"x": np.random.default_rng(1).random(20_000)})
    with LanceFileWriter(path, table.schema) as writer:
        writer.write_batch(table)
    _wait_until_it_has_an_identity(path)
    reader = LanceFileReader(path)
    assert reader.read_all().to_table()["x"].equals(table["x"])
    # Damage unnoticed by the system, as by a disk: it is visible in the map immediately.
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\x00\xff")
    with pytest.raises(CorruptDataError, match="checksum"):
        LanceFileReader(path).read_all().to_table()


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_cached_files_do_not_reference_their_maps(tmp_path: Path, version: str) -> None:
    words = pa.array(["alpha", "beta", None] * 700)
    table = pa.table(
        {
            "word": words,
            "code": words.dictionary_encode(),
            "list": pa.array([["alpha"], ["beta", "beta"]] * 1050),
            "number": pa.array(range(2100)),
        }
    )
    path = tmp_path / "a.lance"
    with LanceFileWriter(path, table.schema, version=version) as writer:
        writer.write_batch(table)
    reader = LanceFileReader(path)
    assert len(reader.read_all().to_table()) == len(reader.take_rows([*range(2100)]).to_table())
    assert str(path) in Path("/proc/self/maps").read_text()
    del reader
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_a_file_with_a_damaged_tail_is_rejected_at_every_open(tmp_path: Path) -> None:
    """Metadata parsed before its checksum is verified must not be cached."""
    path = tmp_path / "a.lance"
    with LanceFileWriter(path, pa.schema([("x", pa.int64())])) as writer:
        writer.write_batch(pa.table({"x": [1, 2]}))
        writer.add_schema_metadata("a key", "a value")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"a key", b"b key"))
    _wait_until_it_has_an_identity(path)
    for _ in range(3):
        with pytest.raises(CorruptDataError, match="checksum"):
            _opened(path)


def test_statistics_of_a_file_opened_concurrently_are_read_once(tmp_path: Path) -> None:
    path, meter, cache = tmp_path / "a.lance", IoMeter(), LruCache(1 << 20)
    values = [f"{row:05}" for row in range(20_000)]
    _write(path, values)
    _wait_until_it_has_an_identity(path)
    for is_known in (False, True):
        reader = open_data_file(metered(LocalStore(tmp_path), meter), path.name, cache=cache)
        assert isinstance(reader, FileReader)
        (field,) = reader.schema.fields
        meter.take()
        kept = cache.stats.bytes
        zones, pages = reader.zone_statistics(field), reader.page_statistics(field)
        assert zones is not None
        assert pages is not None
        assert zones.minimum.to_pylist() == ["00000", "08192", "16384"]
        assert (pages.minimum[0].as_py(), pages.maximum[-1].as_py()) == (values[0], values[-1])
        assert (meter.take() == IoCounts()) is is_known
        assert (cache.stats.bytes == kept) is is_known
