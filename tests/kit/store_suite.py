"""Conformance tests for stores: subclass the suite and define a fixture `store`.

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def store(self) -> Store:
            return MyStore(...)      # empty, and used by this test only

The store in memory is the reference implementation.
"""

from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from lancelet.buffers import ByteRanges, ByteSlices
from lancelet.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidInputError,
    ObjectNotFoundError,
)
from lancelet.io.store import BytesLike, Store

NAMES = (
    "a/b",
    "a.b",
    "a/bb/c",
    "ab/c",
    "a-b",
    "Z",
    "data/0b5c.lance",
    "_versions/18446744073709551614.manifest",
    "with space/and%20percent",
    "é/ü",
    "tilde~x/plus+y",
)
"""Unordered names of objects, including difficult ones."""

WRITABLE: tuple[BytesLike, ...] = (
    b"",
    b"bytes",
    bytearray(b"bytearray"),
    memoryview(b"memoryview"),
    np.arange(5, dtype=np.uint8),
    np.arange(7, dtype=np.int64),
    np.empty(0, np.float32),
)
"""All supported buffer types."""


class StoreSuite:
    """The tests of a store."""

    concurrent_writers = 8

    @pytest.mark.parametrize("data", WRITABLE, ids=lambda data: type(data).__name__)
    def test_put_objects_are_read_back(self, store: Store, data: BytesLike) -> None:
        """Every kind of buffer is stored byte for byte by every way to write."""
        expected = bytes(memoryview(data))  # type: ignore[arg-type]  # numpy declares the protocol from 3.12 on
        store.put("put", data)
        store.put_if_absent("put_if_absent", data)
        with store.open_writer("writer") as writer:
            writer.write(data)
        for path in ("put", "put_if_absent", "writer"):
            assert store.read(path) == expected
            assert store.size(path) == len(expected)
            assert store.open_reader(path).size == len(expected)

    def test_objects_are_read_together_or_not_at_all(self, store: Store) -> None:
        """A batched read returns the bytes of objects in order if the given sizes are correct."""
        store.put("a", b"first")
        store.put("b", b"other")
        found = store.read_together(["b", "a"], [5, 5])
        assert found is None or found.tobytes() == b"otherfirst"
        assert found is None or found.flags.writeable
        assert store.read_together(["a", "b"], [5, 4]) is None
        assert store.read_together(["a", "b"], [6, 5]) is None

    def test_put_replaces(self, store: Store) -> None:
        """Reads return the last put."""
        store.put("a", b"first")
        store.put("a", b"second, and longer")
        store.put("a", b"3")
        assert store.read("a") == b"3"

    def test_put_if_absent_preserves_an_existing_object(self, store: Store) -> None:
        """An existing target is an error, and nothing changes."""
        store.put_if_absent("v/1", b"mine")
        with pytest.raises(AlreadyExistsError) as caught:
            store.put_if_absent("v/1", b"yours")
        assert caught.value.facts["path"] == "v/1"
        assert store.read("v/1") == b"mine"
        assert [info.path for info in store.list()] == ["v/1"]

    def test_one_of_many_puts_if_absent_wins(self, store: Store) -> None:
        """Exactly one of several callers succeeds, and its bytes are stored."""

        def attempt(writer: int) -> bool:
            try:
                store.put_if_absent("v/race", b"writer %d" % writer)
            except AlreadyExistsError:
                return False
            return True

        with ThreadPoolExecutor(self.concurrent_writers) as pool:
            won = list(pool.map(attempt, range(self.concurrent_writers)))
        assert sum(won) == 1
        assert store.read("v/race") == b"writer %d" % won.index(True)

    def test_writer_shows_nothing_before_close(self, store: Store) -> None:
        """An object is invisible until its writer is closed, and then complete."""
        writer = store.open_writer("data/a")
        writer.write(b"ab", np.arange(3, dtype=np.uint8))
        assert writer.position == 5
        assert not store.exists("data/a")
        assert list(store.list()) == []
        assert store.list_delimited("data").objects == ()
        assert writer.close() == 5
        assert writer.close() == 5
        assert store.read("data/a") == b"ab\0\1\2"
        with pytest.raises(InvalidInputError):
            writer.write(b"more")

    def test_aborted_writer_leaves_nothing(self, store: Store) -> None:
        """An abort or an error within the context creates no object."""
        writer = store.open_writer("a")
        writer.write(b"x" * 1000)
        writer.abort()
        writer.abort()

        def fail_half_way() -> None:
            with store.open_writer("b") as writer:
                writer.write(b"x" * (16 << 20))
                raise KeyError

        with pytest.raises(KeyError):
            fail_half_way()
        assert list(store.list()) == []

    def test_abort_after_close_changes_nothing(self, store: Store) -> None:
        """A closed object is stored."""
        writer = store.open_writer("a")
        writer.write(b"kept")
        writer.close()
        writer.abort()
        assert store.read("a") == b"kept"

    def test_large_objects_are_written_in_order(self, store: Store) -> None:
        """Many writes of different sizes are concatenated."""
        generator = np.random.default_rng(5)
        parts = [
            generator.integers(0, 256, size, np.uint8)
            for size in (1, 0, 70_000, 5 << 20, 3, 12 << 20, 1 << 20, 17)
        ]
        with store.open_writer("large") as writer:
            for part in parts:
                writer.write(part)
        assert store.size("large") == writer.position
        assert store.read("large") == b"".join(part.tobytes() for part in parts)

    def test_ranges_are_slices_of_the_object(self, store: Store) -> None:
        """Ranges may be unordered, overlapping, empty, close or distant."""
        data = np.random.default_rng(7).integers(0, 256, 300_000, np.uint8)
        store.put("a", data)
        generator = random.Random(7)
        with store.open_reader("a") as reader:
            for count in (0, 1, 2, 50):
                pairs = []
                for _ in range(count):
                    position = generator.randrange(len(data) + 1)
                    size = min(generator.choice((0, 1, 8, 5000)), len(data) - position)
                    pairs.append((position, size))
                slices = reader.read_ranges(ByteRanges.of(*pairs))
                found = [slices.slice_bytes(index).tobytes() for index in range(len(slices))]
                assert found == [data[p : p + s].tobytes() for p, s in pairs]
                check_slices(slices)

    def test_slices_outlive_their_reader(self, store: Store) -> None:
        """Bytes stay valid after close and are read-only."""
        store.put("a", b"0123456789")
        with store.open_reader("a", size=10) as reader:
            slices = reader.read_ranges(ByteRanges.of((2, 3), (9, 1)))
            tail = reader.read_tail(4)
        assert slices.slice_bytes(0).tobytes() == b"234"
        assert slices.slice_bytes(1).tobytes() == b"9"
        assert tail.tobytes() == b"6789"

    @pytest.mark.parametrize(
        "outside", [(0, 11), (11, 0), (10, 1), (-1, 1), (3, -1), (2**63 - 1, 2), (2**62, 2**62)]
    )
    def test_ranges_outside_are_corrupt(self, store: Store, outside: tuple[int, int]) -> None:
        """A range outside of the object is an error with the path, the range and the size."""
        store.put("a", b"0123456789")
        with pytest.raises(CorruptDataError) as caught:
            store.open_reader("a").read_ranges(ByteRanges.of((0, 10), outside, (1, 1)))
        assert caught.value.facts["path"] == "a"
        assert caught.value.facts["position"] == outside[0]
        assert caught.value.facts["size"] == outside[1]
        assert caught.value.facts["file_bytes"] == 10

    def test_tail_is_the_end_of_the_object(self, store: Store) -> None:
        """A tail has any size, up to the whole object; the size of the object is optional."""
        store.put("a", b"0123456789")
        store.put("empty", b"")
        for size in (0, 1, 9, 10, 11, 1 << 16):
            for size_hint in (None, 10):
                with store.open_reader("a", size_hint) as reader:
                    assert reader.read_tail(size).tobytes() == b"0123456789"[max(0, 10 - size) :]
                    assert reader.size == 10
            with store.open_reader("empty") as reader:
                assert reader.read_tail(size).tobytes() == b""

    def test_listing_is_ordered_by_path(self, store: Store) -> None:
        """Listings are in string order across folders and start after any name."""
        for name in NAMES:
            store.put(name, name.encode())
        ordered = sorted(NAMES)
        listed = list(store.list())
        assert [info.path for info in listed] == ordered
        assert [info.size for info in listed] == [len(name.encode()) for name in ordered]
        for name in (*NAMES, "a", "a/", "b", "~~", ""):
            after = [info.path for info in store.list(start_after=name)]
            assert after == [path for path in ordered if path > name], name

    def test_listing_of_a_folder_has_all_objects_below(self, store: Store) -> None:
        """A folder is not a string prefix: `a` does not contain `ab/c` or `a.b`."""
        for name in NAMES:
            store.put(name, b"")
        assert [info.path for info in store.list("a")] == ["a/b", "a/bb/c"]
        assert [info.path for info in store.list("a/")] == ["a/b", "a/bb/c"]
        assert [info.path for info in store.list("a", start_after="a/b")] == ["a/bb/c"]
        assert list(store.list("nothing/here")) == []

    def test_delimited_listing_is_one_level(self, store: Store) -> None:
        """List the direct children of a folder."""
        for name in ("t/a", "t/b/c", "t/b/d", "t/e.f/g", "u/v", "w"):
            store.put(name, b"12")
        listing = store.list_delimited("t")
        assert [(info.path, info.size) for info in listing.objects] == [("t/a", 2)]
        assert listing.folders == ("t/b", "t/e.f")
        listing = store.list_delimited()
        assert [info.path for info in listing.objects] == ["w"]
        assert listing.folders == ("t", "u")

    def test_missing_objects_are_not_found(self, store: Store) -> None:
        """Reads, opens and size queries raise the same error; folders are not objects."""
        store.put("folder/a", b"x")
        for path in ("missing", "folder", "folder/a/b", "folder/missing"):
            assert not store.exists(path)
            with pytest.raises(ObjectNotFoundError) as caught:
                store.read(path)
            assert caught.value.facts["path"] == path
            with pytest.raises(ObjectNotFoundError):
                store.info(path)
            with pytest.raises(ObjectNotFoundError):
                store.open_reader(path).read_tail(4)
            with pytest.raises(ObjectNotFoundError):
                store.copy(path, "target")
            with pytest.raises(ObjectNotFoundError):
                store.rename_if_absent(path, "target")

    def test_deleted_objects_are_gone(self, store: Store) -> None:
        """Deleting a missing object is not an error."""
        for name in ("a", "b", "c/d", "c/e", "cc"):
            store.put(name, b"x")
        store.delete("a")
        store.delete("a")
        assert not store.exists("a")
        store.delete_many(["b", "never/was", "c/d"])
        store.delete_many([])
        assert [info.path for info in store.list()] == ["c/e", "cc"]
        store.delete_folder("c")
        store.delete_folder("c")
        assert [info.path for info in store.list()] == ["cc"]

    def test_copy_replaces_its_target(self, store: Store) -> None:
        """A copy preserves the source."""
        store.put("a", b"source")
        store.put("b/c", b"target")
        store.copy("a", "b/c")
        assert store.read("a") == store.read("b/c") == b"source"

    def test_rename_needs_a_free_name(self, store: Store) -> None:
        """An existing target is an error, and nothing changes."""
        store.put("a", b"moved")
        store.put("b", b"here first")
        with pytest.raises(AlreadyExistsError):
            store.rename_if_absent("a", "b")
        assert store.read("a") == b"moved"
        assert store.read("b") == b"here first"
        store.rename_if_absent("a", "x/y")
        assert store.read("x/y") == b"moved"
        assert not store.exists("a")

    def test_folder_can_be_a_root(self, store: Store) -> None:
        """Paths are relative to the subfolder in both directions."""
        store.put("t/data/a", b"1")
        inner = store.at("t")
        assert inner.read("data/a") == b"1"
        inner.put("data/b", b"2")
        assert store.read("t/data/b") == b"2"
        assert [info.path for info in inner.list()] == ["data/a", "data/b"]
        assert inner.at("data/").read("a") == b"1"
        assert inner.at("").read("data/a") == b"1"
        assert inner.uri == store.uri.rstrip("/") + "/t"

    def test_pickled_store_is_the_same(self, store: Store) -> None:
        """Stores are pickled when sent to workers."""
        store.put("a/b", b"x")
        again = pickle.loads(pickle.dumps(store.at("a")))  # trusted bytes
        assert again.read("b") == b"x"
        assert again.uri == store.at("a").uri

    @pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\0b"])
    def test_paths_cannot_leave_the_store(self, store: Store, path: str) -> None:
        """All methods reject paths that are not plain and relative."""
        for request in (store.read, store.info, store.delete, store.open_reader, store.open_writer):
            with pytest.raises(InvalidInputError):
                request(path)
        with pytest.raises(InvalidInputError):
            store.put(path, b"")
        with pytest.raises(InvalidInputError):
            store.put_if_absent(path, b"")
        assert list(store.list()) == []

    def test_listed_objects_have_a_time(self, store: Store) -> None:
        """Times have a time zone."""
        store.put("a", b"x")
        (listed,) = store.list()
        assert listed.modified.tzinfo is not None
        assert listed.path == "a"
        assert abs((store.info("a").modified - listed.modified).total_seconds()) < 2


def check_slices(slices: ByteSlices) -> None:
    """Check that every slice is within the source."""
    assert ((slices.position >= 0) & (slices.size >= 0)).all()
    assert (slices.position + slices.size <= slices.source.nbytes).all()
