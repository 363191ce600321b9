// The records by which `take_few` finds its way: words of 64 bits, of which some are addresses.
//
// They are made by module/columns.hpp of what was checked when pages were opened, with the arrays
// that addresses point to, and never of bytes that a file holds.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace few {

// What a column becomes: values of a width, bits, or strings with offsets of 32 or 64 bits.
enum Form : int64_t { kFixed = 0, kBits = 1, kStrings32 = 2, kStrings64 = 3 };

// How pages of a run are laid out; a run that is not known yet has the address 0.
enum LayoutKind : int64_t { kChunks = 1, kItems = 2, kZippedStrings = 3, kConstant = 4 };

enum Codec : int64_t { kFlat = 0, kInline = 1, kSplit = 2, kRuns = 3, kVariable = 4, kFsst = 5 };

enum Compression : int64_t { kPlain = 0, kLz4 = 1, kZstd = 2 };

template <class T>
struct Address {
  int64_t word;
  LANCELET_INLINE const T* get() const { return reinterpret_cast<const T*>(word); }
  LANCELET_INLINE const T& operator[](int64_t i) const { return get()[i]; }
  LANCELET_INLINE explicit operator bool() const { return word != 0; }
};

// Tables of symbols end to end, and the first chunk of the pages that have one each.
struct Symbols {
  int64_t tables;
  Address<uint64_t> symbols;
  Address<uint8_t> lengths;
  Address<int64_t> first_chunk;
};

// Values of a fixed width, or strings with offsets of `width` bytes.
struct Items {
  int64_t count;  // -1 where there is no dictionary
  int64_t width;
  Address<uint8_t> values;  // or offsets
  Address<uint8_t> bytes;
  int64_t num_bytes;
};

struct ChunkRun {
  int64_t layout;
  int64_t chunks;
  Address<int64_t> first_value;
  Address<uint8_t> known;  // none where all are
  Address<int64_t> position, size, count;
  int64_t has_definition;
  int64_t size_bytes;
  int64_t compression;
  int64_t codec;
  int64_t bits;  // of a value, or of an offset
  Symbols symbols;
  Items items;
};

struct ItemRun {
  int64_t layout;
  int64_t pages;
  Address<int64_t> first_row;
  Address<int64_t> position;
  int64_t has_definition;
  int64_t item_bytes;  // with the definition
};

struct ZippedRun {
  int64_t layout;
  int64_t rows;
  int64_t index_position, index_width;
  int64_t position, size;
  int64_t has_definition;
  int64_t length_bytes;
  int64_t codec;
  Symbols symbols;
};

struct ConstantRun {
  int64_t layout;
  int64_t is_null;
  Address<uint8_t> value;
  int64_t size;
};

struct Column {
  int64_t form;
  int64_t width;
  int64_t is_text;
  int64_t runs;
  Address<int64_t> first_row;
  Address<int64_t> run;
};

}  // namespace few
}  // namespace LANCELET_NAMESPACE
