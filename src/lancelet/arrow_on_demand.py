"""Modules of pyarrow that most programs need a few names of, loaded when they are asked for more.

`pyarrow.dataset` makes a constant of `True` as it is imported, and Arrow looks for pandas before it
makes one of any value of Python, which takes longer than all of this package. What datasets are
derived from is in `pyarrow._dataset`, and file systems but those of clouds are in `pyarrow._fs`.
Functions of `pyarrow.compute` are made from the texts that document them, and few are used.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from pyarrow import _compute, _fs, lib

from lancelet.on_demand import load_late


@cache
def load_arrow_late() -> None:
    """Put modules in the places of pyarrow's that load them when they are needed."""
    true = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\x01")])[0]
    scalar_of = lib.scalar

    def scalar(value: Any, *args: Any, **kwargs: Any) -> pa.Scalar:
        return true if value is True and not (args or kwargs) else scalar_of(value, *args, **kwargs)

    lib.scalar = scalar
    try:
        from pyarrow import _dataset  # noqa: PLC0415 - while a constant needs no pandas
    finally:
        lib.scalar = scalar_of
    load_late("pyarrow.compute", _compute)
    load_late("pyarrow.fs", _fs)
    load_late("pyarrow.dataset", _dataset)
