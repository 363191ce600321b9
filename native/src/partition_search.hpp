// What a search of partitions keeps: which rows may be found, and the best so far.
//
// Where most rows may be found, only those that would get into the heap are looked up; where few
// may, these are picked out first.
#pragma once

#include "best.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kStretch = 1024;

// Which rows may be found: a byte for each row of the segment.
struct Admission {
  ConstBytes mask;

  LANCELET_INLINE bool admits(int64_t place) const { return mask.data[place] != 0; }

  // Keeps the places of rows that may be found, of rows from `first` on. Returns how many they are.
  LANCELET_INLINE int64_t pick(int64_t first, int64_t count, int64_t* picked) const {
    int64_t kept = 0;
    for (int64_t row = first; row < first + count; ++row) {
      picked[kept] = row;
      kept += mask.data[row] != 0;
    }
    return kept;
  }
};

// What a query brings, of which each kind of code takes a part.
struct Query {
  ConstBytes data;
  Span<const float> words;
  int64_t pieces, metric, element_bytes, dimension;
  float factor, base;
};

struct Search {
  Span<const uint64_t> addresses;
  Admission admission;
  float lower, upper;
  Best best;

  // A row whose score is above it is not found.
  LANCELET_INLINE float limit() const {
    return best.size == best.scores.size ? smaller(upper, best.scores.data[0]) : upper;
  }

  // Whether less than most of some rows may be found, by the looks of a few of them.
  LANCELET_INLINE bool admits_few(int64_t first, int64_t count) const {
    constexpr int64_t kLooks = 64;
    if (count < kLooks) return false;
    int64_t admitted = 0;
    for (int64_t k = 0; k < kLooks; ++k)
      admitted += admission.admits(first + k * (count / kLooks));
    return admitted < kLooks * 3 / 4;
  }

  // Looks at the score of a row; one that is no number is never kept.
  LANCELET_INLINE void look_at(int64_t place, float score) {
    if (best.size == best.scores.size && !(score <= best.scores.data[0])) return;
    if (!(score >= lower) || !(score < upper)) return;
    const Row row{score, addresses.data[place]};
    if (best.takes(row) && admission.admits(place)) best.add(row);
  }

  // The same for rows from `first` on.
  LANCELET_INLINE void look(int64_t first, int64_t count, const float* scores) {
    for (int64_t k = 0; k < count; ++k) look_at(first + k, scores[k]);
  }
};

}  // namespace
}  // namespace LANCELET_NAMESPACE
