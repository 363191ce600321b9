"""Frozen dataclasses that are compiled late are what those of the standard library are."""

import copy
import dataclasses
import inspect
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError, field
from typing import ClassVar

import pytest

from lancelet import values

KINDS = {"standard": dataclasses.dataclass, "late": values.dataclass}


def family(dataclass):
    """Return classes of every form that there is in this package."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """Where something is."""

        x: int
        y: int = 2
        names: list[str] = field(default_factory=list, hash=False)
        hidden: int = field(default=0, repr=False, compare=False)
        kind: ClassVar[str] = "point"

        def __post_init__(self):
            if self.x < 0:
                raise ValueError("negative")

        @property
        def total(self):
            return self.x + self.y

    @dataclass(frozen=True, slots=True)
    class Far(Point):
        z: int = field(default=3, kw_only=True)

    @dataclass(frozen=True, eq=False)
    class Same:
        x: int

    @dataclass(frozen=True, slots=True, order=True)
    class Ranked:
        x: int
        y: int = 0

    @dataclass(frozen=True)
    class Counted:
        x: int
        kind: str = field(default="fixed", init=False)
        parts: list[int] = field(default_factory=list, init=False)

    @dataclass(frozen=True)
    class Own:  # noqa: PLW1641 - the decorator adds it
        x: int

        def __eq__(self, other):
            return isinstance(other, Own)

        def __repr__(self):
            return "own"

    class Named(Own):
        pass

    @dataclass(slots=True)
    class Changing:
        x: int = 0

    return Point, Far, Same, Ranked, Own, Named, Changing, Counted


@pytest.fixture(params=KINDS)
def classes(request):
    return family(KINDS[request.param])


def test_values_are_made_compared_and_shown(classes):
    point, far, same, ranked, own, *_ = classes
    assert point(1) == point(1, 2, []) != point(1, 3)
    assert hash(point(1, names=["a"])) == hash(point(1))
    assert point(1, hidden=5) == point(1)
    assert repr(point(1)).endswith("Point(x=1, y=2, names=[])")
    assert point(1).names is not point(1).names
    assert far(1, z=9).total == 3
    assert repr(far(1)).endswith("Far(x=1, y=2, names=[], z=3)")
    assert far(1) != point(1)
    assert same(1) != same(1)
    assert sorted([ranked(2), ranked(1, 5), ranked(1)]) == [ranked(1), ranked(1, 5), ranked(2)]
    assert ranked(1) < ranked(1, 1)
    assert (own(1), repr(own(1))) == (own(2), "own")
    assert hash(own(1)) == hash(own(1))
    counted = classes[-1]
    assert repr(counted(1)).endswith("Counted(x=1, kind='fixed', parts=[])")
    assert counted(1).parts is not counted(1).parts
    match far(4, z=1):
        case point(x, y):
            assert (x, y) == (4, 2)


def test_wrong_arguments_and_values_are_rejected(classes):
    point = classes[0]
    with pytest.raises(TypeError, match=r"Point.__init__\(\) missing 1 required positional"):
        point()
    with pytest.raises(TypeError, match="unexpected keyword argument 'w'"):
        point(1, w=2)
    with pytest.raises(ValueError, match="negative"):
        point(-1)


def test_nothing_can_be_set(classes):
    point, far, _, _, own, named, changing, _ = classes
    for value in (point(1), far(1), own(1), named(1)):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
            value.x = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
            del value.x
    with pytest.raises(FrozenInstanceError):
        own(1).other = 2
    free = named(1)
    free.other = 2
    assert free.other == 2
    changed = changing()
    changed.x = 4
    assert changed == changing(4)


def test_the_standard_library_knows_them(classes):
    point, far, *_ = classes
    assert [each.name for each in dataclasses.fields(far)] == ["x", "y", "names", "hidden", "z"]
    assert dataclasses.replace(point(1), y=7) == point(1, 7)
    assert dataclasses.asdict(point(1)) == {"x": 1, "y": 2, "names": [], "hidden": 0}
    assert list(inspect.signature(far).parameters) == ["x", "y", "names", "hidden", "z"]
    assert inspect.signature(far).parameters["z"].kind is inspect.Parameter.KEYWORD_ONLY
    assert inspect.signature(point).parameters["y"].default == 2
    assert copy.copy(far(1, z=4)) == copy.deepcopy(far(1, z=4)) == far(1, z=4)
    assert not hasattr(point(1), "__dict__")


@values.dataclass(frozen=True, slots=True)
class Sent:
    x: int
    y: list[int]


def test_values_survive_pickling():
    assert pickle.loads(pickle.dumps(Sent(1, [2]))) == Sent(1, [2])


def test_properties_of_two_objects_are_computed_at_the_same_time():
    met = threading.Barrier(2)

    class Slow:
        @values.cached_property
        def value(self):
            """What both wait for."""
            met.wait(timeout=60)  # breaks if one of the two has to wait for the other
            return object()

    first, second = Slow(), Slow()
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda each: each.value, [first, second]))
    assert found == [first.value, second.value]
    assert Slow.value.__doc__ == "What both wait for."


def test_threads_that_compute_one_property_get_one_result():
    met = threading.Barrier(2)

    class Slow:
        @values.cached_property
        def value(self):
            met.wait(timeout=60)
            return object()

    one = Slow()
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: one.value, range(2))
    assert first is second is one.value
