"""Packages that know the words of a language: optional, asked for by name, with models of files."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

from lancelet.errors import StorageError, UnsupportedError


class MissingPackageError(UnsupportedError, OSError):
    """A package that knows the words of a language is not installed."""


class UnreadableModelError(StorageError, ValueError):
    """The files of a model are missing or damaged.

    pylance raises OSError when an index is built, and ValueError when a text is cut.
    """


def package_of_words(name: str, install: str, what: str) -> Any:
    """Return a package; raise an error that says which texts need it if it is not installed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # what it imports may be deprecated
            return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{what} are tokenized by the package {install}; install it, or choose another "
            "base_tokenizer",
            package=install,
        ) from error
