"""Where values of 2.0 begin and end."""

import numpy as np

from lancelet.buffers import ByteSlices, run
from lancelet.encodings.row_ranges import RowRanges
from lancelet.encodings.v2_0.variable import EndOffsets


class NeverAsked:
    """Offsets that must not be read."""

    def read(self, spans):
        raise AssertionError(spans)


def test_no_rows_have_no_extents_and_need_no_offsets():
    """A dictionary without items is read whole, which is no rows at all."""
    ends = EndOffsets(NeverAsked(), null_adjustment=10, limit=5)
    found = run(ends.read(RowRanges.all(0)), lambda _: ByteSlices(np.empty(0, np.uint8), *[[]] * 2))
    assert found.offsets().tolist() == [0]
    assert len(found.runs) == len(found.valid) == 0
