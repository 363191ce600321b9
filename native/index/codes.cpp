// Scalar quantization of rows to bytes, used for lower bounds of distances.
#include <math.h>

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

// Randomized Hadamard rotation: four passes of sign flips and a fast Walsh-Hadamard transform.
//
//     [a b c d]  ->  [a+b a-b c+d c-d]  ->  [a+b+c+d a-b+c-d a+b-c-d a-b-c+d], times 1 / sqrt(4)
//
// 16 rows are transposed and rotated together, so that each operation uses whole registers.
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

// Low-bit codes that approximate the direction of a vector: the vector times a scale, rounded down.
//
//     vector  0.9 0.4    scale 2 -> 1 0, centered 1.5 0.5     scale 3 -> 2 1, centered 2.5 1.5
//     objective          <x, q + 1/2> / |q + 1/2|, maximized over all scales
//
// Codes change only at scales k / x_i. These are visited in order, by a bucket sort whose buckets
// are sorted lists.
//
// If there are many, an interval that contains the best scale is found first. With A = <x, q + 1/2>
// and S = |q + 1/2|^2, a step at scale t adds k / t to A and 2 k to S. From scale t0 on, A grows at
// most 1 / (2 t0) times as fast as S, and A^2 / S is bounded by its values at the ends of that
// line.
namespace {

constexpr int64_t kBucketsMin = 64;
constexpr int64_t kBucketsMax = 4096;

struct Step {
  double scale;
  int32_t element, next;
};

// Steps of one vector; `first` is the first of each bucket, or -1.
struct Steps {
  Step* items;
  int32_t* first;
  int64_t buckets, size;
  double low, share;

  void begin(double low_, double high) {
    size = 0;
    low = low_;
    share = high > low_ ? static_cast<double>(buckets) / (high - low_) : 0;
    memset(first, 255, static_cast<size_t>(buckets) * 4);
  }

  // Steps are added in element order, so equal scales keep it.
  LANCELET_INLINE void add(double scale, int64_t element) {
    const double where = (scale - low) * share;
    const int64_t bucket =
        where < 1 ? 0 : smaller(static_cast<int64_t>(smaller(where, 1e9)), buckets - 1);
    int32_t* link = first + bucket;
    while (*link >= 0 && items[*link].scale <= scale) link = &items[*link].next;
    items[size] = {scale, static_cast<int32_t>(element), *link};
    *link = static_cast<int32_t>(size++);
  }
};

constexpr double kRounding = 1e-5;
constexpr double kMargin = 2e-5;

LANCELET_INLINE int64_t code_at(double scale, double x, int64_t top) {
  const double scaled = scale * x + kRounding;
  return scaled < static_cast<double>(top) ? static_cast<int64_t>(scaled) : top;
}

constexpr int64_t kEdges = 64;
constexpr int64_t kWorthwhile = 3;  // smaller codes have few steps

// A and S of a vector at evenly spaced scales.
struct Edges {
  double scale[kEdges], along[kEdges], square[kEdges];

  void fill(const float* x, int64_t dimension, double top, double low, double high) {
    for (int64_t edge = 0; edge < kEdges; ++edge) {
      scale[edge] = low + (high - low) * static_cast<double>(edge) / (kEdges - 1);
      along[edge] = square[edge] = 0;
    }
    for (int64_t k = 0; k < dimension; ++k) {
      const double element = static_cast<double>(x[k]);
      for (int64_t edge = 0; edge < kEdges; ++edge) {
        const double scaled = scale[edge] * element + kRounding;
        const double held = scaled < top ? scaled : top;
        const double full = static_cast<double>(static_cast<int32_t>(held)) + 0.5;
        along[edge] += full * element;
        square[edge] += full * full;
      }
    }
  }

  LANCELET_INLINE double at(int64_t edge) const {
    return along[edge] * along[edge] / square[edge];
  }

  // Returns an upper bound of A^2 / S between two scales.
  LANCELET_INLINE double most_from(int64_t edge) const {
    const double most = along[edge] + (square[edge + 1] - square[edge]) / (2 * scale[edge]);
    return larger(at(edge), most * most / square[edge + 1]);
  }
};

// Narrows an interval of scales to the part that contains the best one.
LANCELET_INLINE void narrow(const float* x, int64_t dimension, double top, double* low,
                            double* high) {
  Edges edges;
  edges.fill(x, dimension, top, *low, *high);
  double best = 0;
  for (int64_t edge = 0; edge < kEdges - 1; ++edge) best = larger(best, edges.at(edge));
  int64_t from = kEdges, to = 0;
  for (int64_t edge = 0; edge < kEdges - 1; ++edge) {
    if (!(edges.most_from(edge) * (1 + kMargin) >= best)) continue;
    from = smaller(from, edge);
    to = edge + 1;
  }
  if (from >= to) return;
  // Codes change slightly before their scale because of rounding, hence the margin.
  if (from > 0) *low = edges.scale[from] * (1 - kMargin);
  if (to < kEdges - 1) *high = edges.scale[to] * (1 + kMargin);
}

}  // namespace

int64_t scaled_codes(Span<const float> vectors, int64_t dimension, int64_t bits, int64_t percent,
                     Bytes codes) {
  if (dimension < 1 || bits < 1 || bits > 8 || percent < 0 || percent > 100)
    return fail(kBadCount, 0);
  if (vectors.size % dimension != 0 || codes.size != vectors.size) return fail(kBadLength, 0);
  const int64_t top = (int64_t{1} << bits) - 1;
  int64_t buckets = kBucketsMin;
  while (buckets < kBucketsMax && buckets * 4 < dimension * top) buckets *= 2;
  if (dimension > 0x7fffffff / top) return fail(kBadCount, 1);
  Steps steps{static_cast<Step*>(malloc(static_cast<size_t>(dimension * top) * sizeof(Step))),
              static_cast<int32_t*>(malloc(static_cast<size_t>(buckets) * 4)), buckets, 0, 0, 0};
  int64_t* own = static_cast<int64_t*>(malloc(static_cast<size_t>(dimension) * 8));
  if (steps.items == nullptr || steps.first == nullptr || own == nullptr) {
    free(steps.items);
    free(steps.first);
    free(own);
    return fail(kNoMemory, 0);
  }
  for (int64_t row = 0; row < vectors.size / dimension; ++row) {
    const float* x = vectors.data + row * dimension;
    uint8_t* found = codes.data + row * dimension;
    double highest = 0;
    for (int64_t k = 0; k < dimension; ++k) highest = larger(highest, static_cast<double>(x[k]));
    if (!(highest > 0) || !(highest < HUGE_VAL)) {
      memset(found, 0, static_cast<size_t>(dimension));
      continue;
    }
    const double last = static_cast<double>(top + 10) / highest;
    double best_scale = last * static_cast<double>(percent) / 100, along = 0, square = 0;
    double stop = last;
    if (top >= kWorthwhile) narrow(x, dimension, static_cast<double>(top), &best_scale, &stop);
    steps.begin(best_scale, stop);
    for (int64_t k = 0; k < dimension; ++k) {
      const double element = static_cast<double>(x[k]);
      own[k] = code_at(best_scale, element, top);
      const double value = static_cast<double>(own[k]) + 0.5;
      along += value * element;
      square += value * value;
      if (!(element > 0)) continue;
      for (int64_t number = own[k] + 1; number <= top; ++number) {
        const double scale = static_cast<double>(number) / element;
        if (!(scale < stop)) break;
        steps.add(scale, k);
      }
    }
    double best = along / sqrt(square);
    for (int64_t bucket = 0; bucket < buckets; ++bucket)
      for (int32_t at = steps.first[bucket]; at >= 0; at = steps.items[at].next) {
        const Step& step = steps.items[at];
        const int64_t k = step.element;
        ++own[k];
        along += static_cast<double>(x[k]);
        square += 2 * static_cast<double>(own[k]);
        const double now = along / sqrt(square);
        if (now > best) {
          best = now;
          best_scale = step.scale;
        }
      }
    for (int64_t k = 0; k < dimension; ++k)
      found[k] = static_cast<uint8_t>(code_at(best_scale, x[k], top));
  }
  free(steps.items);
  free(steps.first);
  free(own);
  return 0;
}

}  // namespace LANCELET_NAMESPACE
