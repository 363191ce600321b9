"""Deferred imports of pyarrow modules.

Importing `pyarrow.dataset` creates a constant of `True`, which makes Arrow import pandas, and takes
longer than importing lancelet. The base classes of datasets are in `pyarrow._dataset`, local file
systems in `pyarrow._fs`. `pyarrow.compute` generates its functions from their documentation when
it is imported, and most programs use few of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
from pyarrow import _compute, _fs, lib

from lancelet.on_demand import load_late


@cache
def load_arrow_late() -> None:
    """Replace pyarrow modules by stubs that load them at the first use."""
    true = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\x01")])[0]
    scalar_of = lib.scalar

    def scalar(value: Any, *args: Any, **kwargs: Any) -> pa.Scalar:
        return true if value is True and not (args or kwargs) else scalar_of(value, *args, **kwargs)

    lib.scalar = scalar
    try:
        from pyarrow import _dataset  # noqa: PLC0415 - scalars are still created without pandas
    finally:
        lib.scalar = scalar_of
    load_late("pyarrow.compute", _compute)
    load_late("pyarrow.fs", _fs)
    load_late("pyarrow.dataset", _dataset)
