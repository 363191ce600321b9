"""Maps of files have the bytes of the file while they are referenced, without open handles."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from lancelet import kernels
from lancelet.kernels import reference
from tests.kit.mapped_files import resident_bytes

BACKENDS = [reference.map_file, kernels.map_file]


def _mapped(map_file, path):
    with path.open("rb") as file:
        return map_file(file.fileno(), path.stat().st_size)


@pytest.mark.parametrize("map_file", BACKENDS)
@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 100_000])
def test_a_map_has_the_bytes_of_its_file(tmp_path, map_file, size):
    path = tmp_path / "a"
    path.write_bytes(os.urandom(size))
    array = _mapped(map_file, path)
    assert array.tobytes() == path.read_bytes()
    assert not array.flags.writeable


@pytest.mark.parametrize("map_file", BACKENDS)
def test_a_part_of_a_map_outlives_the_file_and_the_rest(tmp_path, map_file):
    path = tmp_path / "a"
    path.write_bytes(bytes(range(256)) * 64)
    part = _mapped(map_file, path)[5000:5010]
    path.unlink()
    gc.collect()
    assert part.tobytes() == (bytes(range(256)) * 64)[5000:5010]


@pytest.mark.parametrize("map_file", BACKENDS)
def test_a_map_goes_with_its_last_array(tmp_path, map_file):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10_000)
    part = _mapped(map_file, path)[9000:]
    assert str(path) in Path("/proc/self/maps").read_text()
    del part
    assert str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("map_file", BACKENDS)
def test_input_that_cannot_be_mapped_is_an_error_of_the_system(tmp_path, map_file):
    handle = os.open(tmp_path, os.O_RDONLY)
    os.close(handle)
    with pytest.raises(OSError, match="Bad file"):
        map_file(handle, 10)


def test_maps_keep_no_file_open(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    maps = [_mapped(kernels.map_file, path) for _ in range(50)]
    extra = len(list(Path("/proc/self/fd").iterdir())) - before
    assert extra == (0 if kernels.NATIVE else len(maps))


@pytest.mark.parametrize("kind", [reference, kernels], ids=["reference", "native"])
def test_forgotten_pages_are_not_of_the_process_and_still_there(tmp_path, kind):
    path = tmp_path / "a"
    path.write_bytes(os.urandom(1 << 22))
    array = _mapped(kind.map_file, path)
    part = array[5000:]
    before = array.tobytes()
    assert resident_bytes(path) == 1 << 22
    kind.release_pages(array)
    assert resident_bytes(path) == 0
    assert array.tobytes() == before
    assert part.tobytes() == before[5000:]


@pytest.mark.parametrize("kind", [reference, kernels], ids=["reference", "native"])
def test_memory_that_is_no_map_is_left_alone(kind):
    array = np.ones(1 << 22, np.uint8)
    kind.release_pages(array)
    assert array.all()
