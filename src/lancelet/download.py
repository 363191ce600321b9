"""Download language models for `jieba` and `lindera`. Mirrors the pylance module of this name.

    python -m lancelet.download jieba                  <home>/jieba/default/dict.txt
    python -m lancelet.download lindera -l ipadic      <home>/lindera/ipadic/main

`LANCE_LANGUAGE_MODEL_HOME` sets the home folder. Models of `lindera` are compiled by the program
`lindera`, which must be installed. Without network access, copy the files to the folder.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
import sys
import tarfile
import urllib.request
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, Final

from lancelet.errors import CorruptDataError, InvalidInputError, StorageError, UnsupportedError
from lancelet.index.text.models import language_model_home

__all__ = ["LANGUAGE_MODEL_HOME", "check_lindera", "download_jieba", "download_lindera"]

LANGUAGE_MODEL_HOME: Final = language_model_home()

_JIEBA: Final = "https://github.com/messense/jieba-rs/raw/refs/heads/main/src/data/dict.txt"
_LINDERA: Final = {
    "ipadic": "https://Lindera.dev/mecab-ipadic-2.7.0-20070801.tar.gz",
    "ko-dic": "https://Lindera.dev/mecab-ko-dic-2.1.1-20180720.tar.gz",
    "unidic": "https://Lindera.dev/unidic-mecab-2.1.2.tar.gz",
}
_WAIT_SECONDS: Final = 60


class CompilerMissingError(UnsupportedError):
    """The program that compiles models is not installed."""


def check_lindera() -> None:
    """Raise if the program `lindera` is not installed."""
    if shutil.which("lindera") is None:
        raise CompilerMissingError(
            "models of lindera are compiled by the program `lindera`; install its command line"
        )


def import_requests() -> Any:
    """Import the package `requests`, which some download scripts use."""
    try:
        return importlib.import_module("requests")
    except ImportError as error:
        raise UnsupportedError("requests is not installed; pip install requests") from error


def download_jieba() -> None:
    """Download the default Chinese dictionary to the folder of `jieba/default`."""
    folder = Path(language_model_home(), "jieba", "default")
    dictionary = _fetch(_JIEBA, folder)
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("dict.txt").write_bytes(dictionary)


def download_lindera(lm: str) -> None:
    """Download and compile a Japanese or Korean dictionary.

    Args:
        lm: `ipadic`, `ko-dic` or `unidic`.
    """
    if lm not in _LINDERA:
        raise InvalidInputError(f"language model {lm} is not supported", expected=list(_LINDERA))
    check_lindera()
    folder = Path(language_model_home(), "lindera", lm)
    source = folder / "src"
    archive = _fetch(_LINDERA[lm], source)
    source.mkdir(parents=True, exist_ok=True)
    first = _unpack(archive, source)
    command = ["lindera", "build", f"--dictionary-kind={lm}", str(source / first)]
    subprocess.run([*command, str(folder / "main")], check=True)  # noqa: S603 - user's request


def _unpack(archive: bytes, folder: Path) -> str:
    """Extract an archive into a folder, and return the name of its first entry.

    Python before 3.11.4 has no extraction filters in `tarfile`.
    """
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        entries = files.getmembers()
        for entry in entries:
            path = PurePosixPath(entry.name)
            is_plain = entry.isfile() or entry.isdir()
            if not is_plain or path.is_absolute() or ".." in path.parts or "\\" in entry.name:
                raise CorruptDataError(
                    "the archive contains a path outside its root, or an entry that is not a "
                    "regular file",
                    name=entry.name,
                )
        for entry in entries:
            target = folder.joinpath(entry.name)
            (target if entry.isdir() else target.parent).mkdir(parents=True, exist_ok=True)
            content = files.extractfile(entry)
            if content is not None:
                with content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
    if not entries:
        raise CorruptDataError("the archive is empty", folder=str(folder))
    return entries[0].name


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Download language models.")
    parser.add_argument("tokenizer", choices=["jieba", "lindera"])
    parser.add_argument("-l", "--languagemodel", default="ipadic", choices=list(_LINDERA))
    given = parser.parse_args(arguments)
    if given.tokenizer == "jieba":
        download_jieba()
    else:
        download_lindera(given.languagemodel)
    return 0


def _fetch(url: str, folder: Path) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_WAIT_SECONDS) as reply:  # noqa: S310 - https
            found: bytes = reply.read()
            return found
    except OSError as error:
        raise StorageError(
            "the download failed; copy the files of the model to the folder",
            url=url,
            folder=str(folder),
        ) from error


if __name__ == "__main__":
    sys.exit(main())
