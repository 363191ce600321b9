"""Coverage-guided fuzzing of all kinds of files of a table: indices, refs, logs, and so on.

A file of one kind is replaced, with valid checksums and sizes around it, as in
`tests/property/test_hostile_bytes.py`, and operations that read it are run. Each returns a value or
raises an error of this library, within limits of memory and CPU time.

    python fuzz/fuzz_table.py manifest -max_total_time=60 NEW_FINDINGS_FOLDER

An input is the number of the file that is changed, as one byte, and the file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["lancelet"]):
    import lancelet
    from lancelet.errors import LanceletError
    from lancelet.io.cache import CACHE
    from lancelet.io.memory import MemoryStore
    from tests.kit.mutations import mutate_bytes

_TESTS = Path(__file__).resolve().parents[1] / "tests" / "property" / "test_hostile_bytes.py"
_SPEC = importlib.util.spec_from_file_location("hostile", _TESTS)
assert _SPEC is not None
assert _SPEC.loader is not None
HOSTILE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(HOSTILE)

CPU_SECONDS = 10
"""The CPU seconds of an operation; undamaged files take some hundredths."""
GROWN_BYTES = 192 << 20
"""The memory that an input may add to the process, besides a multiple of the bytes read."""
ASKED = {
    "data file": ("rows", "some", "words"),
    "index": ("key", "range", "runs", "labels", "words", "text", "nearest"),
    "transaction": ("log",),
    "manifest": ("rows", "versions", "check"),
    "deletions": ("rows", "count", "some"),
    "tag": ("tag",),
    "branch": ("branch",),
}
"""The operations by the prefix of the name of a table; for others those of a shard."""
COLUMNS = {"k": ("key", "range"), "runs": ("runs",), "l": ("labels",), "s": ("words", "text")}


class Target:
    """A table, and which of its files are changed."""

    def __init__(self, name: str) -> None:
        """Write the table."""
        make, pattern, self.mutations = HOSTILE.TARGETS[name]
        folder = Path(tempfile.mkdtemp()) / "t"
        make(folder)
        self.objects = {
            str(file.relative_to(folder)): file.read_bytes()
            for file in folder.rglob("*")
            if file.is_file()
        }
        found = {str(file.relative_to(folder)) for file in folder.glob(pattern)}
        self.files = sorted(found & self.objects.keys())
        shutil.rmtree(folder.parent)
        self.bytes = sum(map(len, self.objects.values()))
        asked = next((ASKED[each] for each in ASKED if name.startswith(each)), ("shard",))
        kind = name.removeprefix("index ")
        for column, kinds in HOSTILE.SCALAR_KINDS.items():
            if name.startswith("index") and kind in kinds:
                asked = (*COLUMNS[column], "check")
        if kind.startswith("IVF"):
            asked = ("nearest", "check")
        self.questions = [HOSTILE.QUESTIONS[each] for each in asked]

    def seeds(self) -> list[bytes]:
        """Return the inputs that change nothing."""
        return [bytes([n]) + self.objects[file] for n, file in enumerate(self.files)]

    def check(self, data: bytes) -> None:
        """Run all operations on the table with a replaced file."""
        if not data:
            return
        MemoryStore.reset("fuzz")
        store = MemoryStore("fuzz")
        for path, content in self.objects.items():
            store.put(f"t/{path}", content)
        store.put(f"t/{self.files[data[0] % len(self.files)]}", data[1:])
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for question in self.questions:
            started = time.process_time()
            with contextlib.suppress(LanceletError):
                question(lancelet.dataset("memory://fuzz/t"))
            took = time.process_time() - started
            assert took < CPU_SECONDS, f"an answer took {took:.1f} s of processor time"
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        allowed = GROWN_BYTES + HOSTILE.BYTES_PER_BYTE * (self.bytes + len(data))
        assert grown < allowed, f"the process grew by {grown >> 20} MB"

    def mutated(self, data: bytes, max_size: int, seed: int) -> bytes:
        """Return an input with something else in its file."""
        draw = random.Random(seed)
        if len(data) < 2:
            return draw.choice(self.seeds())
        try:
            changed = draw.choice(self.mutations)(data[1:], draw)
        except Exception:  # noqa: BLE001 - it is no whole file any more, which shows in many ways
            changed = mutate_bytes(data[1:], draw)
        return (data[:1] + changed)[:max_size]


def main() -> None:
    """Fuzz one kind of file."""
    name = sys.argv.pop(1)
    target = Target(name)
    CACHE.resize(0)
    warnings.simplefilter("ignore")
    corpus = next((Path(each) for each in sys.argv[1:] if not each.startswith("-")), None)
    if corpus is not None:
        corpus.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(target.seeds()):
            (corpus / f"whole-{number}").write_bytes(data)
    for data in target.seeds():
        target.check(data)  # imports and first uses are no cost of an input
    arguments = [*sys.argv, f"-max_len={2 * max(map(len, target.seeds()))}"]
    atheris.Setup(arguments, target.check, custom_mutator=target.mutated)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
