// State of a partition search: the prefilter and the best rows.
//
// If most rows are allowed, the prefilter is checked only for rows that qualify for the heap; if
// few are, allowed rows are selected first.
#pragma once

#include "top_rows.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kBatchRows = 1024;

// The prefilter: a byte per row of the segment.
struct Prefilter {
  ConstBytes mask;

  LANCELET_INLINE bool allows(int64_t index) const { return mask.data[index] != 0; }

  // Selects the allowed rows of a range. Returns their number.
  LANCELET_INLINE int64_t select(int64_t first, int64_t num_rows, int64_t* selected) const {
    int64_t count = 0;
    for (int64_t row = first; row < first + num_rows; ++row) {
      selected[count] = row;
      count += mask.data[row] != 0;
    }
    return count;
  }
};

// Query parameters; each code kind uses some of them.
struct Query {
  ConstBytes data;
  Span<const float> codebook;
  int64_t num_sub_vectors, metric, element_bytes, dimension;
  float factor, base;
};

struct Search {
  Span<const uint64_t> addresses;
  Prefilter prefilter;
  float lower, upper;
  TopRows best;

  // Returns the score above which rows are rejected.
  LANCELET_INLINE float limit() const {
    return best.size == best.scores.size ? smaller(upper, best.scores.data[0]) : upper;
  }

  // Estimates from a sample whether less than three quarters of the rows are allowed.
  LANCELET_INLINE bool allows_few(int64_t first, int64_t count) const {
    constexpr int64_t kProbes = 64;
    if (count < kProbes) return false;
    int64_t num_allowed = 0;
    for (int64_t k = 0; k < kProbes; ++k)
      num_allowed += prefilter.allows(first + k * (count / kProbes));
    return num_allowed < kProbes * 3 / 4;
  }

  // Offers a row with its score; NaN is rejected.
  LANCELET_INLINE void add(int64_t index, float score) {
    if (best.size == best.scores.size && !(score <= best.scores.data[0])) return;
    if (!(score >= lower) || !(score < upper)) return;
    const Row row{score, addresses.data[index]};
    if (best.takes(row) && prefilter.allows(index)) best.add(row);
  }

  // Offers consecutive rows.
  LANCELET_INLINE void add_all(int64_t first, int64_t count, const float* scores) {
    for (int64_t k = 0; k < count; ++k) add(first + k, scores[k]);
  }
};

}  // namespace
}  // namespace LANCELET_NAMESPACE
