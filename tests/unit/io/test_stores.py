"""The suite of stores, for each store we have, alone and wrapped."""

import itertools
from pathlib import Path

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from lancelet.io import Store, open_folder
from lancelet.io.dry_run import OverlayStore
from lancelet.io.local import LocalStore
from lancelet.io.memory import MemoryStore
from lancelet.io.metered import IoMeter, metered
from tests.kit.s3_server import S3Server
from tests.kit.store_suite import StoreSuite

_numbers = itertools.count()


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore(f"suite-{next(_numbers)}")


class TestLocalStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "not there yet" / "root")


class TestLocalStoreByUri(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return open_folder((tmp_path / "a b%").as_uri())


class TestStoreWithLocalCache(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        uri = f"memory://suite-{next(_numbers)}"
        return open_folder(uri, {"local_cache": str(tmp_path / "cache")})


class TestRemoteStore(StoreSuite):
    @pytest.fixture
    def store(self, s3_server: S3Server) -> Store:
        bucket = f"suite-{next(_numbers)}"
        s3_server.make_bucket(bucket)
        return open_folder(f"s3://{bucket}", s3_server.storage_options)


class TestRemoteFolder(StoreSuite):
    @pytest.fixture
    def store(self, s3_server: S3Server) -> Store:
        bucket = f"suite-{next(_numbers)}"
        s3_server.make_bucket(bucket)
        return open_folder(f"s3://{bucket}/some/folder.lance", s3_server.storage_options)


class TestFsspecStore(StoreSuite):
    """In fsspec's own memory, which is one for the whole process."""

    @pytest.fixture
    def store(self) -> Store:
        return open_folder(f"memory://suite-{next(_numbers)}/some/folder.lance", {"fsspec": "true"})


class TestFsspecFolder(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        folder = DirFileSystem(f"/suite-{next(_numbers)}", MemoryFileSystem())
        return open_folder("dir://t.lance", {"fsspec": folder})


class TestScratchStore(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return OverlayStore(
            MemoryStore(f"suite-{next(_numbers)}"), MemoryStore(f"suite-{next(_numbers)}")
        )


class TestMeteredStore(StoreSuite):
    @pytest.fixture
    def store(self) -> Store:
        return metered(MemoryStore(f"suite-{next(_numbers)}"), IoMeter())
