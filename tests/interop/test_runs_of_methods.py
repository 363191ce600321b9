"""Public methods of datasets, run on both libraries over the same table: what they return is alike.

`DIFFERENCES` has the runs whose results are not, each with the reason; `tools/list_api.py` puts
both into the page of differences from pylance.
"""

import lance
import pytest

import lancelet
from tests.kit.method_runs import DIFFERENCES, RUNS, Raised, result_of, table_for_runs

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", RUNS)
def test_a_method_returns_the_result_of_the_reference(tmp_path, name):
    found = []
    for library in (lance, lancelet):
        uri = str(tmp_path / library.__name__)
        table_for_runs(library, uri)
        found.append(result_of(library, RUNS[name], uri))
    if name in DIFFERENCES:
        assert found[0] != found[1], "the results are alike now: take the name out of DIFFERENCES"
    elif isinstance(found[0], Raised):
        assert isinstance(found[1], Raised)
        assert found[1].is_caught_as(found[0]), found
    else:
        assert found[0] == found[1]
