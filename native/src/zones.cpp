// Smallest and largest value of each zone, at about the speed of memory.
//
// Floats are compared as integers: with the bits below the sign flipped for negative ones, the
// order is the same. NaNs are then whatever lies beyond the infinities, and stand in as the
// largest integer for the minimum and the smallest for the maximum. That is plain integer code
// without branches, which compilers turn into vectors.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

// How a type of value maps to integers of the same order, and back.
template <class T>
struct Whole {
  using Key = T;
  static constexpr bool kHasNan = false;
  static LANCELET_INLINE T key(T value) { return value; }
  static LANCELET_INLINE T value(T key) { return key; }
  static LANCELET_INLINE bool is_nan(T) { return false; }
};

template <class Signed, class Unsigned, Unsigned kInfinity>
struct Float {
  using Key = Signed;
  static constexpr bool kHasNan = true;
  static constexpr Unsigned kBelowSign = static_cast<Unsigned>(~Unsigned{0}) >> 1;
  static LANCELET_INLINE Signed key(Signed bits) {
    return static_cast<Signed>(bits ^ ((bits >> (8 * sizeof(Signed) - 1)) & kBelowSign));
  }
  static LANCELET_INLINE Signed value(Signed key) { return Float::key(key); }
  static LANCELET_INLINE bool is_nan(Signed bits) {
    return (static_cast<Unsigned>(bits) & kBelowSign) > kInfinity;
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

template <class Kind, class Key = typename Kind::Key>
LANCELET_INLINE void look_at(const uint8_t* values, int64_t count, Found<Key>* found) {
  Key low = found->low, high = found->high;
  int64_t nans = 0;
  for (int64_t k = 0; k < count; ++k) {
    const Key raw = load<Key>(values + k * sizeof(Key));
    const Key key = Kind::key(raw);
    if (Kind::kHasNan) {
      const bool nan = Kind::is_nan(raw);
      const Key for_low = nan ? highest<Key>() : key;
      const Key for_high = nan ? lowest<Key>() : key;
      low = for_low < low ? for_low : low;
      high = for_high > high ? for_high : high;
      nans += nan;
    } else {
      low = key < low ? key : low;
      high = key > high ? key : high;
    }
  }
  found->low = low;
  found->high = high;
  found->nans += nans;
}

// The validity bits of rows [row, row + 64), those beyond `rows` clear.
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
      look_at<Kind>(values.data + start * bytes, end - start, &found);
    } else {
      for (int64_t row = start; row < end; row += 64) {
        const int64_t n = smaller<int64_t>(64, end - row);
        uint64_t valid = valid_bits(validity, row, n);
        const uint64_t all = n < 64 ? (uint64_t{1} << n) - 1 : ~uint64_t{0};
        if (valid == all) {
          look_at<Kind>(values.data + row * bytes, n, &found);
          continue;
        }
        found.nulls += n;
        for (; valid; valid &= valid - 1) {
          look_at<Kind>(values.data + (row + trailing_zeros(valid)) * bytes, 1, &found);
          --found.nulls;
        }
      }
    }
    const bool nothing = found.nulls + found.nans == end - start;
    store<Key>(minimum.data + zone * bytes, nothing ? Key{0} : Kind::value(found.low));
    store<Key>(maximum.data + zone * bytes, nothing ? Key{0} : Kind::value(found.high));
    nulls.data[zone] = found.nulls;
    nans.data[zone] = found.nans;
  }
  return nulls.size;
}

}  // namespace

int64_t zone_min_max(ConstBytes values, int64_t kind, int64_t value_bytes, int64_t zone_rows,
                     ConstBytes validity, Bytes minimum, Bytes maximum, Ints nulls, Ints nans) {
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
    case 'f' << 8 | 2: return work(zones_of<Float<int16_t, uint16_t, 0x7c00>>);
    case 'f' << 8 | 4: return work(zones_of<Float<int32_t, uint32_t, 0x7f800000>>);
    case 'f' << 8 | 8: return work(zones_of<Float<int64_t, uint64_t, 0x7ff0000000000000>>);
    default: return fail(kBadWidth, 0);
  }
}

}  // namespace LANCELET_NAMESPACE
