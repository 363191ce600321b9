// Single values of chunks: buffers, decompression and lookup.
#pragma once

#include "inflate.hpp"
#include "levels.hpp"
#include "plan_locations.hpp"

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "bitpack.def"
#include "fsst.def"
#include "lz4.def"
#include "zstd.def"
#undef KERNEL

namespace planned {

static LANCELET_INLINE int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

// An output buffer that is allocated from front to back.
struct Output {
  Bytes bytes;
  int64_t end = 0;

  LANCELET_INLINE int64_t room() const { return bytes.size - end; }

  // Allocates `size` bytes, 8-byte aligned. Returns their position, or -1.
  LANCELET_INLINE int64_t take(int64_t size) {
    const int64_t start = padded(end);
    if (size < 0 || start > bytes.size || size > bytes.size - start) return -1;
    end = start + size;
    return start;
  }
};

// An open chunk: decompressed values and levels.
struct Chunk {
  const Page* page = nullptr;
  int64_t part = -1;
  int64_t count = 0;
  int64_t num_levels = 0;
  int64_t codec = kFlat;
  ConstBytes values = {nullptr, 0};
  ConstBytes lengths = {nullptr, 0};
  ConstBytes repetition = {nullptr, 0};
  ConstBytes definition = {nullptr, 0};
};

// Memory for decompressed data, reused across chunks.
struct Scratch {
  uint8_t* data = nullptr;
  int64_t size = 0;

  bool reserve(int64_t capacity) {
    if (capacity <= size) return true;
    free(data);
    data = static_cast<uint8_t*>(malloc(static_cast<size_t>(capacity)));
    size = data == nullptr ? 0 : capacity;
    return data != nullptr;
  }
};

// --- chunks -----------------------------------------------------------------------------------

static inline int64_t decompress(int64_t compression, ConstBytes* values, Scratch* scratch) {
  const int64_t plain = inflated_bytes(compression, *values);
  if (plain < 0) return plain;
  if (!scratch->reserve(plain + kInflateSlack)) return fail(kNoMemory, 0);
  const int64_t from = inflate_head(compression), size = values->size - from;
  const bool is_lz4 = compression == kLz4;
  const Bytes out = {scratch->data, is_lz4 ? plain : plain + kInflateSlack};
  const int64_t status =
      is_lz4 ? lz4_decompress_chunks(*values, {&from, 1}, {&size, 1}, {&plain, 1}, out)
             : zstd_decompress_chunks(*values, {&from, 1}, {&size, 1}, {&plain, 1}, out);
  if (status < 0) return status;
  *values = {scratch->data, plain};
  return 0;
}

// Splits a chunk into its buffers; values may be compressed.
static inline int64_t open_chunk(const Page& page, int64_t part, ConstBytes bytes, Chunk* chunk) {
  chunk->page = &page;
  chunk->part = part;
  chunk->count = page.chunk_values[part];
  chunk->codec = page.codec;
  chunk->definition = chunk->lengths = {nullptr, 0};
  const int64_t buffers = page.codec == kRuns ? 2 : 1;
  const Nesting* const nesting = page.nesting;
  const int64_t levels = nesting == nullptr
                             ? page.has_definition
                             : (nesting->rep_bits > 0) + (nesting->def_bits > 0);
  const int64_t head_bytes = padded(2 + 2 * levels + buffers * page.size_bytes);
  if (bytes.size < head_bytes) return fail(kTooShort, 0);
  chunk->num_levels = load<uint16_t>(bytes.data);
  const uint8_t* head = bytes.data + 2;
  ConstBytes parts[4];
  int64_t at = head_bytes;
  for (int64_t i = 0; i < levels + buffers; ++i) {
    const int64_t width = i < levels ? 2 : page.size_bytes;
    const int64_t size = number_at(head, width);
    head += width;
    parts[i] = {bytes.data + at, size};
    at += padded(size);
    if (at > bytes.size) return fail(kTooShort, 0);
  }
  if (page.has_definition) {
    if (chunk->num_levels != chunk->count) return fail(kBadCount, 0);
    chunk->definition = parts[0];
  }
  chunk->repetition = {nullptr, 0};
  if (nesting != nullptr && nesting->rep_bits > 0) chunk->repetition = parts[0];
  if (nesting != nullptr && nesting->def_bits > 0) chunk->definition = parts[levels - 1];
  chunk->values = parts[levels];
  if (buffers == 2) chunk->lengths = parts[levels + 1];
  return 0;
}

// Run-length encoded levels: the size of the values, the values, and a length byte per run.
struct LevelRuns {
  const uint8_t* levels = nullptr;
  const uint8_t* lengths = nullptr;
  int64_t count = 0;

  int64_t open(ConstBytes packed) {
    if (packed.size < 8) return fail(kTooShort, 0);
    const int64_t bytes = load<int64_t>(packed.data);
    if (bytes < 0 || bytes > packed.size - 8) return fail(kTooShort, 0);
    levels = packed.data + 8;
    lengths = levels + bytes;
    count = packed.size - 8 - bytes;
    return count <= bytes / 2 ? 0 : fail(kTooShort, 0);
  }

  uint16_t level(int64_t run) const { return load<uint16_t>(levels + 2 * run); }
};

// Unpacks `count` levels to `out`.
static inline int64_t unpack_chunk_levels(ConstBytes packed, int64_t count, int64_t bits,
                                          uint16_t* out) {
  if (bits != kLevelRuns) return unpack_slice(packed, 0, packed.size, count, bits, 0, out);
  LevelRuns runs;
  const int64_t status = runs.open(packed);
  if (status < 0) return status;
  for (int64_t run = 0; run < runs.count; ++run) {
    const int64_t length = runs.lengths[run];
    if (length > count) return fail(kBadLength, run);
    for (int64_t k = 0; k < length; ++k) *out++ = runs.level(run);
    count -= length;
  }
  return count == 0 ? 0 : fail(kBadLength, 0);
}

// Returns whether a value is null, for run-length encoded levels.
static inline int64_t is_null_in_runs(const Chunk& chunk, int64_t at) {
  LevelRuns runs;
  const int64_t status = runs.open(chunk.definition);
  if (status < 0) return status;
  int64_t end = 0, found = -1;
  for (int64_t run = 0; run < runs.count; ++run) {
    end += runs.lengths[run];
    if (found < 0 && end > at) found = runs.level(run);
  }
  if (end != chunk.count || found < 0) return fail(kBadLength, 0);
  return found > 1 ? fail(kBadLevels, 0) : found;
}

// Returns whether a value is null, for 1-bit levels in blocks of 1024; the last block may be
// unpacked.
static inline int64_t is_null(const Chunk& chunk, int64_t at) {
  if (chunk.page->def_bits == kLevelRuns) return is_null_in_runs(chunk, at);
  constexpr int64_t block_bytes = kBlock / 8;
  const int64_t full = chunk.count / kBlock, tail = chunk.count % kBlock;
  const int64_t left = chunk.definition.size - full * block_bytes;
  const bool is_plain = left == 2 * tail;
  if (!is_plain && left < (tail > 0 ? block_bytes : 0)) return fail(kTooShort, 0);
  const int64_t block = at / kBlock, offset = at % kBlock;
  const uint8_t* from = chunk.definition.data + block * block_bytes;
  if (block == full && is_plain) {
    const int64_t level = load<uint16_t>(from + 2 * offset);
    return level > 1 ? fail(kBadLevels, 0) : level;
  }
  // 16-bit words: 64 lanes of 16 rows; bitpack.cpp explains the order.
  const int64_t lane = offset % 64, row = offset % 128 / 64 * 8 + offset / 128;
  return load<uint16_t>(from + 2 * lane) >> row & 1;
}

// --- values of fixed width --------------------------------------------------------------------

static inline int64_t find_run(const Chunk& chunk, int64_t width, int64_t at) {
  if (chunk.values.size / width < chunk.lengths.size) return fail(kTooShort, 0);
  int64_t found = -1, end = 0;
  for (int64_t i = 0; i < chunk.lengths.size; ++i) {
    end += chunk.lengths.data[i];
    if (found < 0 && end > at) found = i;
  }
  return end == chunk.count && found >= 0 ? found : fail(kBadLength, 0);
}

// Writes one value of a chunk.
static inline int64_t read_value(const Page& page, const Chunk& chunk, int64_t at, uint8_t* to) {
  const int64_t width = page.bits / 8;
  switch (chunk.codec) {
    case kFlat:
      if (chunk.values.size != chunk.count * width) return fail(kTooShort, 0);
      memcpy(to, chunk.values.data + at * width, width);
      return 0;
    case kInline: {
      if (chunk.count > kBlock) return fail(kBadCount, 0);
      const int64_t start = 0, size = chunk.values.size;
      const int64_t status =
          pick_packed(chunk.values, {&start, 1}, {&size, 1}, {&at, 1}, page.bits, {to, width});
      return smaller<int64_t>(status, 0);
    }
    case kSplit:
      if (chunk.values.size != chunk.count * width) return fail(kTooShort, 0);
      for (int64_t k = 0; k < smaller<int64_t>(width, 8); ++k)
        to[k] = chunk.values.data[at + k * chunk.count];
      return 0;
    case kRuns: {
      const int64_t found = find_run(chunk, width, at);
      if (found < 0) return found;
      memcpy(to, chunk.values.data + found * width, width);
      return 0;
    }
    default:
      return fail(kBadWidth, 0);
  }
}

// Reads the dictionary index of a value.
static inline int64_t read_index(const Page& page, const Chunk& chunk, int64_t at,
                                 int64_t* index) {
  uint8_t word[8] = {};
  if (page.bits < 8 || page.bits > 64) return fail(kBadWidth, 0);
  const int64_t status = read_value(page, chunk, at, word);
  if (status < 0) return status;
  const uint64_t found = load<uint64_t>(word);
  if (found >= static_cast<uint64_t>(page.items.count)) return fail(kBadIndex, 0);
  *index = static_cast<int64_t>(found);
  return 0;
}

// --- strings ----------------------------------------------------------------------------------

// Finds a string, or its codes, in a chunk.
static inline int64_t find_string(const Page& page, const Chunk& chunk, int64_t at, ConstBytes* found) {
  const int64_t width = page.bits / 8, n = chunk.count;
  if (n >= chunk.values.size / width) return fail(kTooShort, 0);
  const uint8_t* offsets = chunk.values.data;
  const int64_t start = number_at(offsets + at * width, width);
  const int64_t stop = number_at(offsets + (at + 1) * width, width);
  if (start < (n + 1) * width || stop < start || stop > chunk.values.size)
    return fail(kBadOffsets, 0);
  *found = {offsets + start, stop - start};
  return 0;
}

static inline int64_t find_item_string(const Items& items, int64_t index, ConstBytes* found) {
  const int64_t start = number_at(items.values + index * items.width, items.width);
  const int64_t stop = number_at(items.values + (index + 1) * items.width, items.width);
  if (start < 0 || stop < start || stop > items.num_bytes) return fail(kBadOffsets, 0);
  *found = {items.bytes + start, stop - start};
  return 0;
}

// Returns whether bytes are valid UTF-8, without overlong forms and surrogates.
static inline bool is_utf8(const uint8_t* at, int64_t size) {
  const uint8_t* const end = at + size;
  while (at < end) {
    if (end - at >= 8 && !(load<uint64_t>(at) & 0x8080808080808080u)) {
      at += 8;
      continue;
    }
    const uint8_t first = *at++;
    if (first < 0x80) continue;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end - at < more) return false;
    const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[0] < low || at[0] > high) return false;
    for (int k = 1; k < more; ++k)
      if ((at[k] & 0xC0) != 0x80) return false;
    at += more;
  }
  return true;
}

// Appends a string, decoded by a symbol table if given.
static inline int64_t append(ConstBytes found, const Symbols& symbols, Output* out) {
  if (symbols.symbols == nullptr) {
    if (found.size > out->room()) return fail(kOutputFull, 0);
    if (found.size > 0) memcpy(out->bytes.data + out->end, found.data, found.size);
    out->end += found.size;
    return 0;
  }
  const int64_t start = 0, size = found.size, table = 0;
  uint8_t ends[16] = {};
  int64_t progress[4] = {};
  const int64_t status = fsst_decode_slices(
      {found, {&start, 1}, {&size, 1}},
      {{symbols.symbols, kCodes}, {symbols.lengths, kCodes}, {&table, 1}}, 8, {ends, 16}, {out->bytes.data + out->end, out->room()}, {progress, 4});
  if (status > 0) return fail(kOutputFull, 0);
  out->end += progress[3];
  return status;
}

}  // namespace planned
}  // namespace LANCELET_NAMESPACE
