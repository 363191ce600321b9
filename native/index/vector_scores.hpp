// Distances of vectors from a query, abandoned early above a limit.
//
// Squared differences only add up: once a partial sum exceeds the limit, the rest of the vector is
// not read. Checks cost time, so they pause while few vectors are abandoned.
#pragma once

#include "distances.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kFirstCheck = 2 * kLanes;
constexpr int64_t kTrial = 64;      // vectors per decision
constexpr int64_t kPause = 4096;    // vectors compared without checks during a pause

template <class Element, Metric kMetric>
struct VectorScore {
  using Sum = typename Element::Sum;

  const uint8_t* query;
  int64_t dimension;
  Sum norm;
  int64_t tried, given_up, pause;

  VectorScore(const uint8_t* query_, int64_t dimension_)
      : query(query_), dimension(dimension_), norm(0), tried(0), given_up(0), pause(0) {
    for (int64_t k = 0; k < dimension; ++k) {
      const Sum q = load<Sum>(query + k * static_cast<int64_t>(sizeof(Sum)));
      norm += q * q;
    }
  }

  // Returns the distance, or NaN if it exceeds `limit`.
  LANCELET_INLINE float operator()(const uint8_t* vector, float limit) {
    Sum first, second;
    if (kMetric == kL2 && dimension > kFirstCheck) {
      if (pause > 0) {
        --pause;
      } else {
        if (++tried == kTrial) {
          if (given_up * 4 < tried) pause = kPause;
          tried = given_up = 0;
        }
        if (is_beyond(vector, static_cast<Sum>(limit) * static_cast<Sum>(1.00001), &first)) {
          ++given_up;
          return NAN;
        }
        return static_cast<float>(first);
      }
    }
    add_up<Element, kMetric>(vector, query, dimension, &first, &second);
    if (kMetric == kL2) return static_cast<float>(first);
    if (kMetric == kDot) return static_cast<float>(1 - first);
    return static_cast<float>(1 - first / root_of(norm * second));
  }

  // Sums in the order of `add_up`, with periodic checks against the limit.
  LANCELET_INLINE bool is_beyond(const uint8_t* vector, Sum limit, Sum* distance) const {
    Sums<Sum> sums, none;
    const int64_t whole = dimension / kLanes * kLanes;
    int64_t k = 0;
    for (int64_t check = kFirstCheck; check < whole; check *= 2) {
      add_elements<Element, kL2>(vector, query, k, check, sums, none);
      k = check;
      Sums<Sum> now = sums;
      if (now.total() > limit) return true;
    }
    add_elements<Element, kL2>(vector, query, k, whole, sums, none);
    add_rest<Element, kL2>(vector, query, whole, dimension, sums, none);
    *distance = sums.total();
    return false;
  }
};

struct BitScore {
  const uint8_t* query;
  int64_t dimension;

  LANCELET_INLINE float operator()(const uint8_t* vector, float) const {
    return static_cast<float>(hamming_distance(vector, query, dimension));
  }
};

template <class Element, class Function>
LANCELET_INLINE bool with_metric(int64_t metric, const uint8_t* query, int64_t dimension,
                                 Function function) {
  if (metric == kL2) {
    VectorScore<Element, kL2> score(query, dimension);
    function(score);
  } else if (metric == kCosine) {
    VectorScore<Element, kCosine> score(query, dimension);
    function(score);
  } else if (metric == kDot) {
    VectorScore<Element, kDot> score(query, dimension);
    function(score);
  } else {
    return false;
  }
  return true;
}

// Calls a function with the score of a metric and element type. Returns false if unsupported.
template <class Function>
LANCELET_INLINE bool with_score(int64_t metric, int64_t element_bytes, const uint8_t* query,
                                int64_t dimension, Function function) {
  if (element_bytes == 2) return with_metric<Half>(metric, query, dimension, function);
  if (element_bytes == 4) return with_metric<Plain<float>>(metric, query, dimension, function);
  if (element_bytes == 8) return with_metric<Plain<double>>(metric, query, dimension, function);
  if (element_bytes != 1 || metric != kHamming) return false;
  BitScore score{query, dimension};
  function(score);
  return true;
}

}  // namespace
}  // namespace LANCELET_NAMESPACE
