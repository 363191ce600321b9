r"""Parsing of URIs to a store and a path within it.

    s3://bucket/tables/my%20table     scheme s3, authority bucket, path tables/my table
    file:///data/my%20table           local, /data/my table
    tables/t.lance                    local, relative to the working directory
    C:\data\t.lance                   local, drive C
    \\server\share\t.lance            local, a share
    s3+ddb://bucket/t?ddbTableName=x  scheme s3+ddb, with the option ddbTableName

URIs with a scheme are percent-decoded, like in pylance. Plain paths may contain any character and
are not decoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

_SCHEME: Final = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")
_DRIVE: Final = re.compile(r"^[A-Za-z]:[\\/]")


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed URI; `path` is separated by `/` and has no leading or trailing slash.

    The `authority` of a local path is its anchor, such as `/`, `C:/` or `//server/share/`.
    """

    scheme: str
    authority: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)


def parse_uri(uri: str | os.PathLike[str]) -> Location:
    r"""Parse a URI or a local path.

    >>> parse_uri("s3://bucket/tables/t.lance/")
    Location(scheme='s3', authority='bucket', path='tables/t.lance', options={})
    >>> parse_uri("C:\\data\\t.lance").authority
    'C:/'
    """
    text = os.fspath(uri)
    if not text:
        raise InvalidInputError("a URI must not be empty")
    match = _SCHEME.match(text)
    if match is None and text[:6].lower() == "file:/":  # a single slash, as in Java
        return _parse_file_url(f"file://{text[5:]}")
    if match is None:
        return _parse_local(text)
    scheme = match[1].lower()
    if scheme in {"file", "file+uring", "file-object-store"}:
        return _parse_file_url(text)
    # Only this scheme has a query; in other schemes, `?` and `#` may be part of a key.
    if scheme == "s3+ddb":
        parts = urlsplit(text)
        return _location(scheme, parts.netloc, unquote(parts.path), dict(parse_qsl(parts.query)))
    authority, _, path = text[match.end() :].partition("/")
    return _location(scheme, authority, path if scheme == "memory" else unquote(path), {})


def quote_path(path: str) -> str:
    """Return a path with percent signs encoded for use in a URI.

    >>> quote_path("100%25/t"), parse_uri("s3://bucket/" + quote_path("100%25/t")).path
    ('100%2525/t', '100%25/t')
    """
    return path.replace("%", "%25")


def join(uri: str, *names: str) -> str:
    """Return a URI with path segments appended.

    >>> join("s3://bucket/t.lance/", "data", "a.lance")
    's3://bucket/t.lance/data/a.lance'
    """
    base = uri if uri.endswith("://") or uri == "/" else uri.rstrip("/")
    return "/".join([base.removesuffix("/") if base == "/" else base, *names])


def parent(path: str) -> str:
    """Return the parent directory of a path in a store; the root is the empty path.

    >>> parent("data/a.lance"), parent("a.lance")
    ('data', '')
    """
    return path.rpartition("/")[0]


def name(path: str) -> str:
    """Return the last segment of a path in a store.

    >>> name("data/a.lance")
    'a.lance'
    """
    return path.rpartition("/")[2]


def _location(scheme: str, authority: str, path: str, options: Mapping[str, str]) -> Location:
    parts = [part for part in path.split("/") if part]
    return Location(scheme, authority, "/".join(parts), options)


def _parse_file_url(text: str) -> Location:
    _, _, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    path = unquote(path)
    if authority and authority != "localhost":
        if _DRIVE.match(f"{authority}/"):  # `file://C:/data` is invalid, but common
            return _parse_local(f"{authority}/{path}")
        return _parse_local(f"//{unquote(authority)}/{path}")
    if _DRIVE.match(path):
        return _parse_local(path)
    return _parse_local(slash + path)


def _parse_local(text: str) -> Location:
    if _DRIVE.match(text):
        return _local(text[0].upper() + ":/", text[3:].replace("\\", "/"))
    if text.startswith("\\\\") or (os.name == "nt" and text.startswith("//")):
        server, _, rest = text[2:].replace("\\", "/").partition("/")
        share, _, path = rest.partition("/")
        if not server or not share:
            raise InvalidInputError("a share must have the form \\\\server\\share", uri=text)
        return _local(f"//{server}/{share}/", path)
    if text == "~" or text.startswith("~/"):
        text = os.path.expanduser(text)
    absolute = os.path.abspath(text)
    if os.name == "nt":
        return _parse_local(absolute)
    return _local("/", absolute)


def _local(anchor: str, path: str) -> Location:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            # The parent of an anchor is the anchor.
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return Location("file", anchor, "/".join(parts))
