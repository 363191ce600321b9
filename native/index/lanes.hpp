// Vectorized sums: 32 partial sums in registers of any width, added in a fixed order.
//
//     elements   0 1 2 ... 31 | 32 33 ... 63 | 64 65 66
//     sum k      elements k, k + 32, k + 64
//     total      sums at distance 16 are added, then 8, 4, 2 and 1
//
// The order is the same for all register widths, so results differ only by fused multiply-add
// rounding.
#pragma once

#include "kernel.hpp"

#if defined(__AVX2__) && defined(__GNUC__)
// GCC mistakes intrinsics with undefined registers for uninitialized reads.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kLanes = 32;

// Number of 4-byte values in a register.
#if defined(__AVX512F__)
constexpr int64_t kWide = 16;
#elif defined(__AVX__)
constexpr int64_t kWide = 8;
#else
constexpr int64_t kWide = 4;
#endif

// A vector of `kCount` numbers, as a plain array for compilers without vector types.
#if defined(_MSC_VER)
template <class T, int64_t kCount>
struct Vector {
  T at[kCount];
  LANCELET_INLINE T operator[](int64_t k) const { return at[k]; }
  LANCELET_INLINE Vector& operator+=(const Vector& other) {
    for (int64_t k = 0; k < kCount; ++k) at[k] += other.at[k];
    return *this;
  }
  LANCELET_INLINE Vector operator-(const Vector& other) const {
    Vector found = *this;
    for (int64_t k = 0; k < kCount; ++k) found.at[k] -= other.at[k];
    return found;
  }
  LANCELET_INLINE Vector operator*(const Vector& other) const {
    Vector found = *this;
    for (int64_t k = 0; k < kCount; ++k) found.at[k] *= other.at[k];
    return found;
  }
};
#else
template <class T, int64_t kCount>
struct VectorOf {
  typedef T Type __attribute__((vector_size(sizeof(T) * kCount)));
};
template <class T, int64_t kCount>
using Vector = typename VectorOf<T, kCount>::Type;
#endif

template <class T>
struct Sums {
  static constexpr int64_t kWidth = kWide * 4 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kRegisters = kLanes / kWidth;
  using Register = Vector<T, kWidth>;

  Register lanes[kRegisters];

  LANCELET_INLINE Sums() {
    for (int64_t k = 0; k < kRegisters; ++k) lanes[k] = Register{};
  }

  LANCELET_INLINE void add(const T* values) {
    for (int64_t k = 0; k < kRegisters; ++k) lanes[k] += load<Register>(values + k * kWidth);
  }

  // Returns the sum of all lanes. Destroys them.
  LANCELET_INLINE T total() {
    for (int64_t half = kRegisters / 2; half > 0; half /= 2)
      for (int64_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
    return folded<kWidth>(lanes[0]);
  }

  template <int64_t kCount>
  static LANCELET_INLINE T folded(Vector<T, kCount> all) {
    if constexpr (kCount == 2) {
      return all[0] + all[1];
    } else {
      Vector<T, kCount / 2> low, high;
      memcpy(&low, &all, sizeof low);
      memcpy(&high, reinterpret_cast<const uint8_t*>(&all) + sizeof low, sizeof high);
      low += high;
      return folded<kCount / 2>(low);
    }
  }
};

// A register of floats, converted from stored numbers.
using Floats = Vector<float, kWide>;

LANCELET_INLINE Floats floats_of(const float* from) {
  Floats found;
  memcpy(&found, from, sizeof found);
  return found;
}

template <class Value>
LANCELET_INLINE Floats floats_of_whole(const uint8_t* from) {
  static_assert(sizeof(Value) <= 2, "bytes and words");
#if defined(__AVX512F__) && defined(__GNUC__)
  if constexpr (sizeof(Value) == 1)
    return (Floats)_mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  else
    return (Floats)_mm512_cvtepi32_ps(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
#elif defined(__AVX2__) && defined(__GNUC__)
  if constexpr (sizeof(Value) == 1)
    return (Floats)_mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  else
    return (Floats)_mm256_cvtepi32_ps(
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  float found[kWide];
  for (int64_t k = 0; k < kWide; ++k)
    found[k] = static_cast<float>(load<Value>(from + k * static_cast<int64_t>(sizeof(Value))));
  return floats_of(found);
#endif
}

}  // namespace
}  // namespace LANCELET_NAMESPACE
