"""The error that SQL statements raise."""

from __future__ import annotations

from lancelet.errors import ExpressionError


class SqlError(ExpressionError):
    """A statement cannot be parsed, planned or executed; the message is the engine's."""
