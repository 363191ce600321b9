"""Arguments that select a table and its version."""

from __future__ import annotations

import argparse
import re
from datetime import datetime
from typing import TYPE_CHECKING, Final

from lancelet.cli.catalogs import Catalog, connect_catalog, path_of
from lancelet.cli.scan_arguments import SCAN_OPTIONS
from lancelet.errors import InvalidInputError

if TYPE_CHECKING:
    from lancelet.dataset import LanceDataset
    from lancelet.dataset.handle import VersionLike

_NUMBER: Final = re.compile(r"[0-9]{1,20}")


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add the table argument, the storage options and the options of catalogs."""
    parser.add_argument(
        "uri",
        help="a path, a URI such as s3://bucket/table.lance, or with --catalog a name such as "
        "sales.orders",
    )
    add_storage_options(parser)
    add_catalog(parser)


def add_storage_options(parser: argparse.ArgumentParser) -> None:
    """Add the storage options."""
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the object store, such as region=eu-central-1; may be repeated",
    )


def add_catalog(parser: argparse.ArgumentParser) -> None:
    """Add the options of catalogs."""
    parser.add_argument(
        "--catalog",
        metavar="KIND",
        help="look the name up in a catalog: dir, glue, hive, iceberg, polaris, rest or unity",
    )
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a property of the catalog, such as region=us-east-1; may be repeated",
    )


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add the version option."""
    parser.add_argument(
        "--at",
        metavar="VERSION",
        help="a number, a tag, branch:number, branch: or a time such as 2026-01-31T12:00; "
        "by default the latest",
    )


def add_scan_options(parser: argparse.ArgumentParser, *flags: str) -> None:
    """Add options of scans, such as `--filter`."""
    for flag in flags:
        parser.add_argument(flag, **SCAN_OPTIONS[flag])


def add_action(parser: argparse.ArgumentParser, actions: tuple[str, ...]) -> None:
    """Add the action of a command, which may precede or follow the table, by default `list`."""
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        metavar="{" + ",".join(actions) + "}",
        help="what to do; it may also precede the table",
    )
    parser.set_defaults(actions=actions)


def order_action(arguments: argparse.Namespace) -> None:
    """Exchange the table and the action if the action came first; exit if it is unknown."""
    actions = arguments.actions
    if arguments.uri in actions and arguments.action not in actions:
        arguments.uri, arguments.action = arguments.action, arguments.uri
    if arguments.action not in actions:
        arguments.usage_error(
            f"unknown action {arguments.action!r}; use {', '.join(arguments.actions)}"
        )


def add_limit(parser: argparse.ArgumentParser, *flags: str, rows: int) -> None:
    """Add the option for the number of rows."""
    parser.add_argument(
        *flags,
        type=int,
        dest="limit",
        metavar="ROWS",
        default=rows,
        help=f"the number of rows (default {rows})",
    )


def add_full(parser: argparse.ArgumentParser) -> None:
    """Add the option for complete values."""
    parser.add_argument(
        "--full", action="store_true", help="print complete vectors, and binary values as base64"
    )


def columns_of(arguments: argparse.Namespace) -> list[str] | None:
    """Return the columns of `--columns`, or None for all; spaces around names are ignored."""
    text: str | None = arguments.columns
    return [name.strip() for name in text.split(",")] if text else None


def open_table(arguments: argparse.Namespace) -> LanceDataset:
    """Open the table at the requested version."""
    at, options = getattr(arguments, "at", None), storage_options_of(arguments)
    return open_version(arguments.uri, at, options, catalog_of(arguments))


def open_version(
    uri: str, at: str | None, options: dict[str, str] | None, catalog: Catalog | None = None
) -> LanceDataset:
    """Open a table at a version given as text, by default the latest."""
    from lancelet.dataset import dataset  # noqa: PLC0415 - not needed for `--help`

    version = parse_version(at)
    if catalog is not None:
        return catalog.open(path_of(uri), version, options)
    if isinstance(version, datetime):
        return dataset(uri, storage_options=options, asof=version)
    return dataset(uri, version=version, storage_options=options)


def catalog_of(arguments: argparse.Namespace) -> Catalog | None:
    """Connect to the catalog of `--catalog`, if given."""
    properties = _pairs(arguments.property, "--property requires NAME=VALUE")
    if arguments.catalog is not None:
        return connect_catalog(arguments.catalog, properties)
    if properties:
        raise InvalidInputError("--property requires --catalog KIND", found=list(properties))
    return None


def location_of(arguments: argparse.Namespace) -> tuple[str, dict[str, str] | None]:
    """Return the location of the table and its storage options."""
    catalog, options = catalog_of(arguments), storage_options_of(arguments)
    if catalog is None:
        return arguments.uri, options
    location, own = catalog.location(path_of(arguments.uri))
    return location, {**(options or {}), **own} or None


def storage_options_of(arguments: argparse.Namespace) -> dict[str, str] | None:
    """Parse the storage options."""
    return _pairs(arguments.storage_option, "--storage-option requires KEY=VALUE") or None


def _pairs(texts: list[str], requirement: str) -> dict[str, str]:
    """Parse options; errors do not contain values, which may be secrets."""
    pairs = [text.partition("=") for text in texts]
    if not all(separator for _, separator, _ in pairs):
        raise InvalidInputError(requirement)
    return {name: value for name, _, value in pairs}


def parse_version(text: str | None) -> VersionLike | datetime:
    """Parse a version number, tag, branch version or time.

    >>> parse_version("3"), parse_version("dev:"), parse_version("v1.0")
    (3, ('dev', None), 'v1.0')
    """
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        return int(text)
    if text[:1].isdigit() and "-" in text:
        try:
            return datetime.fromisoformat(text).astimezone()
        except ValueError:
            return text
    branch, separator, number = text.partition(":")
    if not separator:
        return text
    if number and not _NUMBER.fullmatch(number):
        raise InvalidInputError("the version of a branch must be a number", found=text)
    return (branch, int(number) if number else None)
