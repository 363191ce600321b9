// How far one vector is from another, for elements and metrics of every kind.
//
// A sum of floats must be in one order unless told otherwise, and one order is slow. So there are
// kLanes sums side by side, which compilers keep in vector registers, added up at the end. Results
// differ from those of other orders in the last digits, and are the same in every run.
#pragma once

#include <math.h>

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kLanes = 32;

enum Metric : int64_t { kL2 = 0, kCosine = 1, kDot = 2, kHamming = 3 };

struct Half {
  using Sum = float;
  static constexpr int64_t kBytes = 2;
  // Exponents of halves lie 112 below those of floats, and multiplying by 2^112 moves them there,
  // those of numbers too small for an exponent included. Only infinity and NaN need more.
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
};

template <class T>
struct Plain {
  using Sum = T;
  static constexpr int64_t kBytes = sizeof(T);
  static LANCELET_INLINE T read(const uint8_t* from) { return load<T>(from); }
};

#if defined(_MSC_VER)
LANCELET_INLINE float root_of(float value) { return sqrtf(value); }
LANCELET_INLINE double root_of(double value) { return sqrt(value); }
#else
LANCELET_INLINE float root_of(float value) { return __builtin_sqrtf(value); }
LANCELET_INLINE double root_of(double value) { return __builtin_sqrt(value); }
#endif

// The sums over one vector that metrics are made of.
template <class Element, Metric kMetric, class Sum = typename Element::Sum>
LANCELET_INLINE void add_up(const uint8_t* vector, const uint8_t* query, int64_t dimension,
                            Sum* LANCELET_RESTRICT first, Sum* LANCELET_RESTRICT second) {
  Sum a[kLanes] = {}, b[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= dimension; k += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const Sum x = Element::read(vector + (k + lane) * Element::kBytes);
      const Sum q = load<Sum>(query + (k + lane) * static_cast<int64_t>(sizeof(Sum)));
      if (kMetric == kL2) {
        a[lane] += (x - q) * (x - q);
      } else {
        a[lane] += x * q;
        if (kMetric == kCosine) b[lane] += x * x;
      }
    }
  }
  for (int64_t lane = 0; k < dimension; ++k, ++lane) {
    const Sum x = Element::read(vector + k * Element::kBytes);
    const Sum q = load<Sum>(query + k * static_cast<int64_t>(sizeof(Sum)));
    if (kMetric == kL2) {
      a[lane] += (x - q) * (x - q);
    } else {
      a[lane] += x * q;
      if (kMetric == kCosine) b[lane] += x * x;
    }
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) {
      a[lane] += a[lane + half];
      b[lane] += b[lane + half];
    }
  *first = a[0];
  *second = b[0];
}

LANCELET_INLINE uint64_t ones(uint64_t bits) {
  bits -= bits >> 1 & 0x5555555555555555u;
  bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return bits * 0x0101010101010101u >> 56;
}

// How many bits of two vectors differ.
LANCELET_INLINE uint64_t bits_apart(const uint8_t* vector, const uint8_t* query,
                                    int64_t dimension) {
  uint64_t bits = 0;
  int64_t k = 0;
  for (; k + 8 <= dimension; k += 8)
    bits += ones(load<uint64_t>(vector + k) ^ load<uint64_t>(query + k));
  for (; k < dimension; ++k) bits += ones(static_cast<uint64_t>(vector[k] ^ query[k]));
  return bits;
}

// Squared differences of bytes. At most 65536 squares below 2^16: the sum fits.
LANCELET_INLINE float bytes_apart(const uint8_t* vector, const uint8_t* query, int64_t dimension) {
  uint32_t sum = 0;
  for (int64_t k = 0; k < dimension; ++k) {
    const int16_t apart = static_cast<int16_t>(static_cast<int16_t>(vector[k]) - query[k]);
    sum += static_cast<uint32_t>(static_cast<int32_t>(apart) * apart);
  }
  return static_cast<float>(sum);
}

// The product of numbers of 8 or 16 bits with weights.
template <class Value>
LANCELET_INLINE float weighted(const uint8_t* values, const float* weights, int64_t dimension) {
  constexpr int64_t kBytes = sizeof(Value);
  float sums[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= dimension; k += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      sums[lane] +=
          weights[k + lane] * static_cast<float>(load<Value>(values + (k + lane) * kBytes));
  for (int64_t lane = 0; k < dimension; ++k, ++lane)
    sums[lane] += weights[k] * static_cast<float>(load<Value>(values + k * kBytes));
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

}  // namespace
}  // namespace LANCELET_NAMESPACE
