"""Kernels until they are exported."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Slices
from lancelet.errors import CorruptDataError
from lancelet.kernels import *  # noqa: F403
from lancelet.kernels.faults import OffsetOverflowError  # noqa: F401
from lancelet.kernels.reference.bitpack import *  # noqa: F403
from lancelet.kernels.reference.copies import *  # noqa: F403
from lancelet.kernels.reference.fsst import *  # noqa: F403
from lancelet.kernels.reference.fsst_training import *  # noqa: F403
from lancelet.kernels.reference.lz4 import *  # noqa: F403
from lancelet.kernels.reference.rle import *  # noqa: F403
from lancelet.kernels.reference.split_bytes import *  # noqa: F403
from lancelet.kernels.reference.variable import *  # noqa: F403


def to_slices(parts):
    sizes = np.array([len(p) for p in parts], np.int64)
    arrays = [np.frombuffer(p, np.uint8) for p in parts]
    source = np.concatenate(arrays) if arrays else np.empty(0, np.uint8)
    return Slices(source, np.cumsum(sizes) - sizes, sizes)


def zstd_compress_chunks(slices, level):
    import zstandard

    c = zstandard.ZstdCompressor(level=level)
    return to_slices(
        [
            len(b).to_bytes(8, "little") + c.compress(b.tobytes())
            for b in map(slices.slice_bytes, range(len(slices)))
        ]
    )


def zstd_decompress_chunks(slices):
    import zstandard

    d, out = zstandard.ZstdDecompressor(), []
    for i in range(len(slices)):
        b = slices.slice_bytes(i).tobytes()
        if not b:
            out.append(b"")
            continue
        n = int.from_bytes(b[:8], "little")
        bare = len(b) < 8 or (b[:4] == b"\x28\xb5\x2f\xfd" and not b[4] & 16)
        if not bare and n > 50000 * len(b) + 1000:
            raise CorruptDataError("bad zstd length", chunk=i)
        try:
            if bare:
                out.append(d.decompressobj().decompress(b))
            else:
                x = d.decompress(b[8:], max_output_size=n) if n else b""
                if len(x) != n:
                    raise CorruptDataError("bad zstd length", chunk=i)
                out.append(x)
        except zstandard.ZstdError as e:
            raise CorruptDataError("bad zstd stream", chunk=i) from e
    return to_slices(out)
