// Randomized Hadamard rotation: four passes of sign flips and a fast Walsh-Hadamard transform.
//
//     [a b c d]  ->  [a+b a-b c+d c-d]  ->  [a+b+c+d a-b+c-d a+b-c-d a-b-c+d], times 1 / sqrt(4)
//
// 16 rows are transposed and rotated together, so that each operation uses whole registers.
#include <math.h>

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kPasses = 4;

// Replaces two elements of all rows by their sum and difference.
LANCELET_INLINE void butterfly(float* LANCELET_RESTRICT low, float* LANCELET_RESTRICT high) {
  for (int64_t row = 0; row < kRows; ++row) {
    const float a = low[row], b = high[row];
    low[row] = a + b;
    high[row] = a - b;
  }
}

LANCELET_INLINE void hadamard(float* values, int64_t count, float scale) {
  for (int64_t step = 1; step < count; step *= 2)
    for (int64_t first = 0; first < count; first += 2 * step)
      for (int64_t k = first; k < first + step; ++k)
        butterfly(values + k * kRows, values + (k + step) * kRows);
  for (int64_t k = 0; k < count * kRows; ++k) values[k] *= scale;
}

LANCELET_INLINE void rotate(float* values, int64_t dimension, const uint8_t* signs) {
  int64_t power = 1;
  while (power * 2 <= dimension) power *= 2;
  const float scale = static_cast<float>(1 / sqrt(static_cast<double>(power)));
  const int64_t bytes = (dimension + 7) / 8, half = dimension / 2;
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    for (int64_t k = 0; k < dimension; ++k)
      if (signs[pass * bytes + k / 8] >> (k % 8) & 1)
        for (int64_t row = 0; row < kRows; ++row) values[k * kRows + row] = -values[k * kRows + row];
    const int64_t first = pass % 2 == 0 ? 0 : dimension - power;
    hadamard(values + first * kRows, power, scale);
    if (power == dimension) continue;
    for (int64_t k = 0; k < half; ++k) butterfly(values + k * kRows, values + (k + half) * kRows);
  }
  if (power != dimension)
    for (int64_t k = 0; k < dimension * kRows; ++k) values[k] *= 0.25f;
}

}  // namespace

int64_t rotate_rows(Span<const float> vectors, int64_t dimension, ConstBytes signs,
                  Span<float> out) {
  if (dimension < 1 || vectors.size != out.size || vectors.size % dimension != 0 ||
      signs.size != kPasses * ((dimension + 7) / 8))
    return fail(kBadLength, 0);
  float* values = static_cast<float*>(malloc(static_cast<size_t>(dimension * kRows) * 4));
  if (values == nullptr) return fail(kNoMemory, 0);
  const int64_t count = vectors.size / dimension;
  for (int64_t first = 0; first < count; first += kRows) {
    const int64_t rows = smaller(kRows, count - first);
    for (int64_t row = 0; row < kRows; ++row) {
      const float* own = vectors.data + (first + smaller(row, rows - 1)) * dimension;
      for (int64_t k = 0; k < dimension; ++k) values[k * kRows + row] = own[k];
    }
    rotate(values, dimension, signs.data);
    for (int64_t row = 0; row < rows; ++row) {
      float* own = out.data + (first + row) * dimension;
      for (int64_t k = 0; k < dimension; ++k) own[k] = values[k * kRows + row];
    }
  }
  free(values);
  return 0;
}

}  // namespace LANCELET_NAMESPACE
