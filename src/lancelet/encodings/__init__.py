"""Encoding and decoding of arrays for each format generation, and encoding selection."""

# ruff: noqa: TC004 - modules are imported on demand; the imports below are for type checkers

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.encodings import pages, v2_0, v2_1, v2_3

__all__ = ["pages", "v2_0", "v2_1", "v2_3"]

import_on_demand(__name__, {})
