// Plans of columns and pages, by which `take_planned` reads rows.
//
// module/column_plan.hpp creates, validates and owns all of this: arrays are as long as the counts
// next to them. Types without code are shared by all instruction sets.
#pragma once

#include "kernel.hpp"

namespace lancelet::plan {

// Arrow representation of a column: fixed-width values, bits, or strings with 32-bit or 64-bit
// offsets.
enum Form : int64_t { kFixed = 0, kBits = 1, kStrings32 = 2, kStrings64 = 3 };

// Page layouts; `kUnknown` pages are left to the generic reader.
enum Layout : int64_t { kUnknown = 0, kChunks = 1, kItems = 2, kZippedStrings = 3, kConstant = 4 };

enum Codec : int64_t { kFlat = 0, kInline = 1, kSplit = 2, kRuns = 3, kVariable = 4, kFsst = 5 };

enum Compression : int64_t { kPlain = 0, kLz4 = 1, kZstd = 2 };

constexpr int64_t kCodes = 256;  // in a symbol table

// A symbol table; without one, `symbols` is null.
struct Symbols {
  const uint64_t* symbols = nullptr;
  const uint8_t* lengths = nullptr;
};

constexpr int64_t kSlot = 32;

// Dictionary items: values of `width` bytes, or strings with validated offsets and characters.
struct Items {
  int64_t count = -1;  // -1 without a dictionary
  int64_t width = 0;
  const uint8_t* values = nullptr;
  const int64_t* offsets = nullptr;
  const uint8_t* bytes = nullptr;
  int64_t num_bytes = 0;
  const uint8_t* slots = nullptr;  // short strings, each padded to `kSlot` bytes; null without
  const uint8_t* sizes = nullptr;  // of the strings in slots
  int64_t longest = 0;
};

// A nesting layer; encodings/levels/layers.py defines its levels.
struct Layer {
  int64_t is_list, null_def, empty_def, inner_def_max, slot_def_max;
};

constexpr int64_t kLayersMax = 8;

// Pseudo bit width of run-length encoded levels.
constexpr int64_t kLevelRuns = 17;

// The layers of a page from the values outwards, and its level widths; 0 for absent levels.
struct Nesting {
  int64_t layers = 0, rep_max = 0, def_max = 0, rep_bits = 0, def_bits = 0;
  Layer each[kLayersMax];
};

struct Page {
  Layout layout = kUnknown;
  int64_t rows = 0;
  int64_t has_definition = 0;
  int64_t def_bits = 0;  // width of definition levels in chunks
  int64_t compression = kPlain;
  int64_t codec = kFlat;
  int64_t bits = 0;  // of a value, or of an offset
  Symbols symbols;

  // Chunks: position, size, number of values, and index of the first value.
  int64_t values = 0;
  int64_t chunks = 0;
  const int64_t* first_value = nullptr;
  const int64_t* chunk_position = nullptr;
  const int64_t* chunk_size = nullptr;
  const int64_t* chunk_values = nullptr;
  int64_t size_bytes = 2;
  Items items;
  const Nesting* nesting = nullptr;  // null for pages of plain values
  const int64_t* begun = nullptr;    // for lists: rows begun and ended before each chunk
  const int64_t* ended = nullptr;

  // Fixed-width items including definition, or zipped strings with a row index; or the value of a
  // constant page, null if it has none.
  int64_t position = 0;
  int64_t size = 0;
  int64_t item_bytes = 0;
  int64_t index_position = 0;
  int64_t index_width = 0;
  int64_t length_bytes = 0;
  const uint8_t* value = nullptr;
};

// A column; page i has the rows from `first_row[i]` on.
struct Column {
  int64_t form = kFixed;
  int64_t width = 0;
  int64_t is_text = 0;
  int64_t pages = 0;
  const int64_t* first_row = nullptr;
  int64_t layers = 1;
  int64_t large = 0;  // a bit per layer, set for lists with 64-bit offsets
};

// Requested rows: their numbers in any order, or without numbers a range from `first` on.
struct Rows {
  int64_t first;
  int64_t count;
  const int64_t* numbers;
};

// Consecutive requests of rows in one page, which begins at `first_row` of its column.
struct PageRows {
  const Page* page;
  int64_t first_row;
  int64_t start;
  int64_t count;
};

// The pages of all requested rows of a column.
struct ColumnRows {
  const Column* column;
  const PageRows* pages;
  int64_t num_pages;
};

// Ranges of a file in the order of `planned_ranges`, and their positions in the fetched bytes.
struct Fetched {
  ConstInts position;
  ConstInts size;
  ConstInts source;
};

// A mapped file (lancelet/kernels/plans.py), or fetched ranges of a file.
struct File {
  ConstBytes bytes;
  Bytes prefetched;
  ConstInts blocks;
  Span<const uint32_t> sums;
  Bytes verified;
  const Fetched* fetched = nullptr;
};

// Byte ranges of a file; the caller frees the arrays.
struct Ranges {
  int64_t* position = nullptr;
  int64_t* size = nullptr;
  int64_t count = 0;
};

// Result of a column: a fault or 0, the null count, the positions of validity, values or offsets,
// and string bytes, and their sizes.
struct ColumnOutput {
  int64_t fault, nulls, validity, values, strings, string_bytes;
  int64_t count;   // of values
  int64_t layers;  // position of the enclosing layers
};

// Result of an enclosing layer: its length and null count, and the positions of validity and
// offsets, or -1.
struct LayerOutput {
  int64_t count, nulls, validity, offsets;
};

// Totals: number and bytes of row ranges and of page heads, bytes added to plans, and bytes of the
// result.
struct Taken {
  int64_t ranges, bytes, head_ranges, head_bytes, bytes_added, used;
};

}  // namespace lancelet::plan
