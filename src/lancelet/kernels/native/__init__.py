"""Kernels by the native module: the same names and signatures as `lancelet.kernels.reference`."""

from lancelet.kernels.native.automaton import read_automaton, write_automaton
from lancelet.kernels.native.bitpack import (
    bit_widths,
    pack_blocks,
    pack_chunks,
    pick_packed,
    unpack_blocks,
    unpack_chunks,
)
from lancelet.kernels.native.checksum import (
    crc32c,
    crc32c_blocks,
    crc32c_slices,
    crc32c_verify,
)
from lancelet.kernels.native.chunks import locate_rows, place_chunks, split_chunks
from lancelet.kernels.native.copies import (
    copy_slices,
    join_slices,
    place_slices,
    take_fixed,
    take_variable,
)
from lancelet.kernels.native.dictionary import look_up_fixed, look_up_variable
from lancelet.kernels.native.few_rows import prepare_few, take_few
from lancelet.kernels.native.fsst import fsst_decode, fsst_decode_chunks, fsst_encode, pick_fsst
from lancelet.kernels.native.fsst_training import fsst_train
from lancelet.kernels.native.full_zip import unzip_fixed, unzip_variable, zip_fixed, zip_variable
from lancelet.kernels.native.graphs import build_graph, edge_distances, search_graph
from lancelet.kernels.native.hashing import xxh64_many, xxh64_words
from lancelet.kernels.native.jsonb import decode_jsonb, encode_jsonb
from lancelet.kernels.native.key_match import bucket_rows, match_words, mix_words
from lancelet.kernels.native.levels import (
    count_slots,
    expand_list,
    pack_validity,
    rank_slots,
    unpack_levels,
    unravel_list,
)
from lancelet.kernels.native.lz4 import lz4_compress, lz4_compress_chunks, lz4_decompress_chunks
from lancelet.kernels.native.map_file import forget_pages, map_file
from lancelet.kernels.native.partitions import admit_rows, scan_partitions
from lancelet.kernels.native.postings import (
    decode_postings,
    decode_streams,
    encode_impacts,
    encode_postings,
    encode_streams,
)
from lancelet.kernels.native.protobuf import (
    find_parts,
    find_parts_in,
    join_pages,
    read_packed,
    read_varints,
)
from lancelet.kernels.native.read_ahead import read_ahead
from lancelet.kernels.native.rle import count_runs, rle_decode_chunks, rle_encode_chunks
from lancelet.kernels.native.row_levels import chunks_of_rows, take_row_levels
from lancelet.kernels.native.segments import find_segments
from lancelet.kernels.native.sort_words import sort_words
from lancelet.kernels.native.split_block import ask_filters, fill_filters
from lancelet.kernels.native.split_bytes import join_bytes_chunks, split_bytes_chunks
from lancelet.kernels.native.substrings import (
    find_suffixes,
    locate_suffixes,
    order_suffixes,
    rank_bits,
    unwind_text,
)
from lancelet.kernels.native.survey import (
    index_strings,
    index_words,
    survey_strings,
    survey_words,
)
from lancelet.kernels.native.text_search import search_phrase, search_postings
from lancelet.kernels.native.variable import concat_variable, cut_variable, pick_variable
from lancelet.kernels.native.vectors import (
    nearest_vectors,
    nearest_words,
    round_rows,
    scaled_codes,
    slice_distances,
    sum_by_label,
    turn_rows,
    vector_distances,
)
from lancelet.kernels.native.words import counting_order, find_words, number_words
from lancelet.kernels.native.zones import zone_min_max, zone_min_max_strings
from lancelet.kernels.native.zstd import zstd_code_chunks, zstd_decompress_chunks

__all__ = [
    "admit_rows",
    "ask_filters",
    "bit_widths",
    "bucket_rows",
    "build_graph",
    "chunks_of_rows",
    "concat_variable",
    "copy_slices",
    "count_runs",
    "count_slots",
    "counting_order",
    "crc32c",
    "crc32c_blocks",
    "crc32c_slices",
    "crc32c_verify",
    "cut_variable",
    "decode_jsonb",
    "decode_postings",
    "decode_streams",
    "edge_distances",
    "encode_impacts",
    "encode_jsonb",
    "encode_postings",
    "encode_streams",
    "expand_list",
    "fill_filters",
    "find_parts",
    "find_parts_in",
    "find_segments",
    "find_suffixes",
    "find_words",
    "forget_pages",
    "fsst_decode",
    "fsst_decode_chunks",
    "fsst_encode",
    "fsst_train",
    "index_strings",
    "index_words",
    "join_bytes_chunks",
    "join_pages",
    "join_slices",
    "locate_rows",
    "locate_suffixes",
    "look_up_fixed",
    "look_up_variable",
    "lz4_compress",
    "lz4_compress_chunks",
    "lz4_decompress_chunks",
    "map_file",
    "match_words",
    "mix_words",
    "nearest_vectors",
    "nearest_words",
    "number_words",
    "order_suffixes",
    "pack_blocks",
    "pack_chunks",
    "pack_validity",
    "pick_fsst",
    "pick_packed",
    "pick_variable",
    "place_chunks",
    "place_slices",
    "prepare_few",
    "rank_bits",
    "rank_slots",
    "read_ahead",
    "read_automaton",
    "read_packed",
    "read_varints",
    "rle_decode_chunks",
    "rle_encode_chunks",
    "round_rows",
    "scaled_codes",
    "scan_partitions",
    "search_graph",
    "search_phrase",
    "search_postings",
    "slice_distances",
    "sort_words",
    "split_bytes_chunks",
    "split_chunks",
    "sum_by_label",
    "survey_strings",
    "survey_words",
    "take_few",
    "take_fixed",
    "take_row_levels",
    "take_variable",
    "turn_rows",
    "unpack_blocks",
    "unpack_chunks",
    "unpack_levels",
    "unravel_list",
    "unwind_text",
    "unzip_fixed",
    "unzip_variable",
    "vector_distances",
    "write_automaton",
    "xxh64_many",
    "xxh64_words",
    "zip_fixed",
    "zip_variable",
    "zone_min_max",
    "zone_min_max_strings",
    "zstd_code_chunks",
    "zstd_decompress_chunks",
]
