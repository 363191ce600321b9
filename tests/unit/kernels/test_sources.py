"""Rules of the native sources that no compiler checks."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from lancelet.kernels import native, reference, topics
from lancelet.kernels.faults import Fault

SOURCES = Path(__file__).parents[3] / "native" / "src"
TOPICS = sorted([*SOURCES.glob("*.cpp"), *SOURCES.glob("*.hpp")])
C_HEADERS = {"stddef.h", "stdint.h", "stdlib.h", "string.h", "math.h", "float.h"}
INTRINSICS = {"intrin.h", "immintrin.h", "nmmintrin.h", "wmmintrin.h", "arm_acle.h", "arm_neon.h"}


@pytest.mark.parametrize("path", TOPICS, ids=lambda path: path.name)
def test_topic_files_include_no_code_that_instruction_sets_would_share(path):
    """The linker keeps one copy of an inline function: it might be the one with AVX-512."""
    included = set(re.findall(r"#include <([^>]+)>", path.read_text(encoding="utf-8")))
    assert included <= C_HEADERS | INTRINSICS


def test_faults_have_one_number_in_both_languages():
    header = (SOURCES / "kernel.hpp").read_text(encoding="utf-8")
    numbers = {name: int(number) for name, number in re.findall(r"k(\w+) = (\d+),", header)}
    words = {fault.name.title().replace("_", ""): fault.value for fault in Fault}
    assert numbers == words


def test_both_implementations_offer_the_same_kernels():
    ours, defined = (topics.bind(each.__name__) for each in (native, reference))
    assert ours.keys() == defined.keys()
    assert not any(ours[name] is defined[name] for name in ours)


def test_every_native_kernel_is_listed():
    """Public functions of a topic are kernels, so that all are compared."""
    public = {
        name
        for topic in topics.KERNELS
        for name, value in vars(sys.modules[f"{native.__name__}.{topic}"]).items()
        if inspect.isfunction(value) and value.__module__ == f"{native.__name__}.{topic}"
        if not name.startswith("_")
    }
    assert public - set(topics.bind(native.__name__)) <= {"picked_ranges"}


@pytest.mark.parametrize("name", " ".join(topics.KERNELS.values()).split())
def test_both_implementations_have_the_same_signature(name):
    ours, defined = getattr(native, name), getattr(reference, name)
    assert str(inspect.signature(ours)) == str(inspect.signature(defined))
