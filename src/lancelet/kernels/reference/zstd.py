"""Zstandard by the library, which is the definition."""

from lancelet.kernels.zstd import zstd_code_chunks, zstd_decompress_chunks

__all__ = ["zstd_code_chunks", "zstd_decompress_chunks"]
