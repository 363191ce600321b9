// Sequences of a Zstandard block: literals, then a match with earlier output.
//
//     3 literals, copy 13 bytes from 16 back      a decimal with unchanged high bytes
//
// Lengths and distances are FSE states of three tables with extra bits, all in one stream.
#pragma once
#include "zstd_literals.hpp"

namespace LANCELET_NAMESPACE {
namespace zstd {

constexpr int kLiteralCodes = 36, kMatchCodes = 53, kDistanceCodes = 32;

constexpr uint32_t kLiteralBase[kLiteralCodes] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,  12,   13,   14,   15,    16,    18,
    20, 22, 24, 28, 32, 40, 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
constexpr uint8_t kLiteralBits[kLiteralCodes] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,
                                                 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3,  3,
                                                 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
constexpr uint32_t kMatchBase[kMatchCodes] = {
    3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14,  15,  16,  17,   18,   19,   20,
    21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,  33,  34,  35,   37,   39,   41,
    43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539};
constexpr uint8_t kMatchBits[kMatchCodes] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                             0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                             0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4,
                                             5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

constexpr Counts kLiteralUsual = {
    {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2,
     2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1},
    36, 6};
constexpr Counts kMatchUsual = {
    {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1},
    53, 6};
constexpr Counts kDistanceUsual = {
    {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1},
    29, 5};

// One of the three code types of a sequence.
struct Numbers {
  const uint32_t* base;
  const uint8_t* extra_bits;
  const Counts* usual;
  int codes;
  int log_max;
};

struct DistanceCodes {
  uint32_t base[kDistanceCodes];
  uint8_t bits[kDistanceCodes];
};
constexpr DistanceCodes make_distance_codes() {
  DistanceCodes codes = {};
  for (int k = 0; k < kDistanceCodes; ++k) {
    codes.base[k] = 1u << k;
    codes.bits[k] = static_cast<uint8_t>(k);
  }
  return codes;
}
constexpr DistanceCodes kDistance = make_distance_codes();

constexpr Numbers kLiteralNumbers = {kLiteralBase, kLiteralBits, &kLiteralUsual, kLiteralCodes, 9};
constexpr Numbers kMatchNumbers = {kMatchBase, kMatchBits, &kMatchUsual, kMatchCodes, 9};
constexpr Numbers kDistanceNumbers = {kDistance.base, kDistance.bits, &kDistanceUsual,
                                      kDistanceCodes, 8};

// Output position of a frame, and its repeated distances.
struct Output {
  uint8_t* start;
  uint8_t* to;
  uint8_t* end;       // of the frame
  uint8_t* writable;  // end of writable memory
  int64_t back[3];    // repeated distances
};

struct Tables {
  Table literals, distances, matches;
};

// Reads or reuses a table; returns its size in bytes, or -1.
inline int64_t read_table(int mode, const uint8_t* at, const uint8_t* end, const Numbers& numbers,
                          Table* table) {
  Counts counts;
  switch (mode) {
    case 0:
      fill_table(*numbers.usual, numbers.base, numbers.extra_bits, table);
      return 0;
    case 1:
      if (at >= end || *at >= numbers.codes) return -1;
      table->states[0] = {numbers.base[*at], 0, 0, numbers.extra_bits[*at]};
      table->log = 0;
      table->is_set = true;
      return 1;
    case 2: {
      const int64_t bytes = read_counts(at, end, numbers.log_max, numbers.codes, &counts);
      if (bytes < 0) return -1;
      fill_table(counts, numbers.base, numbers.extra_bits, table);
      return bytes;
    }
    default:
      return table->is_set ? 0 : -1;
  }
}

LANCELET_INLINE void copy_far(uint8_t* to, const uint8_t* from, int64_t length) {
  for (int64_t k = 0; k < length; k += 16) memcpy(to + k, from + k, 16);
}

// Appends literals and a match from `back` bytes before.
LANCELET_INLINE bool append(Output* out, const uint8_t* literals, int64_t count, int64_t back,
                            int64_t length) {
  uint8_t* to = out->to;
  if (LANCELET_UNLIKELY(count + length > out->end - to)) return false;
  if (LANCELET_UNLIKELY(count + length + kOverrun > out->writable - to)) {
    memcpy(to, literals, static_cast<size_t>(count));
    to += count;
    if (back <= 0 || back > to - out->start) return false;
    for (int64_t k = 0; k < length; ++k) to[k] = to[k - back];
    out->to = to + length;
    return true;
  }
  memcpy(to, literals, 16);
  if (LANCELET_UNLIKELY(count > 16)) copy_far(to + 16, literals + 16, count - 16);
  to += count;
  if (LANCELET_UNLIKELY(back <= 0 || back > to - out->start)) return false;
  const uint8_t* from = to - back;
  if (LANCELET_LIKELY(back >= 16)) {
    memcpy(to, from, 16);
    if (LANCELET_UNLIKELY(length > 16)) copy_far(to + 16, from + 16, length - 16);
  } else {
    uint8_t* at = to;
    if (LANCELET_UNLIKELY(back < 8)) {
      // A pattern of period `back` also has any multiple of it as a period.
      uint64_t word = load<uint64_t>(from) & ((1ull << 8 * back) - 1);
      for (int64_t bits = 8 * back; bits < 64; bits *= 2) word |= word << bits;
      store(at, word);
      from = to + 8 - back * ((8 + back - 1) / back);
      at += 8;
    }
    for (; at < to + length; at += 8, from += 8) memcpy(at, from, 8);
  }
  out->to = to + length;
  return true;
}

// Resolves a distance value; small values are repeated distances.
LANCELET_INLINE int64_t resolve_distance(int64_t value, bool has_literals, int64_t* back) {
  if (LANCELET_LIKELY(value > 3)) {
    back[2] = back[1];
    back[1] = back[0];
    return back[0] = value - 3;
  }
  const int64_t index = value - (has_literals ? 1 : 0);
  if (index == 0) return back[0];
  const int64_t found = index == 3 ? back[0] - 1 : back[index];
  if (index > 1) back[2] = back[1];
  back[1] = back[0];
  return back[0] = found;
}

// The last word of up to 16 bytes, whose high bytes the next one repeats. Held in registers, to
// avoid store forwarding stalls.
struct Word {
  int64_t back = 0, low = -1;  // its size and number of literal bytes; -1 if not a word
  uint64_t mask[2] = {}, high[2] = {};

  LANCELET_INLINE void load_previous(int64_t distance, int64_t length, const Output& out) {
    back = distance;
    low = distance - length;
    if (low <= 0 || length <= 0 || back > 16 || back > out.to - out.start ||
        out.writable - out.to < kOverrun) {
      low = -1;
      return;
    }
    mask[0] = low >= 8 ? ~uint64_t{0} : (uint64_t{1} << 8 * low) - 1;
    mask[1] = low <= 8 ? 0 : (uint64_t{1} << 8 * (low - 8)) - 1;
    for (int k = 0; k < 2; ++k) high[k] = load<uint64_t>(out.to - back + 8 * k) & ~mask[k];
  }
  LANCELET_INLINE bool fits(int64_t count, const Output& out) const {
    return count * back <= out.end - out.to && count * back + kOverrun <= out.writable - out.to;
  }
  // Writes the next word; 16 bytes must be writable, and 16 literals readable.
  LANCELET_INLINE void write(const uint8_t* literals, Output* out) const {
    store(out->to, (load<uint64_t>(literals) & mask[0]) | high[0]);
    store(out->to + 8, (load<uint64_t>(literals + 8) & mask[1]) | high[1]);
    out->to += back;
  }
};

// Executes `count` sequences of equal match length and distance: words with some literal low bytes,
// occasionally preceded by further words. Returns the end of the literals, or null.
inline const uint8_t* run_alike(int64_t count, const Tables& tables, const State* of_literals,
                                const uint8_t* literals, const uint8_t* literals_end, Bits* bits,
                                Output* out) {
  const int64_t length = tables.matches.states[0].base;
  Word word;
  word.load_previous(out->back[0], length, *out);
  if (tables.literals.log == 0 && of_literals->extra_bits == 0 && of_literals->base == word.low &&
      count * word.low <= literals_end - literals && word.fits(count, *out)) {
    for (; count > 0; --count, literals += word.low) word.write(literals, out);
    return literals;
  }
  for (;;) {
    bits->refill();
    const int64_t taken = of_literals->base + bits->take(of_literals->extra_bits);
    if (LANCELET_UNLIKELY(taken > literals_end - literals || bits->left < 0)) return nullptr;
    if (LANCELET_LIKELY(taken == word.low && word.fits(1, *out))) {
      word.write(literals, out);
    } else {
      const int64_t back = resolve_distance(1, taken > 0, out->back);
      if (!append(out, literals, taken, back, length)) return nullptr;
      word.load_previous(out->back[0], length, *out);
    }
    literals += taken;
    if (--count == 0) return literals;
    of_literals = &tables.literals.states[of_literals->next + bits->take(of_literals->next_bits)];
  }
}

// Executes the sequences of a block, which must use all its literals.
inline bool run_sequences(const uint8_t* at, const uint8_t* end, const Literals& from,
                          Tables* tables, Output* out) {
  if (end - at < 1) return false;
  int64_t count = *at++;
  if (count >= 128) {
    if (end - at < 2) return false;
    if (count < 255) {
      count = (count - 128) << 8 | *at++;
    } else {
      count = load<uint16_t>(at) + 0x7F00;
      at += 2;
    }
  }
  const uint8_t* literals = from.data;
  const uint8_t* const literals_end = from.data + from.size;
  if (count > 0) {
    if (end - at < 1 || (*at & 3) != 0) return false;
    const int modes = *at++;
    const Numbers* const numbers[] = {&kLiteralNumbers, &kDistanceNumbers, &kMatchNumbers};
    Table* const targets[] = {&tables->literals, &tables->distances, &tables->matches};
    for (int k = 0; k < 3; ++k) {
      const int64_t bytes = read_table(modes >> (6 - 2 * k) & 3, at, end, *numbers[k], targets[k]);
      if (bytes < 0) return false;
      at += bytes;
    }
    Bits bits;
    if (!bits.open(at, end - at)) return false;
    const State* of_literals = &tables->literals.states[bits.take(tables->literals.log)];
    const State* of_distance = &tables->distances.states[bits.take(tables->distances.log)];
    const State* of_match = &tables->matches.states[bits.take(tables->matches.log)];
    const bool is_alike = tables->matches.log == 0 && of_match->extra_bits == 0 &&
                          tables->distances.log == 0 && of_distance->base == 1;
    if (is_alike) {
      literals = run_alike(count, *tables, of_literals, literals, literals_end, &bits, out);
      if (literals == nullptr) return false;
    }
    Word word;
    while (!is_alike) {
      bits.refill();
      const int extra =
          of_distance->extra_bits + of_match->extra_bits + of_literals->extra_bits;
      const int64_t value = of_distance->base + bits.take(of_distance->extra_bits);
      if (LANCELET_UNLIKELY(extra > 30)) bits.refill();
      const int64_t length = of_match->base + bits.take(of_match->extra_bits);
      const int64_t taken = of_literals->base + bits.take(of_literals->extra_bits);
      const int64_t back = resolve_distance(value, taken > 0, out->back);
      if (LANCELET_UNLIKELY(taken > literals_end - literals || bits.left < 0)) return false;
      if ((taken == word.low) & (back == word.back) & (taken + length == back) &&
          word.fits(1, *out)) {
        word.write(literals, out);
      } else {
        if (LANCELET_UNLIKELY(!append(out, literals, taken, back, length))) return false;
        word.load_previous(back, length, *out);
      }
      literals += taken;
      if (--count == 0) break;
      if (LANCELET_UNLIKELY(extra > 30)) bits.refill();
      of_literals = &tables->literals.states[of_literals->next + bits.take(of_literals->next_bits)];
      of_match = &tables->matches.states[of_match->next + bits.take(of_match->next_bits)];
      of_distance = &tables->distances.states[of_distance->next + bits.take(of_distance->next_bits)];
    }
    if (bits.left != 0) return false;
  } else if (at != end) {
    return false;
  }
  const int64_t rest = literals_end - literals;
  if (rest > out->end - out->to) return false;
  if (rest > 0) memcpy(out->to, literals, static_cast<size_t>(rest));
  out->to += rest;
  return true;
}

}  // namespace zstd
}  // namespace LANCELET_NAMESPACE
