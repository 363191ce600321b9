// Distances between two vectors, for all element types and metrics.
#pragma once

#include <math.h>

#include "lanes.hpp"

namespace LANCELET_NAMESPACE {
namespace {

enum Metric : int64_t { kL2 = 0, kCosine = 1, kDot = 2, kHamming = 3 };

struct Half {
  using Sum = float;
  static constexpr int64_t kBytes = 2;
  // Half-precision exponents are biased by 112 less than single-precision ones. Multiplying by
  // 2^112 corrects them, also for subnormal numbers. Only infinity and NaN need more.
  static LANCELET_INLINE float read(const uint8_t* from) {
    const uint32_t bits = load<uint16_t>(from);
    const float scaled = load_float((bits & 0x7fffu) << 13) * 5.192296858534828e33f;
    const uint32_t special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    uint32_t whole;
    memcpy(&whole, &scaled, 4);
    return load_float(whole | special | (bits & 0x8000u) << 16);
  }
  static LANCELET_INLINE float load_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
  static LANCELET_INLINE Floats read_side_by_side(const uint8_t* from) {
#if defined(__AVX512F__) && defined(__GNUC__)
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__) && defined(__GNUC__)
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#else
    float found[kWide];
    for (int64_t k = 0; k < kWide; ++k) found[k] = read(from + k * kBytes);
    return floats_of(found);
#endif
  }
};

template <class T>
struct Plain {
  using Sum = T;
  static constexpr int64_t kBytes = sizeof(T);
  static LANCELET_INLINE T read(const uint8_t* from) { return load<T>(from); }
  static LANCELET_INLINE typename Sums<T>::Register read_side_by_side(const uint8_t* from) {
    return load<typename Sums<T>::Register>(from);
  }
};

#if defined(_MSC_VER)
LANCELET_INLINE float root_of(float value) { return sqrtf(value); }
LANCELET_INLINE double root_of(double value) { return sqrt(value); }
#else
LANCELET_INLINE float root_of(float value) { return __builtin_sqrtf(value); }
LANCELET_INLINE double root_of(double value) { return __builtin_sqrt(value); }
#endif

// Adds the elements in [first, stop) to the partial sums of a metric.
template <class Element, Metric kMetric, class Sum = typename Element::Sum>
LANCELET_INLINE void add_elements(const uint8_t* vector, const uint8_t* query, int64_t first,
                                  int64_t stop, Sums<Sum>& a, Sums<Sum>& b) {
  using Register = typename Sums<Sum>::Register;
  constexpr int64_t kWidth = Sums<Sum>::kWidth;
  for (int64_t k = first; k + kLanes <= stop; k += kLanes)
    for (int64_t part = 0; part < Sums<Sum>::kRegisters; ++part) {
      const int64_t at = k + part * kWidth;
      const Register x = Element::read_side_by_side(vector + at * Element::kBytes);
      const Register q = load<Register>(query + at * static_cast<int64_t>(sizeof(Sum)));
      if constexpr (kMetric == kL2) {
        const Register difference = x - q;
        a.lanes[part] += difference * difference;
      } else {
        a.lanes[part] += x * q;
        if constexpr (kMetric == kCosine) b.lanes[part] += x * x;
      }
    }
}

// The same for the remaining fewer than kLanes elements.
template <class Element, Metric kMetric, class Sum = typename Element::Sum>
LANCELET_INLINE void add_rest(const uint8_t* vector, const uint8_t* query, int64_t first,
                              int64_t stop, Sums<Sum>& a, Sums<Sum>& b) {
  if (first == stop) return;
  Sum rest[2][kLanes] = {};
  for (int64_t k = first; k < stop; ++k) {
    const Sum x = Element::read(vector + k * Element::kBytes);
    const Sum q = load<Sum>(query + k * static_cast<int64_t>(sizeof(Sum)));
    rest[0][k - first] = kMetric == kL2 ? (x - q) * (x - q) : x * q;
    if constexpr (kMetric == kCosine) rest[1][k - first] = x * x;
  }
  a.add(rest[0]);
  if constexpr (kMetric == kCosine) b.add(rest[1]);
}

// Computes the sums of a metric over one vector.
template <class Element, Metric kMetric, class Sum = typename Element::Sum>
LANCELET_INLINE void add_up(const uint8_t* vector, const uint8_t* query, int64_t dimension,
                            Sum* LANCELET_RESTRICT first, Sum* LANCELET_RESTRICT second) {
  Sums<Sum> a, b;
  const int64_t whole = dimension / kLanes * kLanes;
  add_elements<Element, kMetric>(vector, query, 0, whole, a, b);
  add_rest<Element, kMetric>(vector, query, whole, dimension, a, b);
  *first = a.total();
  *second = kMetric == kCosine ? b.total() : 0;
}

LANCELET_INLINE uint64_t ones(uint64_t bits) {
  bits -= bits >> 1 & 0x5555555555555555u;
  bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return bits * 0x0101010101010101u >> 56;
}

// Returns the number of different bits.
LANCELET_INLINE uint64_t hamming_distance(const uint8_t* vector, const uint8_t* query,
                                    int64_t dimension) {
  uint64_t bits = 0;
  int64_t k = 0;
  for (; k + 8 <= dimension; k += 8)
    bits += ones(load<uint64_t>(vector + k) ^ load<uint64_t>(query + k));
  for (; k < dimension; ++k) bits += ones(static_cast<uint64_t>(vector[k] ^ query[k]));
  return bits;
}

// Returns the squared distance of byte vectors. At most 65536 squares below 2^16 fit the sum.
LANCELET_INLINE float squared_byte_distance(const uint8_t* vector, const uint8_t* query, int64_t dimension) {
  uint32_t sum = 0;
  for (int64_t k = 0; k < dimension; ++k) {
    const int16_t difference = static_cast<int16_t>(static_cast<int16_t>(vector[k]) - query[k]);
    sum += static_cast<uint32_t>(static_cast<int32_t>(difference) * difference);
  }
  return static_cast<float>(sum);
}

// Returns the dot product of 8-bit or 16-bit numbers with weights.
template <class Value>
LANCELET_INLINE float weighted(const uint8_t* values, const float* weights, int64_t dimension) {
  constexpr int64_t kBytes = sizeof(Value);
  Sums<float> sums;
  int64_t k = 0;
  for (; k + kLanes <= dimension; k += kLanes)
    for (int64_t part = 0; part < Sums<float>::kRegisters; ++part) {
      const int64_t at = k + part * kWide;
      sums.lanes[part] += floats_of(weights + at) * floats_of_whole<Value>(values + at * kBytes);
    }
  if (k < dimension) {
    float rest[kLanes] = {};
    for (int64_t lane = 0; k < dimension; ++k, ++lane)
      rest[lane] = weights[k] * static_cast<float>(load<Value>(values + k * kBytes));
    sums.add(rest);
  }
  return sums.total();
}

}  // namespace
}  // namespace LANCELET_NAMESPACE
