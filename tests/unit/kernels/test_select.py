"""The kernels of a process depend on the environment and the installed modules."""

import os
import subprocess
import sys

import numpy as np
import pytest

from lancelet import kernels
from lancelet.kernels import _native, select

# Hides the native module, as on a machine that it was not built for.
HIDE = "import sys; sys.modules['lancelet.kernels._native'] = None; "
REPORT = "import lancelet.kernels as k; print(k.backend(), k.unpack_chunks.__module__)"


def run(code, choice=None):
    environment = {name: value for name, value in os.environ.items() if name != "LANCELET_KERNELS"}
    if choice is not None:
        environment["LANCELET_KERNELS"] = choice
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_the_best_instruction_set_is_used():
    result = run(REPORT)
    assert result.stdout.split() == [
        kernels.instruction_sets()[-1],
        "lancelet.kernels.native.bitpack",
    ]
    assert result.stderr == ""


@pytest.mark.parametrize("choice", kernels.instruction_sets())
def test_the_environment_chooses_an_instruction_set(choice):
    assert run(REPORT, choice).stdout.split()[0] == choice


def test_the_environment_chooses_the_definitions():
    result = run(REPORT, "reference")
    assert result.stdout.split() == ["reference", "lancelet.kernels.reference.bitpack"]
    assert result.stderr == ""


def test_without_the_native_module_the_definitions_work_with_one_warning():
    result = run(HIDE + REPORT)
    assert result.stdout.split() == ["reference", "lancelet.kernels.reference.bitpack"]
    assert result.stderr.count("SlowKernelsWarning") == 1


@pytest.mark.parametrize(
    ("code", "choice", "error"),
    [
        (REPORT, "x86-64-v9", "InvalidInputError"),
        (HIDE + REPORT, "native", "UnsupportedError"),
        (HIDE + REPORT, "x86-64-v2", "InvalidInputError"),
    ],
)
def test_a_choice_that_cannot_be_met_is_an_error(code, choice, error):
    result = run(code, choice)
    assert result.returncode == 1
    assert error in result.stderr


def test_an_instruction_set_must_be_there():
    with pytest.raises(ValueError, match="cannot run"):
        select.use_instruction_set("x86-64-v9")


def test_the_module_refuses_arrays_that_it_would_have_to_convert():
    out = np.zeros(3, np.uint8)
    for wrong in (np.zeros(3, np.int16), np.zeros(6, np.uint8)[::2], np.zeros((3, 1), np.uint8)):
        with pytest.raises(TypeError):
            _native.bit_widths(wrong, 1, 8, out)
    read_only = out.copy()
    read_only.flags.writeable = False
    with pytest.raises(TypeError):
        _native.bit_widths(out, 1, 8, read_only)


def test_the_module_refuses_unaligned_integers():
    unaligned = np.frombuffer(bytearray(17), np.uint8)[1:].view(np.int64)
    with pytest.raises(ValueError, match="aligned"):
        _native.take_fixed(np.zeros(8, np.uint8), unaligned, 1, np.zeros(2, np.uint8))
