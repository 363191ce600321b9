"""The registry of kernels of indices; see `lancelet.kernels.topics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KERNELS: Final[Mapping[str, str]] = {
    "codes": "pq_encode quantize_rows rotate_rows scaled_codes",
    "fst": "read_fst write_fst",
    "graphs": "build_graph edge_distances search_graph",
    "partitions": "prefilter_rows scan_partitions",
    "postings": "decode_postings decode_streams encode_impacts encode_postings encode_streams",
    "segments": "find_segments",
    "substrings": "find_suffixes locate_suffixes order_suffixes rank_bits unwind_text",
    "text_search": "search_phrase search_postings",
    "tokens": "assign_token_ids counting_order find_tokens sort_pairs",
    "vectors": "nearest_vectors slice_distances sum_by_label vector_distances",
}
"""Kernel names by topic module."""
