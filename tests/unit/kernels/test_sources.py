"""Rules of kernels that no compiler checks."""

import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lancelet import kernels
from lancelet.index import kernels as index_kernels
from lancelet.kernels.faults import Fault
from lancelet.kernels.topics import bind

NATIVE = Path(__file__).parents[3] / "native"
FOLDERS = {"src": kernels, "index": index_kernels}
"""The folders of native topics, and the packages that wrap them."""
SOURCES = sorted(path for name in FOLDERS for path in (NATIVE / name).glob("*.[ch]pp"))
C_HEADERS = {"stddef.h", "stdint.h", "stdlib.h", "string.h", "math.h", "float.h"}
INTRINSICS = {"intrin.h", "immintrin.h", "nmmintrin.h", "wmmintrin.h", "arm_acle.h", "arm_neon.h"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_topic_files_include_no_code_that_instruction_sets_would_share(path):
    """The linker keeps one copy of an inline function: it might be the one with AVX-512."""
    included = set(re.findall(r"#include <([^>]+)>", path.read_text(encoding="utf-8")))
    assert included <= C_HEADERS | INTRINSICS


def test_faults_have_one_number_in_both_languages():
    header = (NATIVE / "src" / "kernel.hpp").read_text(encoding="utf-8")
    numbers = {name: int(number) for name, number in re.findall(r"k(\w+) = (\d+),", header)}
    words = {fault.name.title().replace("_", ""): fault.value for fault in Fault}
    assert numbers == words


def topics_of(package: ModuleType) -> dict[str, str]:
    return dict(sys.modules[f"{package.__name__}.topics"].KERNELS)


def implementation(package: ModuleType, name: str) -> ModuleType:
    return __import__(f"{package.__name__}.{name}", fromlist=["_"])


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_topic_has_one_name_in_all_folders(folder):
    """A topic is a module of both packages and a native file; a header has a topic's types."""
    package = FOLDERS[folder]
    root, topics = Path(package.__file__).parent, topics_of(package)
    native = {path.stem for path in (NATIVE / folder).rglob("*.cpp")}
    assert native == set(topics)
    for name in ("native", "reference"):
        modules = {path.stem for path in (root / name).glob("*.py")}
        assert modules - {"__init__", "allocate", "characters"} == set(topics), name
    shared = {path.stem for path in root.glob("*.py")}
    general = {"__init__", "arguments", "faults", "offsets", "recycled", "select", "topics"}
    assert shared - general <= set(topics)


@pytest.mark.parametrize("package", FOLDERS.values(), ids=FOLDERS)
def test_both_implementations_offer_the_same_kernels(package):
    native, reference = (implementation(package, name) for name in ("native", "reference"))
    ours, defined = (bind(each.__name__, topics_of(package)) for each in (native, reference))
    assert ours.keys() == defined.keys()
    assert not any(ours[name] is defined[name] for name in ours)


@pytest.mark.parametrize("package", FOLDERS.values(), ids=FOLDERS)
def test_every_native_kernel_is_listed(package):
    """Public functions of a topic are kernels, so that all are compared."""
    native, topics = implementation(package, "native"), topics_of(package)
    public = {
        name
        for topic in topics
        for name, value in vars(sys.modules[f"{native.__name__}.{topic}"]).items()
        if inspect.isfunction(value) and value.__module__ == f"{native.__name__}.{topic}"
        if not name.startswith("_")
    }
    assert public - set(bind(native.__name__, topics)) <= {"picked_ranges"}


@pytest.mark.parametrize(
    ("package", "name"),
    [
        (package, name)
        for package in FOLDERS.values()
        for names in topics_of(package).values()
        for name in names.split()
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_both_implementations_have_the_same_signature(package, name):
    ours, defined = (
        getattr(implementation(package, each), name) for each in ("native", "reference")
    )
    assert str(inspect.signature(ours)) == str(inspect.signature(defined))


PARAMETERS_MAX = 8


def test_kernels_have_at_most_eight_parameters():
    """Related parameters are structs: tuples in Python, `parameters.hpp` in C++."""
    found = {}
    for path in [*NATIVE.rglob("*.def")]:
        for name, parameters in re.findall(r"KERNEL\((\w+),([^)]*)\)", path.read_text("utf-8")):
            found[name] = len(parameters.split(","))
    assert len(found) > 100
    assert {name: count for name, count in found.items() if count > PARAMETERS_MAX} == {}
    for package in FOLDERS.values():
        for name, kernel in bind(f"{package.__name__}.native", topics_of(package)).items():
            assert len(inspect.signature(kernel).parameters) <= PARAMETERS_MAX, name
