"""What callers see of methods that pass their arguments on is what the reference shows."""

import inspect

import lance
import pytest

import lancelet


@pytest.mark.interop
@pytest.mark.parametrize("name", ["scanner", "to_table", "to_batches"])
def test_scans_show_the_arguments_of_the_reference(name):
    theirs = list(inspect.signature(getattr(lance.LanceDataset, name)).parameters)
    ours = list(inspect.signature(getattr(lancelet.LanceDataset, name)).parameters)
    assert ours == [argument for argument in theirs if argument != "kwargs"]
