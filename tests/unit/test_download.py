"""Models of words are fetched into the folder where the tokenizers look for them."""

import io
import sys
import tarfile
import urllib.request

import pytest

from lancelet import download
from lancelet.errors import CorruptDataError, InvalidInputError, StorageError, UnsupportedError


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("LANCE_LANGUAGE_MODEL_HOME", str(tmp_path))
    return tmp_path


def serve(monkeypatch, data):
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: io.BytesIO(data))


def archive_of(name, kind=tarfile.REGTYPE):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as files:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "/etc/passwd"
        entry.size = 4 if kind == tarfile.REGTYPE else 0
        files.addfile(entry, io.BytesIO(b"word"))
    return packed.getvalue()


def test_words_of_jieba_are_put_where_they_are_looked_for(home, monkeypatch):
    serve(monkeypatch, b"lance 3 n\n")
    assert download.main(["jieba"]) == 0
    assert (home / "jieba/default/dict.txt").read_bytes() == b"lance 3 n\n"


def test_a_dictionary_of_lindera_is_compiled(home, monkeypatch):
    serve(monkeypatch, archive_of("words/a.csv"))
    ran = []
    monkeypatch.setattr(download.shutil, "which", lambda name: name)
    monkeypatch.setattr(download.subprocess, "run", lambda command, **_: ran.append(command))
    assert download.main(["lindera", "-l", "ko-dic"]) == 0
    source = home / "lindera/ko-dic/src/words/a.csv"
    assert source.read_bytes() == b"word"
    folder = home / "lindera/ko-dic/main"
    assert ran == [["lindera", "build", "--dictionary-kind=ko-dic", str(source), str(folder)]]


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "a/../../outside", "..\\outside"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE])
def test_an_archive_cannot_write_elsewhere(home, monkeypatch, name, kind):
    serve(monkeypatch, archive_of(name, kind))
    monkeypatch.setattr(download.shutil, "which", lambda name: name)
    with pytest.raises(CorruptDataError, match="outside its root, or an entry"):
        download.download_lindera("ipadic")
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_an_archive_has_files_alone(home, monkeypatch, kind):
    serve(monkeypatch, archive_of("words/a.csv", kind))
    monkeypatch.setattr(download.shutil, "which", lambda name: name)
    with pytest.raises(CorruptDataError, match="outside its root, or an entry"):
        download.download_lindera("ipadic")


def test_missing_files_are_reported(home, monkeypatch):
    def refuse(url, timeout):
        raise OSError(f"no network to {url} within {timeout}")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setattr(download.shutil, "which", lambda _: None)
    with pytest.raises(StorageError, match="copy the files"):
        download.download_jieba()
    assert not (home / "jieba").exists()
    with pytest.raises(InvalidInputError, match="not supported"):
        download.download_lindera("english")
    with pytest.raises(UnsupportedError, match="lindera"):
        download.download_lindera("ipadic")


def test_a_missing_requests_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", sys)
    assert download.import_requests() is sys
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(UnsupportedError, match="pip install requests"):
        download.import_requests()
