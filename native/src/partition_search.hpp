// What a search of partitions keeps: which rows may be found, and the best so far.
//
// Where most rows may be found, only those that would get into the heap are looked up; where few
// may, these are picked out first.
#pragma once

#include "top_rows.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kBatchRows = 1024;

// Which rows may be found: a byte for each row of the segment.
struct Prefilter {
  ConstBytes mask;

  LANCELET_INLINE bool allows(int64_t index) const { return mask.data[index] != 0; }

  // Keeps the places of rows that may be found, of rows from `first` on. Returns how many they are.
  LANCELET_INLINE int64_t select(int64_t first, int64_t num_rows, int64_t* selected) const {
    int64_t count = 0;
    for (int64_t row = first; row < first + num_rows; ++row) {
      selected[count] = row;
      count += mask.data[row] != 0;
    }
    return count;
  }
};

// What a query brings, of which each kind of code takes a part.
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

  // A row whose score is above it is not found.
  LANCELET_INLINE float limit() const {
    return best.size == best.scores.size ? smaller(upper, best.scores.data[0]) : upper;
  }

  // Whether less than most of some rows may be found, by the looks of a few of them.
  LANCELET_INLINE bool allows_few(int64_t first, int64_t count) const {
    constexpr int64_t kProbes = 64;
    if (count < kProbes) return false;
    int64_t num_allowed = 0;
    for (int64_t k = 0; k < kProbes; ++k)
      num_allowed += prefilter.allows(first + k * (count / kProbes));
    return num_allowed < kProbes * 3 / 4;
  }

  // Looks at the score of a row; one that is no number is never kept.
  LANCELET_INLINE void add(int64_t index, float score) {
    if (best.size == best.scores.size && !(score <= best.scores.data[0])) return;
    if (!(score >= lower) || !(score < upper)) return;
    const Row row{score, addresses.data[index]};
    if (best.takes(row) && prefilter.allows(index)) best.add(row);
  }

  // The same for rows from `first` on.
  LANCELET_INLINE void add_all(int64_t first, int64_t count, const float* scores) {
    for (int64_t k = 0; k < count; ++k) add(first + k, scores[k]);
  }
};

}  // namespace
}  // namespace LANCELET_NAMESPACE
