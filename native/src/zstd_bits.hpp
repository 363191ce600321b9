// Bit streams and FSE tables of Zstandard (RFC 8878, section 4).
//
// A coded stream is read from its end: the highest set bit of the last byte is the start marker,
// and each field is below the previous one. `Bits` holds at least the next 57 bits at the top of a
// word. A refill is a single load, because the bytes before the stream belong to the frame (its
// header and the block header have at least nine bytes).
#pragma once
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace zstd {

static LANCELET_INLINE int highest_bit(uint64_t value) {
#if defined(_MSC_VER)
  unsigned long index;
  _BitScanReverse64(&index, value);
  return static_cast<int>(index);
#else
  return 63 - __builtin_clzll(value);
#endif
}

struct Bits {
  const uint8_t* base;
  int64_t left;  // remaining bits; negative after an overrun
  uint64_t next;

  // Opens a stream; the eight bytes before it must be readable.
  LANCELET_INLINE bool open(const uint8_t* data, int64_t size) {
    if (size <= 0 || data[size - 1] == 0) return false;
    base = data;
    left = (size - 1) * 8 + highest_bit(data[size - 1]);
    refill();
    return true;
  }

  LANCELET_INLINE void refill() {
    if (LANCELET_LIKELY(left > 0))
      next = load<uint64_t>(base + ((left + 7) >> 3) - 8) << (-left & 7);
    else
      next = 0;
  }

  LANCELET_INLINE uint64_t take(int count) {
    const uint64_t bits = next >> 1 >> (63 - count);
    next <<= count;
    left -= count;
    return bits;
  }
};

// A state of an FSE table: its symbol and the transition to the next state.
struct State {
  uint32_t base;        // added to the extra bits; for weights, the symbol
  uint16_t next;        // the next state without its low bits
  uint8_t next_bits;    // number of low bits in the stream
  uint8_t extra_bits;   // number of extra bits of the value in the stream
};

constexpr int kTableLogMax = 9;

struct Table {
  State states[1 << kTableLogMax];
  int log;
  bool is_set;  // whether later blocks may repeat it
};

// Normalized symbol counts of a table; `log` is its size, -1 means less than one state.
struct Counts {
  int16_t of[64];
  int symbols;
  int log;
};

// Reads normalized counts; returns their size in bytes, or -1.
inline int64_t read_counts(const uint8_t* at, const uint8_t* end, int log_max, int symbols_max,
                           Counts* counts) {
  int64_t bit = 0;
  const int64_t limit = (end - at) * 8;
  auto peek = [&](int count) -> uint32_t {
    uint32_t bits = 0;
    for (int64_t byte = bit >> 3, k = 0; k < 4 && byte + k < end - at; ++k)
      bits |= static_cast<uint32_t>(at[byte + k]) << (8 * k);
    return bits >> (bit & 7) & ((1u << count) - 1);
  };
  counts->log = static_cast<int>(peek(4)) + 5;
  bit += 4;
  if (counts->log > log_max) return -1;
  int remaining = 1 << counts->log;
  int symbol = 0;
  while (remaining > 0) {
    if (symbol >= symbols_max || bit > limit) return -1;
    const int width = highest_bit(static_cast<uint64_t>(remaining + 1)) + 1;
    const uint32_t shorter = (1u << width) - 2 - static_cast<uint32_t>(remaining);
    uint32_t value = peek(width);
    const uint32_t low = value & ((1u << (width - 1)) - 1);
    if (low < shorter) {
      value = low;
      bit += width - 1;
    } else {
      if (value >= 1u << (width - 1)) value -= shorter;
      bit += width;
    }
    const int count = static_cast<int>(value) - 1;
    remaining -= count < 0 ? 1 : count;
    counts->of[symbol++] = static_cast<int16_t>(count);
    if (count != 0) continue;
    for (uint32_t zeros = 3; zeros == 3;) {
      zeros = peek(2);
      bit += 2;
      if (symbol + static_cast<int>(zeros) > symbols_max || bit > limit) return -1;
      for (uint32_t k = 0; k < zeros; ++k) counts->of[symbol++] = 0;
    }
  }
  if (remaining < 0 || bit > limit) return -1;
  counts->symbols = symbol;
  return (bit + 7) >> 3;
}

// Builds a table; `base` and `extra_bits` define the value of each symbol.
inline void fill_table(const Counts& counts, const uint32_t* base, const uint8_t* extra_bits,
                       Table* table) {
  const int size = 1 << counts.log;
  uint8_t symbol_of[1 << kTableLogMax];
  uint16_t next[64];
  int high = size;
  for (int symbol = 0; symbol < counts.symbols; ++symbol) {
    next[symbol] = static_cast<uint16_t>(counts.of[symbol] < 0 ? 1 : counts.of[symbol]);
    if (counts.of[symbol] < 0) symbol_of[--high] = static_cast<uint8_t>(symbol);
  }
  const int step = (size >> 1) + (size >> 3) + 3;
  int at = 0;
  for (int symbol = 0; symbol < counts.symbols; ++symbol)
    for (int k = 0; k < counts.of[symbol]; ++k) {
      symbol_of[at] = static_cast<uint8_t>(symbol);
      do at = (at + step) & (size - 1);
      while (at >= high);
    }
  for (int state = 0; state < size; ++state) {
    const uint8_t symbol = symbol_of[state];
    const uint32_t number = next[symbol]++;
    const int bits = counts.log - highest_bit(number);
    table->states[state] = {base[symbol], static_cast<uint16_t>((number << bits) - size),
                            static_cast<uint8_t>(bits), extra_bits[symbol]};
  }
  table->log = counts.log;
  table->is_set = true;
}

}  // namespace zstd
}  // namespace LANCELET_NAMESPACE
