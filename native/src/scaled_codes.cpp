// Whole numbers of a few bits that point as vectors do: a vector times a scale, rounded down.
//
//     vector  0.9 0.4    scale 2 -> 1 0, with halves 1.5 0.5     scale 3 -> 2 1, with halves 2.5 1.5
//     how well they point  <x, q + 1/2> / |q + 1/2|              the best of all scales is taken
//
// Numbers change only at scales k / x_i. These are visited in their order, by a heap that has the
// next one of each element.
#include <math.h>

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

struct Step {
  double scale;
  int64_t element;
};

LANCELET_INLINE bool sooner(Step a, Step b) {
  return a.scale < b.scale || (a.scale == b.scale && a.element < b.element);
}

struct Steps {
  Step* items;
  int64_t size;

  LANCELET_INLINE void push(Step item) {
    int64_t at = size++;
    while (at > 0) {
      const int64_t parent = (at - 1) / 2;
      if (!sooner(item, items[parent])) break;
      items[at] = items[parent];
      at = parent;
    }
    items[at] = item;
  }

  LANCELET_INLINE void replace_first(Step item) {
    int64_t at = 0;
    for (;;) {
      int64_t child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && sooner(items[child + 1], items[child])) ++child;
      if (!sooner(items[child], item)) break;
      items[at] = items[child];
      at = child;
    }
    items[at] = item;
  }

  LANCELET_INLINE void drop_first() {
    const Step last = items[--size];
    if (size > 0) replace_first(last);
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
  Steps steps{static_cast<Step*>(malloc(static_cast<size_t>(dimension) * sizeof(Step))), 0};
  int64_t* own = static_cast<int64_t*>(malloc(static_cast<size_t>(dimension) * 8));
  if (steps.items == nullptr || own == nullptr) {
    free(steps.items);
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
    steps.size = 0;
    for (int64_t k = 0; k < dimension; ++k) {
      own[k] = code_at(best_scale, x[k], top);
      const double value = static_cast<double>(own[k]) + 0.5;
      along += value * static_cast<double>(x[k]);
      square += value * value;
      const double next = static_cast<double>(own[k] + 1) / static_cast<double>(x[k]);
      if (x[k] > 0 && own[k] < top && next < last) steps.push({next, k});
    }
    double best = along / sqrt(square);
    while (steps.size > 0) {
      const Step step = steps.items[0];
      const int64_t k = step.element;
      ++own[k];
      along += static_cast<double>(x[k]);
      square += 2 * static_cast<double>(own[k]);
      const double now = along / sqrt(square);
      if (now > best) {
        best = now;
        best_scale = step.scale;
      }
      const double next = static_cast<double>(own[k] + 1) / static_cast<double>(x[k]);
      if (own[k] < top && next < last)
        steps.replace_first({next, k});
      else
        steps.drop_first();
    }
    for (int64_t k = 0; k < dimension; ++k)
      found[k] = static_cast<uint8_t>(code_at(best_scale, x[k], top));
  }
  free(steps.items);
  free(own);
  return 0;
}

}  // namespace LANCELET_NAMESPACE
