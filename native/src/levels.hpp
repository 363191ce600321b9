// Shared by kernels for levels: masks of 64 levels, and unpacking.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

using Levels = Span<const uint16_t>;

static constexpr int64_t kGroup = 64;

static LANCELET_INLINE int64_t count_bits(uint64_t bits) { return __builtin_popcountll(bits); }

static LANCELET_INLINE uint64_t low_bits(int64_t count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Returns a mask of up to 64 levels that are at most `most`.
static LANCELET_INLINE uint64_t at_most(const uint16_t* levels, int64_t count, uint16_t most) {
  uint8_t flags[kGroup];
  if (LANCELET_LIKELY(count == kGroup)) {
    for (int64_t i = 0; i < kGroup; ++i) flags[i] = levels[i] <= most;
  } else {
    memset(flags, 0, sizeof flags);
    for (int64_t i = 0; i < count; ++i) flags[i] = levels[i] <= most;
  }
  uint64_t mask = 0;
  // The product gathers the lowest bits of eight bytes in the highest byte.
  for (int64_t i = 0; i < 8; ++i)
    mask |= ((load<uint64_t>(flags + 8 * i) * 0x0102040810204080u) >> 56) << (8 * i);
  return mask;
}

// FastLanes with 16-bit words: 64 lanes of 16 rows; bitpack.cpp explains the order.
static constexpr int64_t kBlock = 1024;
static constexpr int64_t kLanes = 64;
static constexpr int64_t kRows = 16;
static constexpr int64_t kWordBits = 16;

static inline void unpack_block(const uint16_t* LANCELET_RESTRICT words, uint16_t* LANCELET_RESTRICT values,
                  int64_t width) {
  const uint16_t mask = static_cast<uint16_t>((1u << width) - 1);
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t bit = row * width;
    const int64_t shift = bit % kWordBits;
    const uint16_t* word = words + bit / kWordBits * kLanes;
    uint16_t* value = values + row / 8 * 64 + row % 8 * 128;
    for (int64_t lane = 0; lane < kLanes; ++lane)
      value[lane] = static_cast<uint16_t>(word[lane] >> shift) & mask;
    if (shift + width > kWordBits)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        value[lane] |= static_cast<uint16_t>(word[lane + kLanes] << (kWordBits - shift)) & mask;
  }
}

// Unpacks the levels of one slice to `out`. Returns 0 or a fault at `index`.
static inline int64_t unpack_slice(ConstBytes source, int64_t position, int64_t size,
                                   int64_t levels, int64_t width, int64_t index,
                                   uint16_t* LANCELET_RESTRICT out) {
  if (!within(position, size, source.size)) return fail(kOutOfSource, index);
  const int64_t block_bytes = width * kLanes * 2;
  const int64_t full = levels / kBlock, tail = levels % kBlock;
  const int64_t left = size - full * block_bytes;
  const bool is_plain = left == tail * 2;
  if (!is_plain && left < (tail > 0 ? block_bytes : 0)) return fail(kTooShort, index);
  uint16_t words[kWordBits * kLanes + kLanes], values[kBlock];
  const uint8_t* from = source.data + position;
  for (int64_t block = 0; block < full; ++block, from += block_bytes, out += kBlock) {
    memcpy(words, from, block_bytes);
    unpack_block(words, out, width);
  }
  if (tail > 0 && !is_plain) {
    memcpy(words, from, block_bytes);
    unpack_block(words, values, width);
    from = reinterpret_cast<const uint8_t*>(values);
  }
  if (tail > 0) memcpy(out, from, tail * 2);
  return 0;
}

}  // namespace LANCELET_NAMESPACE
