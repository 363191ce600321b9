// Minimum and maximum per zone, at memory bandwidth.
//
// Floats are compared as integers: with the bits below the sign flipped for negative numbers, the
// order is the same. NaNs are beyond the infinities, and are replaced by the largest integer for
// the minimum and the smallest for the maximum. This is branch-free integer code, which compilers
// vectorize.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

// Maps values to integers of the same order, and back.
template <class T>
struct Whole {
  using Key = T;
  static LANCELET_INLINE T key(T value) { return value; }
  static LANCELET_INLINE T value(T key) { return key; }
  static LANCELET_INLINE T nan_mask(T) { return 0; }
};

template <class Signed, Signed kInfinity>
struct Float {
  using Key = Signed;
  static constexpr int kSign = 8 * sizeof(Signed) - 1;
  static constexpr Signed kBelowSign = static_cast<Signed>(~(Signed{1} << kSign));
  static LANCELET_INLINE Signed key(Signed bits) {
    return static_cast<Signed>(bits ^ (bits >> kSign & kBelowSign));
  }
  static LANCELET_INLINE Signed value(Signed key) { return Float::key(key); }
  // Returns all ones for NaN, else 0.
  static LANCELET_INLINE Signed nan_mask(Signed bits) {
    return static_cast<Signed>(static_cast<Signed>(kInfinity - (bits & kBelowSign)) >> kSign);
  }
};

template <class Key>
struct Found {
  Key low, high;
  int64_t nans, nulls;
};

template <class Key>
constexpr Key lowest() {
  return static_cast<Key>(-1) < 0 ? static_cast<Key>(Key{1} << (8 * sizeof(Key) - 1)) : 0;
}

template <class Key>
constexpr Key highest() {
  return static_cast<Key>(~lowest<Key>());
}

// Updates minimum and maximum with up to kBlock values, so that the number of NaNs fits a key. With
// kMasked, `valid` is 1 for values that count. Selection by masks of the value's width vectorizes
// on all compilers.
constexpr int64_t kBlock = 16384;

template <class Kind, bool kMasked, class Key = typename Kind::Key>
LANCELET_INLINE void min_max_block(const uint8_t* values, int64_t count, const uint8_t* valid,
                             Found<Key>* found) {
  Key low = found->low, high = found->high, nans = 0;
  for (int64_t k = 0; k < count; ++k) {
    const Key raw = load<Key>(values + k * sizeof(Key));
    const Key key = Kind::key(raw);
    const Key absent = kMasked ? static_cast<Key>(valid[k] - 1) : Key{0};
    const Key nan = Kind::nan_mask(raw);
    const Key drop = static_cast<Key>(absent | nan);
    const Key for_low = static_cast<Key>((key & ~drop) | (highest<Key>() & drop));
    const Key for_high = static_cast<Key>((key & ~drop) | (lowest<Key>() & drop));
    low = for_low < low ? for_low : low;
    high = for_high > high ? for_high : high;
    nans = static_cast<Key>(nans - (nan & ~absent));
  }
  found->low = low;
  found->high = high;
  found->nans += static_cast<int64_t>(nans);
}

// Expands bits to bytes, lowest bit first.
LANCELET_INLINE void expand_bits(uint64_t bits, uint8_t* bytes) {
  for (int k = 0; k < 8; ++k, bits >>= 8) {
    const uint64_t own = (bits & 0xff) * 0x0101010101010101u & 0x8040201008040201u;
    store<uint64_t>(bytes + 8 * k, (own + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u);
  }
}

LANCELET_INLINE int64_t ones(uint64_t bits) {
  bits -= bits >> 1 & 0x5555555555555555u;
  bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return static_cast<int64_t>(bits * 0x0101010101010101u >> 56);
}

// Returns the validity bits of rows [row, row + 64); bits from `rows` on are clear.
LANCELET_INLINE uint64_t valid_bits(ConstBytes validity, int64_t row, int64_t rows) {
  uint64_t bits = 0;
  const int64_t byte = row / 8;
  const int shift = static_cast<int>(row % 8);
  const int64_t bytes = smaller<int64_t>(9, validity.size - byte);
  memcpy(&bits, validity.data + byte, smaller<int64_t>(bytes, 8));
  bits >>= shift;
  if (shift > 0 && bytes == 9) bits |= static_cast<uint64_t>(validity.data[byte + 8]) << (64 - shift);
  return rows < 64 ? bits & ((uint64_t{1} << rows) - 1) : bits;
}

template <class Kind, class Key = typename Kind::Key>
int64_t zones_of(ConstBytes values, int64_t zone_rows, ConstBytes validity, Bytes minimum,
                 Bytes maximum, Ints nulls, Ints nans) {
  constexpr int64_t bytes = sizeof(Key);
  const int64_t rows = values.size / bytes;
  if (validity.size > 0 && validity.size < (rows + 7) / 8) return fail(kTooShort, 0);
  for (int64_t zone = 0; zone < nulls.size; ++zone) {
    const int64_t start = zone * zone_rows;
    const int64_t end = smaller(start + zone_rows, rows);
    Found<Key> found = {highest<Key>(), lowest<Key>(), 0, 0};
    if (validity.size == 0) {
      for (int64_t row = start; row < end; row += kBlock)
        min_max_block<Kind, false>(values.data + row * bytes, smaller(kBlock, end - row), nullptr,
                             &found);
    } else {
      uint8_t valid_bytes[64];
      for (int64_t row = start; row < end; row += 64) {
        const int64_t n = smaller<int64_t>(64, end - row);
        const uint64_t valid = valid_bits(validity, row, n);
        const uint64_t all = n < 64 ? (uint64_t{1} << n) - 1 : ~uint64_t{0};
        if (valid == all) {
          min_max_block<Kind, false>(values.data + row * bytes, n, nullptr, &found);
        } else {
          expand_bits(valid, valid_bytes);
          min_max_block<Kind, true>(values.data + row * bytes, n, valid_bytes, &found);
          found.nulls += n - ones(valid);
        }
      }
    }
    const bool is_empty = found.nulls + found.nans == end - start;
    store<Key>(minimum.data + zone * bytes, is_empty ? Key{0} : Kind::value(found.low));
    store<Key>(maximum.data + zone * bytes, is_empty ? Key{0} : Kind::value(found.high));
    nulls.data[zone] = found.nulls;
    nans.data[zone] = found.nans;
  }
  return nulls.size;
}

// Returns the first eight bytes of a string as a number of the same order, zero-padded.
LANCELET_INLINE uint64_t start_of(const uint8_t* text, int64_t size, const uint8_t* end) {
  uint64_t word = 0;
  if (LANCELET_LIKELY(end - text >= 8))
    word = load<uint64_t>(text);
  else
    memcpy(&word, text, static_cast<size_t>(smaller<int64_t>(size, end - text)));
  word = (word & 0x00FF00FF00FF00FFu) << 8 | (word >> 8 & 0x00FF00FF00FF00FFu);
  word = (word & 0x0000FFFF0000FFFFu) << 16 | (word >> 16 & 0x0000FFFF0000FFFFu);
  word = word << 32 | word >> 32;
  return size >= 8 ? word : size == 0 ? 0 : word & ~uint64_t{0} << (64 - 8 * size);
}

// Returns the length of the common prefix of two strings of at least `most` bytes, or 0 if below 8.
LANCELET_INLINE int64_t shared_bytes(const uint8_t* a, const uint8_t* b, int64_t most) {
  if (most < 8) return 0;
  int64_t k = 0;
  for (; k + 8 <= most; k += 8)
    if (load<uint64_t>(a + k) != load<uint64_t>(b + k)) break;
  if (k + 8 > most && load<uint64_t>(a + most - 8) == load<uint64_t>(b + most - 8)) return most;
  while (k < most && a[k] == b[k]) ++k;
  return k < 8 ? 0 : k;
}

// A string without the common prefix of its zone.
struct Text {
  uint64_t start;
  const uint8_t* data;
  int64_t size;

  // Extends the string by preceding bytes.
  void widen(int64_t bytes, const uint8_t* end) {
    *this = {start_of(data - bytes, size + bytes, end), data - bytes, size + bytes};
  }

  LANCELET_INLINE bool is_below(const Text& other) const {
    if (LANCELET_LIKELY(start != other.start)) return start < other.start;
    if (size <= 8 && other.size <= 8) return size < other.size;
    const int order = memcmp(data, other.data, static_cast<size_t>(smaller(size, other.size)));
    return order != 0 ? order < 0 : size < other.size;
  }
};

template <class Offset>
int64_t zones_of_strings(ConstBytes offsets, ConstBytes data, int64_t zone_rows,
                         ConstBytes validity, Ints minimum, Ints maximum) {
  const int64_t rows = offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1;
  const int64_t zones = rows <= 0 ? 0 : (rows - 1) / zone_rows + 1;
  if (minimum.size != zones || maximum.size != zones) return fail(kOutputFull, 0);
  if (validity.size > 0 && validity.size < (rows + 7) / 8) return fail(kBadCount, 0);
  for (int64_t zone = 0; zone < zones; ++zone) {
    Text low = {}, high = {};
    int64_t lowest_row = -1, highest_row = -1, shared = 0;
    const uint8_t* const data_end = data.data + data.size;
    const int64_t end = smaller((zone + 1) * zone_rows, rows);
    for (int64_t row = zone * zone_rows; row < end; ++row) {
      if (validity.size > 0 && !(validity.data[row / 8] >> (row % 8) & 1)) continue;
      const int64_t start = load<Offset>(offsets.data + row * sizeof(Offset));
      const int64_t stop = load<Offset>(offsets.data + (row + 1) * sizeof(Offset));
      if (start < 0 || stop < start || stop > data.size) return fail(kBadOffsets, row);
      const uint8_t* const whole = data.data + start;
      if (lowest_row < 0) shared = stop - start;
      // A string between two others shares their common prefix.
      const int64_t same =
          lowest_row < 0 ? shared
                         : shared_bytes(whole, low.data - shared, smaller(shared, stop - start));
      if (LANCELET_UNLIKELY(same < shared)) {
        low.widen(shared - same, data_end);
        high.widen(shared - same, data_end);
        shared = same;
      }
      const Text text = {start_of(whole + shared, stop - start - shared, data_end), whole + shared,
                         stop - start - shared};
      if (lowest_row < 0 || text.is_below(low)) low = text, lowest_row = row;
      if (highest_row < 0 || high.is_below(text)) high = text, highest_row = row;
    }
    minimum.data[zone] = lowest_row;
    maximum.data[zone] = highest_row;
  }
  return zones;
}

}  // namespace

int64_t zone_min_max(args::ZoneValues column, int64_t zone_rows, ConstBytes validity, Bytes minimum,
                     Bytes maximum, Ints nulls, Ints nans) {
  const ConstBytes values = column.values;
  const int64_t kind = column.kind;
  const int64_t value_bytes = column.value_bytes;
  if (zone_rows <= 0 || value_bytes <= 0) return fail(kBadWidth, 0);
  const int64_t rows = values.size / value_bytes;
  const int64_t zones = rows / zone_rows + (rows % zone_rows > 0);
  if (nulls.size != zones || nans.size != zones || minimum.size < zones * value_bytes ||
      maximum.size < zones * value_bytes)
    return fail(kOutputFull, 0);
  const auto work = [&](auto zones_of_kind) {
    return zones_of_kind(values, zone_rows, validity, minimum, maximum, nulls, nans);
  };
  switch (kind << 8 | value_bytes) {
    case 'i' << 8 | 1: return work(zones_of<Whole<int8_t>>);
    case 'i' << 8 | 2: return work(zones_of<Whole<int16_t>>);
    case 'i' << 8 | 4: return work(zones_of<Whole<int32_t>>);
    case 'i' << 8 | 8: return work(zones_of<Whole<int64_t>>);
    case 'u' << 8 | 1: return work(zones_of<Whole<uint8_t>>);
    case 'u' << 8 | 2: return work(zones_of<Whole<uint16_t>>);
    case 'u' << 8 | 4: return work(zones_of<Whole<uint32_t>>);
    case 'u' << 8 | 8: return work(zones_of<Whole<uint64_t>>);
    case 'f' << 8 | 2: return work(zones_of<Float<int16_t, 0x7c00>>);
    case 'f' << 8 | 4: return work(zones_of<Float<int32_t, 0x7f800000>>);
    case 'f' << 8 | 8: return work(zones_of<Float<int64_t, 0x7ff0000000000000>>);
    default: return fail(kBadWidth, 0);
  }
}

int64_t zone_min_max_strings(ConstBytes offsets, int64_t offset_bytes, ConstBytes data,
                             int64_t zone_rows, ConstBytes validity, Ints minimum, Ints maximum) {
  if (zone_rows <= 0) return fail(kBadWidth, 0);
  return offset_bytes == 4
             ? zones_of_strings<int32_t>(offsets, data, zone_rows, validity, minimum, maximum)
             : zones_of_strings<int64_t>(offsets, data, zone_rows, validity, minimum, maximum);
}

}  // namespace LANCELET_NAMESPACE
