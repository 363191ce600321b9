"""Zstandard by the library, which is the definition."""

from lancelet.kernels.zstd import zstd_decompress_chunks, zstd_encode_prefixes

__all__ = ["zstd_decompress_chunks", "zstd_encode_prefixes"]
