// Shared by kernels for levels: masks of 64 levels, and unpacking.
#pragma once

#include "kernel.hpp"
#include "parameters.hpp"

#if defined(__BMI2__)
#include <immintrin.h>
#endif

#if defined(__AVX512BW__) && defined(__GNUC__)
#define LANCELET_COMPARES_LEVELS 1
#else
#define LANCELET_COMPARES_LEVELS 0
#endif

namespace LANCELET_NAMESPACE {

using Levels = Span<const uint16_t>;

static constexpr int64_t kGroup = 64;

static LANCELET_INLINE int64_t count_bits(uint64_t bits) { return __builtin_popcountll(bits); }

static LANCELET_INLINE uint64_t low_bits(int64_t count) {
  return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

// Returns a mask of up to 64 levels that are at most `most`.
static LANCELET_INLINE uint64_t at_most(const uint16_t* levels, int64_t count, uint16_t most) {
#if LANCELET_COMPARES_LEVELS
  const __m512i limit = _mm512_set1_epi16(static_cast<int16_t>(most));
  const uint64_t wanted = low_bits(count);
  const __m512i low = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(wanted), levels);
  const __m512i high = _mm512_maskz_loadu_epi16(static_cast<__mmask32>(wanted >> 32), levels + 32);
  const uint64_t first = _mm512_cmple_epu16_mask(low, limit);
  const uint64_t second = _mm512_cmple_epu16_mask(high, limit);
  return (first | second << 32) & wanted;
#else
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
#endif
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

// Gathers the bits selected by `mask`.
static LANCELET_INLINE uint64_t compress(uint64_t bits, uint64_t mask) {
#if defined(__BMI2__)
  return _pext_u64(bits, mask);
#else
  uint64_t out = 0;
  for (int64_t k = 0; mask != 0; ++k, mask &= mask - 1)
    out |= ((bits >> __builtin_ctzll(mask)) & 1) << k;
  return out;
#endif
}

// Appends bits to a bitmap, least significant first.
struct BitWriter {
  Bytes out;
  int64_t written = 0;  // bytes
  uint64_t pending = 0;
  int64_t pending_bits = 0;

  // Appends up to 64 bits. Returns false if the output is full.
  LANCELET_INLINE bool append(uint64_t bits, int64_t count) {
    pending |= bits << pending_bits;
    const int64_t total = pending_bits + count;
    if (total < 64) {
      pending_bits = total;
      return true;
    }
    if (out.size - written < 8) return false;
    store<uint64_t>(out.data + written, pending);
    written += 8;
    pending = pending_bits == 0 ? 0 : bits >> (64 - pending_bits);
    pending_bits = total - 64;
    return true;
  }

  bool finish() {
    for (; pending_bits > 0; pending_bits -= 8, pending >>= 8) {
      if (written == out.size) return false;
      out.data[written++] = static_cast<uint8_t>(pending);
    }
    return true;
  }
};

static LANCELET_INLINE uint16_t clamped(int64_t level) {
  return static_cast<uint16_t>(level < 0 ? 0 : level > 0xFFFF ? 0xFFFF : level);
}

// Converts the levels of one layer of lists to offsets and validity, a part of the levels at a time.
// Outputs have room for one list per entry that opens one, and `offsets` for one more.
template <class Offset>
struct ListBuilder {
  args::ListLevels levels;
  Span<Offset> offsets;
  BitWriter bits;
  Fault too_many = kOutputFull;  // reported if there are more lists than offsets
  int64_t lists = 0;
  int64_t items = 0;
  uint64_t previous_is_item = 0;  // no list is open before the first entry

  // Adds entries, which have repetition levels, and definition levels or none. Returns 0 or a fault.
  int64_t add(Levels repetition, const uint16_t* definition) {
    const uint16_t below = clamped(levels.list_level - 1);
    for (int64_t start = 0; start < repetition.size; start += kGroup) {
      const int64_t count = smaller(kGroup, repetition.size - start);
      const uint64_t all = low_bits(count);
      uint64_t opens = ~at_most(repetition.data + start, count, below) & all;
      const uint64_t continues = ~opens & all;
      uint64_t is_item = all, is_valid = all;
      if (definition != nullptr) {
        const uint16_t* const own = definition + start;
        is_item = at_most(own, count, clamped(levels.item_max)) & all;
        opens &= at_most(own, count, clamped(levels.slot_max));
        is_valid = is_item;
        if (levels.empty_level > 0)
          is_valid |= at_most(own, count, clamped(levels.empty_level)) &
                      ~at_most(own, count, clamped(levels.empty_level - 1));
      }
      if (LANCELET_UNLIKELY(continues & ~(is_item & (is_item << 1 | previous_is_item))))
        return fail(kBadLevels, start);
      const int64_t opened = count_bits(opens);
      if (lists + opened >= offsets.size) return fail(too_many, start);
      if (bits.out.size > 0 && !bits.append(compress(is_valid, opens), opened))
        return fail(kOutputFull, start);
      Offset* const to = offsets.data + lists;
      const auto base = static_cast<Offset>(items);
      for (int64_t k = 0; k < opened; ++k, opens &= opens - 1)
        to[k] = base + static_cast<Offset>(count_bits(is_item & ((opens & -opens) - 1)));
      lists += opened;
      items += count_bits(is_item);
      previous_is_item = is_item >> (count - 1);
    }
    return 0;
  }

  // Returns the number of lists or a fault.
  int64_t finish() {
    if (lists >= offsets.size || !bits.finish()) return fail(kOutputFull, lists);
    offsets.data[lists] = static_cast<Offset>(items);
    return lists;
  }
};

// Returns the number of lists. The entries that open lists are also written, for the outer layer.
template <class Offset>
int64_t unravel(Levels repetition, Levels definition, args::ListLevels levels, Span<Offset> offsets,
                Bytes validity, Span<uint16_t> outer_repetition, Span<uint16_t> outer_definition) {
  const bool has_definition = definition.size > 0;
  if (levels.list_level < 1 || (has_definition && definition.size != repetition.size))
    return fail(kBadCount, 0);
  ListBuilder<Offset> builder = {levels, offsets, {validity}};
  const int64_t status = builder.add(repetition, has_definition ? definition.data : nullptr);
  if (status < 0) return status;
  const uint16_t below = clamped(levels.list_level - 1);
  int64_t opened = 0;
  for (int64_t start = 0; start < repetition.size; start += kGroup) {
    const int64_t count = smaller(kGroup, repetition.size - start);
    uint64_t opens = ~at_most(repetition.data + start, count, below) & low_bits(count);
    if (count_bits(opens) > outer_repetition.size - opened ||
        (has_definition && count_bits(opens) > outer_definition.size - opened))
      return fail(kOutputFull, start);
    for (; opens != 0; opens &= opens - 1, ++opened) {
      const int64_t at = start + __builtin_ctzll(opens);
      outer_repetition.data[opened] = repetition.data[at];
      if (has_definition) outer_definition.data[opened] = definition.data[at];
    }
  }
  return builder.finish();
}

}  // namespace LANCELET_NAMESPACE
