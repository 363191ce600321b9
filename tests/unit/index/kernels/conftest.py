"""Fixtures of kernel tests: the native code of each instruction set against the definition."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lancelet.index.kernels import native, reference
from tests.kit import kernel_suite


@pytest.fixture(scope="session")
def instruction_sets() -> tuple[str, ...]:
    return kernel_suite.instruction_sets()


@pytest.fixture(scope="session")
def agree() -> Callable[..., Any]:
    """Run a kernel in every way there is; return its result or the class of its error."""
    return kernel_suite.comparison(native, reference)


@pytest.fixture(scope="session")
def damage() -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    """Return a copy of some bytes with a few of them changed, or the end cut off."""
    return kernel_suite.damaged
