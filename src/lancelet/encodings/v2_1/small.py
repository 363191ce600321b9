"""Small pages of plain values: those of columns that are alike at once, few tiny ones one by one.

10 rows of 3 columns       30 values of 80 bytes a page: each is put together as it is (`tiny`)
10 rows of 3000 columns    by their types (`alike`)
1000 rows of 3 columns     the same: what a page could be takes a look at its values
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from lancelet.encodings.base import EncodedPage, FileVersion
from lancelet.encodings.choose import TINY_BYTES
from lancelet.encodings.options import has_other_defaults
from lancelet.encodings.v2_1.alike import encode_alike, is_plain
from lancelet.encodings.v2_1.tiny import tiny_page
from lancelet.format.field import Field

_MANY: Final = 64
"""So many columns of tiny pages take less time together than one by one."""


def encode_small_fields(
    arrays: Sequence[pa.Array], fields: Sequence[Field], version: FileVersion
) -> list[EncodedPage | None]:
    """Return the one page of the few values of each field, or None if they are not plain."""
    pages: list[EncodedPage | None] = [None] * len(fields)
    if has_other_defaults():
        return pages
    alike: dict[tuple[str, int], list[int]] = {}
    for place, (array, field) in enumerate(zip(arrays, fields, strict=True)):
        if len(array) and not field.metadata and not field.children:
            alike.setdefault((field.logical_type, len(array)), []).append(place)
    for places in alike.values():
        own = [arrays[place] for place in places]
        if not is_plain(own[0].type):
            continue
        own_fields = [fields[place] for place in places]
        if len(own) < _MANY and own[0].nbytes <= TINY_BYTES:
            found = [
                tiny_page(array, field, version)
                for array, field in zip(own, own_fields, strict=True)
            ]
        else:
            found = encode_alike(own, own_fields, version)
        for place, page in zip(places, found, strict=True):
            pages[place] = page
    return pages
