// Scalar quantization of rows to bytes, used for lower bounds of distances.
#include "distances.hpp"

namespace LANCELET_NAMESPACE {
namespace {

template <class Element>
void quantize_each(const uint8_t* vectors, int64_t dimension, const float* center, bool is_normal,
                Bytes numbers, Span<float> squares, Span<float> steps, float* rest) {
  using Sum = typename Element::Sum;
  for (int64_t row = 0; row < steps.size; ++row) {
    const uint8_t* vector = vectors + row * dimension * Element::kBytes;
    uint8_t* own = numbers.data + row * dimension;
    Sum length = 0;
    if (is_normal)
      for (int64_t k = 0; k < dimension; ++k) {
        const Sum x = Element::read(vector + k * Element::kBytes);
        length += x * x;
      }
    const Sum share = is_normal && length > 0 ? 1 / root_of(length) : 1;
    float most = 0, sum = 0;
    for (int64_t k = 0; k < dimension; ++k) {
      const Sum x = Element::read(vector + k * Element::kBytes);
      const float difference = static_cast<float>(x * share - static_cast<Sum>(center[k]));
      rest[k] = difference;
      sum += difference * difference;
      most = larger(most, difference < 0 ? -difference : difference);
    }
    // Rows that cannot be quantized have a NaN step.
    const bool is_finite = sum < 1e30f;
    const float scale = is_finite && most > 1e-20f ? 127 / most : 0;
    for (int64_t k = 0; k < dimension; ++k) {
      const float scaled = is_finite ? rest[k] * scale + 128.5f : 128;
      own[k] = static_cast<uint8_t>(static_cast<int32_t>(scaled));
    }
    squares.data[row] = is_finite ? sum : NAN;
    steps.data[row] = is_finite ? (scale > 0 ? most / 127 : 0) : NAN;
  }
}

}  // namespace

int64_t quantize_rows(ConstBytes vectors, int64_t element_bytes, int64_t dimension,
                   Span<const float> center, int64_t is_normal, Bytes numbers,
                   Span<float> squares, Span<float> steps) {
  if (dimension < 1 || element_bytes < 1 || center.size != dimension || squares.size != steps.size)
    return fail(kBadCount, 0);
  if (numbers.size / dimension != steps.size || numbers.size % dimension != 0 ||
      vectors.size / element_bytes != numbers.size || vectors.size % element_bytes != 0)
    return fail(kBadLength, 0);
  float* rest = static_cast<float*>(malloc(static_cast<size_t>(dimension) * 4));
  if (rest == nullptr) return fail(kNoMemory, 0);
  const auto quantize_with = [&](auto element) {
    quantize_each<decltype(element)>(vectors.data, dimension, center.data, is_normal != 0, numbers,
                                  squares, steps, rest);
    return true;
  };
  bool is_supported = false;
  if (element_bytes == 2) is_supported = quantize_with(Half{});
  if (element_bytes == 4) is_supported = quantize_with(Plain<float>{});
  if (element_bytes == 8) is_supported = quantize_with(Plain<double>{});
  free(rest);
  return is_supported ? 0 : fail(kBadWidth, 0);
}

}  // namespace LANCELET_NAMESPACE
