// Whole numbers of a few bits that point as vectors do: a vector times a scale, rounded down.
//
//     vector  0.9 0.4    scale 2 -> 1 0, with halves 1.5 0.5     scale 3 -> 2 1, with halves 2.5 1.5
//     how well they point  <x, q + 1/2> / |q + 1/2|              the best of all scales is taken
//
// Numbers change only at scales k / x_i. These are visited in their order: each is put into a bucket
// by its size, where the few that share one are kept in order.
#include <math.h>

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kBucketsMin = 64;
constexpr int64_t kBucketsMax = 4096;

struct Step {
  double scale;
  int32_t element, next;
};

// Steps of one vector; `first` has the first of each bucket, or -1.
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

  // Steps of one element come in their order, and elements do: what is equal is behind.
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

LANCELET_INLINE int64_t code_at(double scale, double x, int64_t top) {
  const double scaled = scale * x + kRounding;
  return scaled < static_cast<double>(top) ? static_cast<int64_t>(scaled) : top;
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
    steps.begin(best_scale, last);
    for (int64_t k = 0; k < dimension; ++k) {
      const double element = static_cast<double>(x[k]);
      own[k] = code_at(best_scale, element, top);
      const double value = static_cast<double>(own[k]) + 0.5;
      along += value * element;
      square += value * value;
      if (!(element > 0)) continue;
      for (int64_t number = own[k] + 1; number <= top; ++number) {
        const double scale = static_cast<double>(number) / element;
        if (!(scale < last)) break;
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
