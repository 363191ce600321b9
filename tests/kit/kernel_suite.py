"""Comparison of native kernels of each instruction set with their definitions."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from lancelet.buffers import ByteSlices
from lancelet.errors import LanceletError
from lancelet.kernels import select


def outcome(kernel: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    try:
        return kernel(*arguments, **options)
    except LanceletError as error:
        return type(error)


def assert_same(found: Any, expected: Any, where: str) -> None:
    if isinstance(expected, tuple):
        assert isinstance(found, tuple), (where, found)
        assert len(found) == len(expected), where
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, where)
    elif isinstance(expected, ByteSlices):
        assert_same(found.position, expected.position, where)
        assert_same(found.size, expected.size, where)
        assert_same(found.source, expected.source, where)
    elif isinstance(expected, np.ndarray):
        assert isinstance(found, np.ndarray), (where, found, expected)
        assert found.dtype == expected.dtype, where
        np.testing.assert_array_equal(found, expected, err_msg=where)
    else:
        assert type(found) is type(expected), (where, found, expected)
        assert found == expected, where


def instruction_sets() -> tuple[str, ...]:
    """Every instruction set there is native code for; at least one, or nothing is tested."""
    sets = select.instruction_sets()
    assert sets, "the native kernels are not built: make build"
    return sets


def comparison(native: ModuleType, reference: ModuleType) -> Callable[..., Any]:
    """Return a function that runs a kernel of both packages, and returns its result or error."""

    def run(name: str, *arguments: Any, **options: Any) -> Any:
        expected = outcome(getattr(reference, name), arguments, options)
        before = select.backend()
        try:
            for instruction_set in instruction_sets():
                select.use_instruction_set(instruction_set)
                found = outcome(getattr(native, name), arguments, options)
                assert_same(found, expected, f"{name} on {instruction_set}")
        finally:
            select.use_instruction_set(before)
        return expected

    return run


def damaged(rng: np.random.Generator, data: np.ndarray) -> np.ndarray:
    """Return a copy of some bytes with a few of them changed, or the end cut off."""
    data = data.copy()
    if not len(data):
        return data
    for _ in range(int(rng.integers(1, 4))):
        data[rng.integers(len(data))] = rng.choice([0, 1, 255, int(rng.integers(256))])
    return data[: rng.integers(len(data) + 1)] if rng.random() < 0.3 else data
