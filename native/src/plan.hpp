// What is known of columns and their pages, by which `take_planned` reads single rows of them.
//
// module/column_plan.hpp makes and owns all of it, and has checked it: arrays are as long as the
// numbers beside them say. Types without code are the same for all instruction sets.
#pragma once

#include "kernel.hpp"

namespace lancelet::plan {

// What a column becomes: values of a width, bits, or strings with offsets of 32 or 64 bits.
enum Form : int64_t { kFixed = 0, kBits = 1, kStrings32 = 2, kStrings64 = 3 };

// How a page is laid out; of one that is `kUnknown`, nothing is known that a kernel could use.
enum Layout : int64_t { kUnknown = 0, kChunks = 1, kItems = 2, kZippedStrings = 3, kConstant = 4 };

enum Codec : int64_t { kFlat = 0, kInline = 1, kSplit = 2, kRuns = 3, kVariable = 4, kFsst = 5 };

enum Compression : int64_t { kPlain = 0, kLz4 = 1, kZstd = 2 };

constexpr int64_t kCodes = 256;  // of a table of symbols

// A table of symbols of at most eight bytes each; none where `symbols` is null.
struct Symbols {
  const uint64_t* symbols = nullptr;
  const uint8_t* lengths = nullptr;
};

// The items of a dictionary: values of a fixed width, or strings with offsets of `width` bytes.
struct Items {
  int64_t count = -1;  // -1 where there is no dictionary
  int64_t width = 0;
  const uint8_t* values = nullptr;  // or offsets
  const uint8_t* bytes = nullptr;
  int64_t num_bytes = 0;
};

// One layer of nesting; what its levels are is said in encodings/levels/layers.py.
struct Layer {
  int64_t is_list, null_def, empty_def, inner_def_max, slot_def_max;
};

constexpr int64_t kLayersMax = 8;

// What stands for levels that are runs where the width of packed ones is said otherwise.
constexpr int64_t kLevelRuns = 17;

// The layers of a page within lists or structs, from the values outwards, and how their levels are
// packed; a width of 0 stands for levels that are not there.
struct Nesting {
  int64_t layers = 0, rep_max = 0, def_max = 0, rep_bits = 0, def_bits = 0;
  Layer each[kLayersMax];
};

struct Page {
  Layout layout = kUnknown;
  int64_t rows = 0;
  int64_t has_definition = 0;
  int64_t def_bits = 0;  // how definition levels of chunks are packed
  int64_t compression = kPlain;
  int64_t codec = kFlat;
  int64_t bits = 0;  // of a value, or of an offset
  Symbols symbols;

  // Chunks: where they are, how many values each has, and the first of these.
  int64_t values = 0;
  int64_t chunks = 0;
  const int64_t* first_value = nullptr;
  const int64_t* chunk_position = nullptr;
  const int64_t* chunk_size = nullptr;
  const int64_t* chunk_values = nullptr;
  int64_t size_bytes = 2;
  Items items;
  const Nesting* nesting = nullptr;  // none of a page whose rows are values
  const int64_t* begun = nullptr;    // of lists: the rows that began, and ended, before each chunk
  const int64_t* ended = nullptr;

  // Items of one width, definition included, or zipped strings with an index of their rows; the
  // value of a constant page, which is null where it has none.
  int64_t position = 0;
  int64_t size = 0;
  int64_t item_bytes = 0;
  int64_t index_position = 0;
  int64_t index_width = 0;
  int64_t length_bytes = 0;
  const uint8_t* value = nullptr;
};

// A column of pages, of which page i has the rows from `first_row[i]` on.
struct Column {
  int64_t form = kFixed;
  int64_t width = 0;
  int64_t is_text = 0;
  int64_t pages = 0;
  const int64_t* first_row = nullptr;
  int64_t layers = 1;
  int64_t large = 0;  // a bit for each layer: whether it has lists with offsets of 64 bits
};

// The pages that have the rows, one for each, of a column.
struct ColumnRows {
  const Column* column;
  const Page* const* pages;
  const int64_t* rows;  // within their pages
};

// A file that is mapped, and what is known of it (lancelet/kernels/mapped.py).
struct File {
  ConstBytes bytes;
  Bytes prefetched;
  ConstInts blocks;
  Span<const uint32_t> sums;
  Bytes verified;
};

// What comes of a column: 0 or why it could not be read, the number of nulls, where validity,
// values or offsets, and bytes are, and how many of these there are.
struct ColumnOutput {
  int64_t fault, nulls, validity, values, strings, string_bytes;
  int64_t count;   // of values
  int64_t layers;  // where the layers around them are
};

// What comes of a layer around values: how many it has, the nulls, and where validity and offsets
// are, or -1.
struct LayerOutput {
  int64_t count, nulls, validity, offsets;
};

// What comes of all: how many ranges with rows were read and their bytes, the same of what was learned
// of pages, by how many bytes plans have grown, and the bytes of the result.
struct Taken {
  int64_t ranges, bytes, head_ranges, head_bytes, bytes_added, used;
};

}  // namespace lancelet::plan
