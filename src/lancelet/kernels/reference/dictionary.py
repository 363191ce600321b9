"""Looking up a dictionary: the item at each index.

    items 10 20 30     indices 2 0 2     values 30 10 30
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes
from lancelet.kernels.arguments import check_whole_values, word_type
from lancelet.kernels.faults import Fault, corrupt


def look_up_fixed(items: Bytes, item_bytes: int, indices: npt.NDArray[Any]) -> Bytes:
    """Return the item of `item_bytes` at each unsigned index."""
    count = check_whole_values(items, item_bytes)
    outside = indices.view(word_type(indices.dtype.itemsize * 8)) >= count
    if outside.any():
        raise corrupt(Fault.BAD_INDEX, kernel="look_up_fixed", place=int(outside.argmax()))
    taken: Bytes = items.reshape(count, item_bytes)[indices.astype(np.int64)].reshape(-1)
    return taken
