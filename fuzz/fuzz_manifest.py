"""Coverage-guided fuzzing of manifest files.

Parsing any bytes returns a manifest with its fragments, indices and transaction, or raises
`CorruptDataError` or `UnsupportedError`.

    python fuzz/fuzz_manifest.py -max_total_time=60 NEW_FINDINGS_FOLDER fuzz/corpus/manifest
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["lancelet"]):
    import numpy as np

    from lancelet.buffers import ByteSlices, run
    from lancelet.errors import CorruptDataError, UnsupportedError
    from lancelet.format.manifest_file import (
        parse_manifest_file,
        read_indices,
        read_transaction,
        write_manifest_file,
    )
    from lancelet.format.trailer import with_trailer


def check_one_input(data: bytes) -> None:
    """Test one input: a manifest that can be parsed can be written and parsed again."""
    source = np.frombuffer(data, np.uint8)

    def fetch(wanted):
        return ByteSlices(source, wanted.position, wanted.size)

    try:
        stored = parse_manifest_file(source)
        fragments = list(stored.manifest.fragments)
        indices = run(read_indices(stored), fetch)
        transaction = run(read_transaction(stored), fetch)
    except (CorruptDataError, UnsupportedError):
        return
    # As commits do: behind a seal that the bytes brought as an unknown field there is ours.
    section = None if transaction is None else with_trailer(transaction.render())
    again, _ = write_manifest_file(stored.manifest, indices, section)
    assert list(parse_manifest_file(np.frombuffer(again, np.uint8)).manifest.fragments) == fragments


if __name__ == "__main__":
    atheris.Setup(sys.argv, check_one_input)
    atheris.Fuzz()
