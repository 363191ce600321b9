// Finding rows among ascending bounds.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

// The part that holds `row`: the last whose bound is not above it, from part `from` on.
// Steps double, so that rows that lie close together are found in a few comparisons.
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
