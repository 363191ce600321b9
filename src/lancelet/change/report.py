"""Results that are displayed with one line per field.

bytes removed       1,536
old versions            3
"""

from __future__ import annotations

from dataclasses import fields
from html import escape
from typing import Any


class Report:
    """A base of dataclasses, which have no `repr` of their own."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Show one line per field."""
        own: Any = self
        facts = {each.name.replace("_", " "): getattr(self, each.name) for each in fields(own)}
        width = max(map(len, facts))
        lines = (f"{name:{width}}  {_value_text(value)}" for name, value in facts.items())
        return "\n".join(map(str.rstrip, lines))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def _value_text(value: int | str | tuple[str, ...]) -> str:
    match value:
        case int():
            return f"{value:,}"
        case str():
            return value
    return "; ".join(value)
