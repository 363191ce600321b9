"""Limits of files are positive; a negative one is out of range, as in pylance."""

import pytest

from lancelet.arguments import OutOfRangeError
from lancelet.change.write import FileLimits
from lancelet.errors import InvalidInputError


@pytest.mark.parametrize("name", ["max_rows_per_file", "max_rows_per_group", "max_bytes_per_file"])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_positive(name, value):
    with pytest.raises(InvalidInputError, match=f"{name} must be at least 1") as caught:
        FileLimits(**{name: value})
    assert isinstance(caught.value, OutOfRangeError) is (value < 0)
