// Writers of the structures in zstd_bits.hpp, and Huffman codes.
#pragma once
#include "zstd_literals.hpp"

namespace LANCELET_NAMESPACE {
namespace zstd {

// Bits are added at the top and bytes written from the bottom, so a reader starts at the end.
struct BitWriter {
  uint8_t* to;
  uint64_t held;
  int count;

  // Holds at most 56 bits; a flush stores eight bytes but advances by whole ones only.
  LANCELET_INLINE void put(uint64_t bits, int width) {
    held |= bits << count;
    count += width;
  }
  LANCELET_INLINE void flush() {
    store(to, held);
    to += count >> 3;
    held >>= count & 56;
    count &= 7;
  }
  uint8_t* close() {
    put(1, 1);
    flush();
    if (count > 0) ++to;
    return to;
  }
};

// State transitions by symbol; see FSE in RFC 8878, section 4.1.
struct StateWriter {
  uint16_t next[1 << kTableLogMax];
  int32_t find[64];
  uint32_t bits[64];
  int log;

  void build(const Counts& counts) {
    log = counts.log;
    const int size = 1 << log;
    uint8_t symbol_of[1 << kTableLogMax];
    uint16_t start[64];
    int at = 0, total = 0;
    for (int symbol = 0; symbol < counts.symbols; ++symbol) {
      const int count = counts.of[symbol];
      start[symbol] = static_cast<uint16_t>(total);
      if (count > 0) {
        const int most = log - (count > 1 ? highest_bit(static_cast<uint64_t>(count - 1)) : 0);
        bits[symbol] = count == 1 ? (log << 16) - (1 << log) : (most << 16) - (count << most);
        find[symbol] = total - count;
      }
      for (int k = 0; k < count; ++k) {
        symbol_of[at] = static_cast<uint8_t>(symbol);
        at = (at + (size >> 1) + (size >> 3) + 3) & (size - 1);
      }
      total += count;
    }
    for (int state = 0; state < size; ++state)
      next[start[symbol_of[state]]++] = static_cast<uint16_t>(size + state);
  }

  LANCELET_INLINE uint32_t first(int symbol) const {
    const uint32_t width = (bits[symbol] + (1 << 15)) >> 16;
    const uint32_t value = (width << 16) - bits[symbol];
    return next[static_cast<int32_t>(value >> width) + find[symbol]];
  }
  LANCELET_INLINE uint32_t step(uint32_t state, int symbol, BitWriter* out) const {
    const uint32_t width = (state + bits[symbol]) >> 16;
    out->put(state & ((1u << width) - 1), static_cast<int>(width));
    return next[static_cast<int32_t>(state >> width) + find[symbol]];
  }
  LANCELET_INLINE void last(uint32_t state, BitWriter* out) const {
    out->put(state & ((1u << log) - 1), log);
  }
};

// Normalizes symbol counts to the size of a table; each symbol that occurs gets at least one state.
inline void scale_counts(const int32_t* found, int symbols, int log, Counts* counts) {
  int64_t total = 0;
  for (int k = 0; k < symbols; ++k) total += found[k];
  counts->log = log;
  counts->symbols = 0;
  int rest = 1 << log, most = 0;
  for (int k = 0; k < symbols; ++k) {
    counts->of[k] = 0;
    if (found[k] == 0) continue;
    const int64_t share = (static_cast<int64_t>(found[k]) << log) / total;
    counts->of[k] = static_cast<int16_t>(larger<int64_t>(share, 1));
    rest -= counts->of[k];
    if (found[k] > found[most] || counts->of[most] == 0) most = k;
    counts->symbols = k + 1;
  }
  // Rounding up may exceed the table; the largest counts are reduced.
  for (; rest < 0; ++rest) {
    int widest = 0;
    for (int k = 1; k < counts->symbols; ++k)
      if (counts->of[k] > counts->of[widest]) widest = k;
    --counts->of[widest];
  }
  counts->of[most] = static_cast<int16_t>(counts->of[most] + rest);
}

// Writes counts in the format of `read_counts`; returns the end.
inline uint8_t* write_counts(const Counts& counts, uint8_t* to) {
  BitWriter out = {to, 0, 0};
  out.put(static_cast<uint64_t>(counts.log - 5), 4);
  int remaining = 1 << counts.log;
  for (int symbol = 0; symbol < counts.symbols && remaining > 0;) {
    const int width = highest_bit(static_cast<uint64_t>(remaining + 1)) + 1;
    const uint32_t shorter = (1u << width) - 2 - static_cast<uint32_t>(remaining);
    const uint32_t value = static_cast<uint32_t>(counts.of[symbol]) + 1;
    if (value < shorter)
      out.put(value, width - 1);
    else
      out.put(value < 1u << (width - 1) ? value : value + shorter, width);
    remaining -= counts.of[symbol];
    if (counts.of[symbol++] == 0) {
      int zeros = 0;
      while (counts.of[symbol + zeros] == 0) ++zeros;
      symbol += zeros;
      for (; zeros >= 3; zeros -= 3) {
        out.put(3, 2);
        out.flush();
      }
      out.put(static_cast<uint64_t>(zeros), 2);
    }
    out.flush();
  }
  return out.count > 0 ? out.to + 1 : out.to;
}

// Huffman codes of at most kCodeBitsMax bits.
struct SymbolCodes {
  uint16_t code[256];
  uint8_t width[256];
  int symbols;  // the last symbol that occurs, plus one
  int longest;
};

// Sorts the occurring bytes by count, at most 2^18; returns their number.
inline int order_by_count(const uint32_t* found, uint16_t* order) {
  constexpr int kDigit = 9;
  uint16_t other[256];
  int count = 0;
  for (int k = 0; k < 256; ++k)
    if (found[k] != 0) order[count++] = static_cast<uint16_t>(k);
  for (int pass = 0; pass < 2; ++pass) {
    const auto digit = [&](uint16_t byte) {
      return found[byte] >> (pass * kDigit) & ((1 << kDigit) - 1);
    };
    const uint16_t* const from = pass == 0 ? order : other;
    uint16_t* const to = pass == 0 ? other : order;
    uint16_t start[(1 << kDigit) + 1] = {};
    for (int k = 0; k < count; ++k) ++start[digit(from[k]) + 1];
    for (int k = 1; k < 1 << kDigit; ++k) start[k] = static_cast<uint16_t>(start[k] + start[k - 1]);
    for (int k = 0; k < count; ++k) to[start[digit(from[k])]++] = from[k];
  }
  return count;
}

// Assigns Huffman codes. Returns false if fewer than two symbols occur.
inline bool make_codes(const uint32_t* found, SymbolCodes* codes) {
  uint16_t order[256];
  const int count = order_by_count(found, order);
  codes->symbols = 0;
  for (int k = 0; k < 256; ++k) {
    codes->width[k] = 0;
    if (found[k] != 0) codes->symbols = k + 1;
  }
  if (count < 2) return false;
  // Joins the two rarest repeatedly; sums are ascending, so two queues suffice.
  uint64_t weight[512];
  uint16_t parent[512];
  for (int k = 0; k < count; ++k) weight[k] = found[order[k]];
  int leaf = 0, inner = count;
  for (int node = count; node < 2 * count - 1; ++node) {
    weight[node] = 0;
    for (int child = 0; child < 2; ++child) {
      const bool is_leaf = leaf < count && (inner == node || weight[leaf] <= weight[inner]);
      const int taken = is_leaf ? leaf++ : inner++;
      weight[node] += weight[taken];
      parent[taken] = static_cast<uint16_t>(node);
    }
  }
  uint8_t depth[512];
  depth[2 * count - 2] = 0;
  for (int node = 2 * count - 3; node >= 0; --node)
    depth[node] = static_cast<uint8_t>(smaller(depth[parent[node]] + 1, 200));
  // Overlong codes are shortened and rare codes lengthened until the code is complete.
  int64_t room = 1 << kCodeBitsMax;
  for (int k = 0; k < count; ++k) {
    depth[k] = static_cast<uint8_t>(smaller<int>(depth[k], kCodeBitsMax));
    room -= 1 << (kCodeBitsMax - depth[k]);
  }
  for (int k = 0; room < 0; k = (k + 1) % count)
    if (depth[k] < kCodeBitsMax) room += 1 << (kCodeBitsMax - ++depth[k]);
  for (int k = count - 1; room > 0 && k >= 0; --k)
    while (depth[k] > 1 && room >= 1 << (kCodeBitsMax - depth[k]))
      room -= 1 << (kCodeBitsMax - depth[k]--);
  codes->longest = 0;
  int of_width[kCodeBitsMax + 2] = {};
  for (int k = 0; k < count; ++k) {
    codes->width[order[k]] = depth[k];
    ++of_width[depth[k]];
    codes->longest = larger<int>(codes->longest, depth[k]);
  }
  // The longest codes have the lowest values; equal lengths are ordered by symbol.
  uint32_t next[kCodeBitsMax + 2] = {};
  for (int width = codes->longest; width > 1; --width)
    next[width - 1] = (next[width] + static_cast<uint32_t>(of_width[width])) >> 1;
  for (int k = 0; k < codes->symbols; ++k)
    codes->code[k] = static_cast<uint16_t>(codes->width[k] ? next[codes->width[k]]++ : 0);
  return room == 0;
}

// Writes code lengths as weights; returns the end, or null if not representable.
inline uint8_t* write_widths(const SymbolCodes& codes, uint8_t* to) {
  const int count = codes.symbols - 1;  // the last weight is implied
  uint8_t weight[256];
  int32_t found[kCodeBitsMax + 2] = {};
  for (int k = 0; k < count; ++k) {
    weight[k] = codes.width[k] ? static_cast<uint8_t>(codes.longest + 1 - codes.width[k]) : 0;
    ++found[weight[k]];
  }
  bool is_mixed = count >= 2;
  for (int k = 0; k <= kCodeBitsMax; ++k) is_mixed &= found[k] < count;
  if (is_mixed) {
    Counts counts;
    StateWriter states;
    scale_counts(found, kCodeBitsMax + 1, 6, &counts);
    states.build(counts);
    BitWriter out = {write_counts(counts, to + 1), 0, 0};
    uint32_t state[2];
    state[(count - 1) & 1] = states.first(weight[count - 1]);
    state[count & 1] = states.first(weight[count - 2]);
    for (int k = count - 3; k >= 0; --k) {
      state[k & 1] = states.step(state[k & 1], weight[k], &out);
      out.flush();
    }
    states.last(state[1], &out);
    states.last(state[0], &out);
    uint8_t* const end = out.close();
    if (end - to - 1 < 128) {
      *to = static_cast<uint8_t>(end - to - 1);
      return end;
    }
  }
  if (count > 128) return nullptr;
  *to++ = static_cast<uint8_t>(127 + count);
  for (int k = 0; k < count; k += 2)
    *to++ = static_cast<uint8_t>(weight[k] << 4 | (k + 1 < count ? weight[k + 1] : 0));
  return to;
}

}  // namespace zstd
}  // namespace LANCELET_NAMESPACE
