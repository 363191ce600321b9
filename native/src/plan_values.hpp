// Values of pieces: buffers of chunks, decompression, copies and lookup.
#pragma once

#include "copies.hpp"
#include "inflate.hpp"
#include "levels.hpp"
#include "plan_locations.hpp"
#include "utf8.hpp"

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "bitpack.def"
#include "dictionary.def"
#include "fsst.def"
#include "lz4.def"
#include "rle.def"
#include "split_bytes.def"
#include "zstd.def"
#undef KERNEL

namespace planned {

static LANCELET_INLINE int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

// An output buffer that is allocated from front to back.
struct Output {
  Bytes bytes;
  int64_t end = 0;

  LANCELET_INLINE int64_t room() const { return bytes.size - end; }

  // Allocates `size` bytes, large ones aligned to a cache line. Returns their position, or -1.
  LANCELET_INLINE int64_t take(int64_t size) {
    const int64_t unit = size < 1024 ? 8 : 64;
    const int64_t start = (end + unit - 1) / unit * unit;
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

  Scratch() = default;
  Scratch(const Scratch&) = delete;
  ~Scratch() { CachedMemory::of_thread().give(data, size); }

  bool reserve(int64_t capacity) {
    if (capacity <= size) return true;
    CachedMemory& memory = CachedMemory::of_thread();
    memory.give(data, size);
    size = 0;
    data = static_cast<uint8_t*>(memory.take(capacity, &size));
    if (data == nullptr) size = 0;
    return data != nullptr;
  }
};

// --- chunks -----------------------------------------------------------------------------------

// Decompresses to the start of `room`, which is larger by the slack. Returns the size or a fault.
static inline int64_t decompress_to(int64_t compression, ConstBytes values, Bytes room) {
  const int64_t plain = inflated_bytes(compression, values);
  if (plain < 0) return plain;
  if (plain > room.size - kInflateSlack) return fail(kOutputFull, 0);
  const int64_t from = inflate_head(compression), size = values.size - from;
  const bool is_lz4 = compression == kLz4;
  const Bytes out = {room.data, is_lz4 ? plain : plain + kInflateSlack};
  const int64_t status =
      is_lz4 ? lz4_decompress_chunks(values, {&from, 1}, {&size, 1}, {&plain, 1}, out)
             : zstd_decompress_chunks(values, {&from, 1}, {&size, 1}, {&plain, 1}, out);
  return status < 0 ? status : plain;
}

// Decompresses at least the first `wanted` bytes.
static inline int64_t decompress(int64_t compression, ConstBytes* values, Scratch* scratch,
                                 int64_t wanted) {
  const int64_t size = inflated_bytes(compression, *values);
  const int64_t room = size + kInflateSlack;
  if (room >= kInflateSlack && !scratch->reserve(room)) return fail(kNoMemory, 0);
  if (compression == kLz4 && wanted < size) {
    const int64_t from = inflate_head(compression);
    const ConstBytes block = {values->data + from, values->size - from};
    *values = {scratch->data, size};
    return lz4_decompress_start(block, {scratch->data, size}, wanted);
  }
  const int64_t plain = decompress_to(compression, *values, {scratch->data, scratch->size});
  if (plain < 0) return plain;
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

// --- selections -------------------------------------------------------------------------------

// Values of a chunk: a range from `start` on, the indices `numbers[i] - shift`, or runs.
struct Selected {
  int64_t count;
  int64_t start;
  const int64_t* numbers;
  int64_t shift;
  const Run* runs;
  int64_t num_runs;

  bool is_range() const { return numbers == nullptr && runs == nullptr; }
  bool is_all_of(int64_t values) const { return is_range() && start == 0 && count == values; }

  // Returns a position after all selected values.
  int64_t stop() const {
    if (is_range()) return start + count;
    int64_t most = 0;
    for (int64_t i = 0; i < num_runs; ++i) most = larger(most, runs[i].start + runs[i].count);
    for (int64_t i = 0; i < count && numbers != nullptr; ++i)
      most = larger(most, numbers[i] - shift + 1);
    return most;
  }
};

// Calls `visit(start, count)` for consecutive values, in order, until it returns a fault.
template <class Visit>
static LANCELET_INLINE int64_t each_run(const Selected& wanted, Visit visit) {
  if (wanted.numbers != nullptr) {
    for (int64_t i = 0; i < wanted.count; ++i) {
      const int64_t status = visit(wanted.numbers[i] - wanted.shift, int64_t{1});
      if (LANCELET_UNLIKELY(status < 0)) return status;
    }
    return 0;
  }
  if (wanted.runs == nullptr) return visit(wanted.start, wanted.count);
  for (int64_t i = 0; i < wanted.num_runs; ++i) {
    const int64_t status = visit(wanted.runs[i].start, wanted.runs[i].count);
    if (LANCELET_UNLIKELY(status < 0)) return status;
  }
  return 0;
}

// Copies values of kWidth bytes, or of `width` if it is 0.
template <int64_t kWidth>
static inline void gather(const uint8_t* LANCELET_RESTRICT from, const Selected& wanted,
                          int64_t width, uint8_t* LANCELET_RESTRICT to) {
  const int64_t bytes = kWidth ? kWidth : width;
  each_run(wanted, [&](int64_t start, int64_t count) {
    if (kWidth && count == 1) memcpy(to, from + start * bytes, kWidth);
    else memcpy(to, from + start * bytes, static_cast<size_t>(count * bytes));
    to += count * bytes;
    return int64_t{0};
  });
}

static inline void gather_values(const uint8_t* from, const Selected& wanted, int64_t width,
                                 uint8_t* to) {
  switch (width) {
    case 1: return gather<1>(from, wanted, width, to);
    case 2: return gather<2>(from, wanted, width, to);
    case 4: return gather<4>(from, wanted, width, to);
    case 8: return gather<8>(from, wanted, width, to);
    case 16: return gather<16>(from, wanted, width, to);
    default: return gather<0>(from, wanted, width, to);
  }
}

// Clears up to 64 bits from bit `at` on; the buffer has eight more bytes than it needs.
static LANCELET_INLINE void clear_bits(uint8_t* bits, int64_t at, uint64_t cleared) {
  uint8_t* const to = bits + at / 8;
  const int shift = static_cast<int>(at % 8);
  store<uint64_t>(to, load<uint64_t>(to) & ~(cleared << shift));
  if (shift > 0) to[8] = static_cast<uint8_t>(to[8] & ~(cleared >> (64 - shift)));
}

// Returns the number of bits that are 1.
static inline int64_t count_ones(const uint8_t* bits, int64_t count) {
  int64_t found = 0, at = 0;
  for (; at + 64 <= count; at += 64) found += count_bits(load<uint64_t>(bits + at / 8));
  for (; at < count; ++at) found += bits[at / 8] >> at % 8 & 1;
  return found;
}

// Copies bits to bit `at`, whose bits are 0; the buffer has eight more bytes than it needs.
static inline void copy_bits(const uint8_t* from, int64_t start, int64_t count, uint8_t* to,
                             int64_t at) {
  if (start % 8 == 0 && at % 8 == 0) {
    const int64_t whole = count / 8;
    if (whole > 0) memcpy(to + at / 8, from + start / 8, static_cast<size_t>(whole));
    start += whole * 8, at += whole * 8, count -= whole * 8;
  }
  for (; count > 0; start += 8, at += 8, count -= 8) {
    const int64_t last = (start + smaller<int64_t>(count, 8) - 1) / 8;
    const uint32_t both = from[start / 8] | (last > start / 8 ? from[last] : 0u) << 8;
    const uint32_t bits = (both >> start % 8) & low_bits(smaller<int64_t>(count, 8));
    const uint32_t shifted = bits << at % 8;
    to[at / 8] |= static_cast<uint8_t>(shifted);
    to[at / 8 + 1] |= static_cast<uint8_t>(shifted >> 8);
  }
}

}  // namespace planned
}  // namespace LANCELET_NAMESPACE
