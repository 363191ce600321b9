// Row lookup in ascending bounds.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

// Returns the part that holds `row`: the last with a bound of at most `row`, from part `from` on.
// Gallops, so that nearby rows need few comparisons.
static LANCELET_INLINE int64_t part_of(ConstInts bounds, int64_t from, int64_t row) {
  int64_t low = from;
  int64_t step = 1;
  while (low + step < bounds.size && bounds.data[low + step] <= row) {
    low += step;
    step *= 2;
  }
  int64_t high = smaller(low + step, bounds.size);
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (bounds.data[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace LANCELET_NAMESPACE
