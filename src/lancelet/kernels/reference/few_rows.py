"""A few rows of mapped columns, as its definition: nothing is read like this.

The native kernel spares array operations, each of which costs more than the value that it is for.
Whatever it declines is read in the general way; without it that is everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from lancelet.buffers import Int64s
from lancelet.kernels.mapped import FewColumns, FewRows, KnownColumn, MappedFile


def prepare_few(columns: Sequence[KnownColumn]) -> FewColumns:
    """Return columns as `take_few` takes them, which keep what they are made of.

    Arrays that are shorter than the numbers beside them say are a `ValueError`.
    """
    return FewColumns(None, len(columns))


def take_few(file: MappedFile, rows: Int64s, columns: FewColumns, room: int) -> FewRows | None:
    """Return rows, in any order, of columns that were prepared.

    `None` stands for whatever is not known, not supported or not sound. `room` is a guess of how
    many bytes the result has.
    """
    del file, rows, columns, room
    return None
