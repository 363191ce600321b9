// Structs of parameters. A kernel has at most eight parameters; Python passes a struct as a tuple.
//
// `Members` lists the types of a struct, by which the module converts a tuple (module.cpp).
#pragma once

#include "span.hpp"

namespace lancelet::args {

template <class... Types>
struct List {};

// Byte ranges of a source.
struct Slices {
  using Members = List<ConstBytes, ConstInts, ConstInts>;
  ConstBytes source;
  ConstInts position;
  ConstInts size;
};

// Strings with offsets of 4 or 8 bytes.
struct Strings {
  using Members = List<ConstBytes, int64_t, ConstBytes>;
  ConstBytes offsets;
  int64_t offset_bytes;
  ConstBytes data;
};

// FSST symbols and their lengths, and the table of each chunk or slice.
struct SymbolTables {
  using Members = List<Span<const uint64_t>, ConstBytes, ConstInts>;
  Span<const uint64_t> symbols;
  ConstBytes lengths;
  ConstInts table_indices;
};

// The layout of full-zip rows.
struct ControlWords {
  using Members = List<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>;
  int64_t control_bytes;
  int64_t bits_rep;
  int64_t bits_def;
  int64_t visible_max;
  int64_t value_bytes;
  int64_t length_bytes;
};

// The first byte of the chunks of each page, and the bytes of all.
struct ChunkData {
  using Members = List<ConstInts, ConstInts>;
  ConstInts data_position;
  ConstInts data_bytes;
};

// The buffers of pages; page i has those from `bounds[i]` on.
struct PageBuffers {
  using Members = List<ConstInts, ConstInts, ConstInts>;
  ConstInts bounds;
  ConstInts position;
  ConstInts size;
};

// The meaning of the levels of a list.
struct ListLevels {
  using Members = List<int64_t, int64_t, int64_t, int64_t>;
  int64_t list_level;
  int64_t item_max;
  int64_t slot_max;
  int64_t empty_level;
};

// Values of a kind and width.
struct ZoneValues {
  using Members = List<ConstBytes, int64_t, int64_t>;
  ConstBytes values;
  int64_t kind;
  int64_t value_bytes;
};

// Pages of values: their buffers, and the columns of each (pages.cpp).
struct PageSource {
  using Members = List<ConstBytes, ConstBytes, ConstBytes, ConstInts>;
  ConstBytes values;
  ConstBytes offsets;
  ConstBytes nulls;
  ConstInts columns;
};

// What all pages of a call share. `constants` selects the detection of pages of one value: none (0),
// short numbers (1), all (2).
struct PageShape {
  using Members = List<int64_t, int64_t, int64_t>;
  int64_t rows;
  int64_t has_large_chunks;
  int64_t constants;
};

// The constants of the choice of encodings: `PageRules` in Python.
struct PageRules {
  using Members = List<
    int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
    int64_t, int64_t, double, double, double, double, double, double, double, double, double,
    double, double, double, double, double, double, double, double, double, double, double,
    double, double, double, double, double, double, double, double,
    double>;
  int64_t few_rows;
  int64_t few_numbers_bytes;
  int64_t few_texts_bytes;
  int64_t tiny_bytes;
  int64_t wide_bytes;
  int64_t long_bytes;
  int64_t long_bytes_before_2_2;
  int64_t inline_bytes_max;
  int64_t chunk_values_max;
  int64_t chunk_bytes_aim;
  int64_t small_chunk_bytes;
  int64_t large_chunk_bytes;
  int64_t lz4_bytes_aim;
  int64_t coded_bytes_aim;
  int64_t chunk_frame_bytes;
  int64_t part_frame_bytes;
  int64_t dictionary_rows_min;
  int64_t dictionary_items_max;
  int64_t compress_items_from_bytes;
  int64_t compress_from_bytes;
  int64_t sample_runs;
  int64_t entropy_values;
  double sample_bytes;
  double sample_bytes_max;
  double sample_values_few;
  double sample_values_max;
  double sample_values_min;
  double byte_ns;
  double lookup_ns;
  double plain_decode_ns;
  double run_decode_ns;
  double lz4_byte_ns;
  double lz4_saved_ns;
  double lz4_split_ns;
  double coded_byte_ns;
  double coded_saved_ns;
  double coded_table_ns;
  double zstd_byte_ns;
  double zstd_stored_ns;
  double zstd_split_byte_ns;
  double zstd_split_stored_ns;
  double repeated_min;
  double indices_max;
  double obvious;
  double dictionary_ratio_max;
  double repetition;
  double lz4_saving_min;
  double coded_saving_min;
  double library_saving_min;
  double lz4_copy_bytes;
  double zstd_per_lz4_min;
};

}  // namespace lancelet::args
