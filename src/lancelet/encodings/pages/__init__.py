"""Pages of the generations with levels: layouts, and conversion of fields to pages and back."""

# ruff: noqa: TC004 - modules are imported on demand; the imports below are for type checkers

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.encodings.pages import encode_field

__all__ = ["encode_field"]

import_on_demand(__name__, {})
