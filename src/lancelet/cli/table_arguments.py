"""The arguments that say which table, and which version of it."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from lancelet.errors import InvalidInputError

if TYPE_CHECKING:
    from lancelet.dataset import LanceDataset
    from lancelet.dataset.handle import VersionLike


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add which table, and how to get at it."""
    parser.add_argument("uri", help="a path, or a URI such as s3://bucket/table.lance")
    add_storage_options(parser)


def add_storage_options(parser: argparse.ArgumentParser) -> None:
    """Add how to get at storage."""
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the object store, such as region=eu-central-1; may be repeated",
    )


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add which version."""
    parser.add_argument(
        "--at",
        metavar="VERSION",
        help="a number, a tag, branch:number, branch: or a time such as 2026-01-31T12:00; "
        "by default the latest",
    )


def open_table(arguments: argparse.Namespace) -> LanceDataset:
    """Open the table, at the version that was asked for."""
    options = storage_options_of(arguments)
    return open_version(arguments.uri, getattr(arguments, "at", None), options)


def open_version(uri: str, at: str | None, options: dict[str, str] | None) -> LanceDataset:
    """Open a table at a version that is given as text, by default the latest."""
    from lancelet.dataset import dataset  # noqa: PLC0415 - `--help` needs none

    wanted = parse_version(at)
    if isinstance(wanted, datetime):
        return dataset(uri, storage_options=options, asof=wanted)
    return dataset(uri, version=wanted, storage_options=options)


def storage_options_of(arguments: argparse.Namespace) -> dict[str, str] | None:
    """Return the settings of the store."""
    found = {}
    for text in arguments.storage_option:
        key, mark, value = text.partition("=")
        if not mark:
            raise InvalidInputError("a storage option is KEY=VALUE", found=text)
        found[key] = value
    return found or None


def parse_version(text: str | None) -> VersionLike | datetime:
    """Return what a version on the command line means.

    >>> parse_version("3"), parse_version("dev:"), parse_version("v1.0")
    (3, ('dev', None), 'v1.0')
    """
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    if text[:1].isdigit() and "-" in text:
        try:
            return datetime.fromisoformat(text).astimezone()
        except ValueError:
            return text
    branch, mark, number = text.partition(":")
    if not mark:
        return text
    if number and not number.isdigit():
        raise InvalidInputError("the version of a branch is a number", found=text)
    return (branch, int(number) if number else None)
