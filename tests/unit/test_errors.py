"""Errors keep their facts on every way that they travel."""

import inspect
import pickle

import pytest

from lancelet import errors

CLASSES = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, errors.LanceletError)
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_error_survives_pickling_with_facts_and_notes(kind):
    error = kind("it broke", path="a.lance", position=12)
    error.add_note("while taking rows")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy).endswith("it broke (path='a.lance', position=12)")
    assert copy.facts == {"path": "a.lance", "position": 12}
    assert copy.__notes__ == ["while taking rows"]


def test_added_facts_do_not_replace_those_of_the_raiser():
    error = errors.CorruptDataError("bad", position=1).with_facts(position=2, path="b")
    assert error.facts == {"position": 1, "path": "b"}


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors.InvalidInputError, ValueError),
        (errors.DatasetNotFoundError, FileNotFoundError),
        (errors.DatasetNotFoundError, ValueError),
        (errors.AlreadyExistsError, FileExistsError),
        (errors.UnsupportedError, NotImplementedError),
        (errors.CorruptDataError, OSError),
        (errors.CommitConflictError, OSError),
    ],
)
def test_errors_are_the_builtin_that_programs_catch(kind, builtin):
    assert issubclass(kind, builtin)
