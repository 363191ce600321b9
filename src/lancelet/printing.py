"""Printable text of values, whose control characters a terminal would execute."""

from __future__ import annotations

import re
from typing import Final

_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All control characters except tab and line feed."""


def printable(text: str) -> str:
    r"""Escape control characters except tabs and line feeds.

    >>> print(printable("a\x1b[2J"))
    a\x1b[2J
    """
    return text if text.isprintable() else _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    r"""Escape control characters, and join lines.

    >>> print(one_line("a\n  b\x07"))
    a b\x07
    """
    return printable(" ".join(text.split()) if "\n" in text or "\t" in text else text)
