"""Tables in file systems that only fsspec supports."""

import itertools
import pickle
import threading
from contextlib import contextmanager
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import lancelet
from lancelet.errors import InvalidInputError, StorageError, UnsupportedError
from lancelet.io.open import UnknownSchemeError
from tests.kit.hub_server import HubServer

_numbers = itertools.count()


class Shelf(MemoryFileSystem):
    """A file system with objects, but without a condition for them."""

    protocol = "shelf"
    store: dict = {}  # noqa: RUF012  # as its parent has it
    pseudo_dirs = [""]  # noqa: RUF012  # as its parent has it

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("shelf://").strip("/")


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def a_table(rows: int = 1000) -> pa.Table:
    return pa.table({"id": np.arange(rows), "name": [f"n{row}" for row in range(rows)]})


def test_a_table_of_the_hub_is_read_by_ranges(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).random((4000, 64)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(noise.reshape(-1), 64)
    table = a_table(4000).append_column("v", vectors)
    lancelet.write_dataset(table, tmp_path / "t.lance").create_scalar_index("id", "BTREE")
    with HubServer(tmp_path, "org/name") as hub:
        uri = "hf://datasets/org/name/t.lance"
        found = lancelet.dataset(uri, storage_options=hub.storage_options)
        assert found.uri == uri
        assert found.count_rows() == 4000
        assert found.to_table(columns=["name"], filter="id = 17")["name"].to_pylist() == ["n17"]
        assert found.take([5, 3999]) == table.take([5, 3999])
        again = pickle.loads(pickle.dumps(found))
        assert again.to_table() == table
        extents = [extent for path, extent in hub.requests if path.endswith(".lance")]
        assert None not in extents
        # A take of two rows reads little of a file of a megabyte.
        del hub.requests[:]
        lancelet.dataset(uri, storage_options=hub.storage_options).take([5, 3999], columns=["v"])
        sizes = [
            int(extent.removeprefix("bytes=").partition("-")[2])
            - int(extent.removeprefix("bytes=").partition("-")[0])
            for path, extent in hub.requests
            if extent is not None and "/data/" in path
        ]
        assert 0 < sum(sizes) < 200_000


def test_a_table_of_the_hub_cannot_be_changed(tmp_path: Path) -> None:
    lancelet.write_dataset(a_table(), tmp_path / "t.lance")
    with HubServer(tmp_path, "org/name") as hub:
        found = lancelet.dataset(
            "hf://datasets/org/name/t.lance", storage_options=hub.storage_options
        )
        with pytest.raises(UnsupportedError, match="commit_lock"):
            found.delete("id < 5")
        with pytest.raises(lancelet.errors.DatasetNotFoundError):
            lancelet.dataset(
                "hf://datasets/org/name/other.lance", storage_options=hub.storage_options
            )


def test_two_writers_never_take_one_version_of_a_file_system_without_conditions(shelf) -> None:
    uri = f"shelf://t{next(_numbers)}.lance"
    with pytest.raises(UnsupportedError, match="commit_lock") as caught:
        lancelet.write_dataset(a_table(), uri, storage_options={"fsspec": shelf})
    assert caught.value.facts["filesystem"] == "Shelf"
    assert not [path for path in shelf.store if uri.removeprefix("shelf:/") in path]


def test_a_lock_of_the_user_decides_where_the_file_system_cannot(shelf) -> None:
    uri = f"shelf://t{next(_numbers)}.lance"
    held = threading.Lock()

    @contextmanager
    def lock(version: int):
        assert version > 0
        with held:
            yield

    options = {"fsspec": shelf}
    lancelet.write_dataset(a_table(), uri, storage_options=options, commit_lock=lock)
    lancelet.write_dataset(a_table(), uri, mode="append", storage_options=options, commit_lock=lock)
    found = lancelet.dataset(uri, storage_options=options, commit_lock=lock)
    found.delete("id >= 10")
    assert found.count_rows() == 20
    assert found.version == 3


def test_a_database_of_versions_decides_where_the_file_system_cannot(shelf, tmp_path) -> None:
    uri = f"shelf://t{next(_numbers)}.lance"
    options = {"fsspec": shelf, "manifest_store": f"sqlite:{tmp_path}/versions.db"}
    lancelet.write_dataset(a_table(), uri, storage_options=options)
    lancelet.write_dataset(a_table(), uri, mode="append", storage_options=options)
    assert lancelet.dataset(uri, storage_options=options).count_rows() == 2000


def test_memory_of_fsspec_is_not_ours() -> None:
    ours, theirs = f"memory://m{next(_numbers)}", {"fsspec": "true"}
    lancelet.write_dataset(a_table(3), ours)
    lancelet.write_dataset(a_table(5), ours, storage_options=theirs)
    assert lancelet.dataset(ours).count_rows() == 3
    assert lancelet.dataset(ours, storage_options=theirs).count_rows() == 5


def test_the_disk_through_fsspec_is_the_disk(tmp_path: Path) -> None:
    lancelet.write_dataset(a_table(), tmp_path / "t", storage_options={"fsspec": LocalFileSystem()})
    assert lancelet.dataset(tmp_path / "t").count_rows() == 1000


def test_invalid_file_systems_are_reported(shelf) -> None:
    with pytest.raises(UnknownSchemeError, match="no store supports this scheme"):
        lancelet.dataset("nowhere://t")
    with pytest.raises(InvalidInputError, match="an fsspec file system, or true"):
        lancelet.dataset("shelf://t", storage_options={"fsspec": "yes"})
    with pytest.raises(TypeError, match="wrong type"):
        lancelet.dataset("hf://datasets/a/b", storage_options={"client_kwargs": {}})

    class Broken(Shelf):
        def find(self, *path: str, **options: object) -> None:
            del path, options
            raise RuntimeError("the connection is lost")

        ls = find

    with pytest.raises(StorageError, match="the connection is lost"):
        lancelet.dataset("shelf://t", storage_options={"fsspec": Broken()})
    assert fsspec.get_filesystem_class("hf").protocol == "hf"


def test_a_file_system_that_cannot_be_reached_is_a_storage_error() -> None:
    with pytest.raises(StorageError, match="is not reachable"):
        lancelet.dataset("ftp://127.0.0.1:1/t.lance")
