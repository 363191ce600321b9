"""Arrays to buffers and back, for every generation of the format, and the choice of encoding."""

# ruff: noqa: TC004 - modules are imported on demand, and here for readers of types only

from typing import TYPE_CHECKING

from lancelet.on_demand import import_on_demand

if TYPE_CHECKING:
    from lancelet.encodings import encode_field, v2_0, v2_1, v2_3

__all__ = ["encode_field", "v2_0", "v2_1", "v2_3"]

import_on_demand(__name__, {})
