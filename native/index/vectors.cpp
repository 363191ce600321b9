// Distances between one vector and many, and k-means and PQ primitives.
#include "distances.hpp"
#include "parameters.hpp"
#include "top_rows.hpp"
#include "vector_scores.hpp"

namespace LANCELET_NAMESPACE {
namespace {

template <class Element, Metric kMetric, class Sum = typename Element::Sum>
int64_t distances(ConstBytes vectors, int64_t dimension, ConstBytes query, ConstInts rows,
                  Span<float> out) {
  const int64_t bytes = dimension * Element::kBytes;
  const int64_t count = vectors.size / bytes;
  if (query.size != dimension * static_cast<int64_t>(sizeof(Sum))) return fail(kBadLength, 0);
  if (out.size != (rows.size > 0 ? rows.size : count)) return fail(kBadCount, 0);
  Sum norm = 0;
  for (int64_t k = 0; k < dimension; ++k) {
    const Sum q = load<Sum>(query.data + k * static_cast<int64_t>(sizeof(Sum)));
    norm += q * q;
  }
  for (int64_t index = 0; index < out.size; ++index) {
    const int64_t row = rows.size > 0 ? rows.data[index] : index;
    if (LANCELET_UNLIKELY(row < 0 || row >= count)) return fail(kBadIndex, index);
    Sum first, second;
    add_up<Element, kMetric>(vectors.data + row * bytes, query.data, dimension, &first, &second);
    if (kMetric == kL2) {
      out.data[index] = static_cast<float>(first);
    } else if (kMetric == kDot) {
      out.data[index] = static_cast<float>(1 - first);
    } else {
      const Sum both = norm * second;
      out.data[index] = static_cast<float>(1 - first / root_of(both));
    }
  }
  return 0;
}

int64_t hamming(ConstBytes vectors, int64_t dimension, ConstBytes query, ConstInts rows,
                Span<float> out) {
  const int64_t count = vectors.size / dimension;
  if (query.size != dimension) return fail(kBadLength, 0);
  if (out.size != (rows.size > 0 ? rows.size : count)) return fail(kBadCount, 0);
  for (int64_t index = 0; index < out.size; ++index) {
    const int64_t row = rows.size > 0 ? rows.data[index] : index;
    if (LANCELET_UNLIKELY(row < 0 || row >= count)) return fail(kBadIndex, index);
    const uint8_t* vector = vectors.data + row * dimension;
    out.data[index] = static_cast<float>(hamming_distance(vector, query.data, dimension));
  }
  return 0;
}

template <class Element>
int64_t by_metric(ConstBytes vectors, int64_t dimension, ConstBytes query, int64_t metric,
                  ConstInts rows, Span<float> out) {
  switch (metric) {
    case kL2:
      return distances<Element, kL2>(vectors, dimension, query, rows, out);
    case kCosine:
      return distances<Element, kCosine>(vectors, dimension, query, rows, out);
    case kDot:
      return distances<Element, kDot>(vectors, dimension, query, rows, out);
    default:
      return fail(kBadCode, 0);
  }
}

}  // namespace

int64_t vector_distances(ConstBytes vectors, int64_t element_bytes, int64_t dimension,
                         ConstBytes query, int64_t metric, ConstInts rows, Span<float> out) {
  if (dimension < 1 || dimension > (int64_t{1} << 40)) return fail(kBadCount, 0);
  if (vectors.size % (dimension * element_bytes) != 0) return fail(kBadLength, 0);
  switch (element_bytes) {
    case 1:
      return metric == kHamming ? hamming(vectors, dimension, query, rows, out) : fail(kBadCode, 0);
    case 2:
      return by_metric<Half>(vectors, dimension, query, metric, rows, out);
    case 4:
      return by_metric<Plain<float>>(vectors, dimension, query, metric, rows, out);
    case 8:
      return by_metric<Plain<double>>(vectors, dimension, query, metric, rows, out);
    default:
      return fail(kBadWidth, 0);
  }
}

int64_t sum_by_label(ConstBytes vectors, int64_t element_bytes, int64_t dimension,
                     ConstInts labels, Span<double> out) {
  if (element_bytes != 4 && element_bytes != 8) return fail(kBadWidth, 0);
  if (dimension < 1 || out.size % dimension != 0) return fail(kBadCount, 0);
  if (vectors.size != labels.size * dimension * element_bytes) return fail(kBadLength, 0);
  const int64_t count = out.size / dimension;
  for (int64_t k = 0; k < out.size; ++k) out.data[k] = 0;
  for (int64_t row = 0; row < labels.size; ++row) {
    const int64_t label = labels.data[row];
    if (LANCELET_UNLIKELY(label < 0 || label >= count)) return fail(kBadIndex, row);
    double* LANCELET_RESTRICT sums = out.data + label * dimension;
    const uint8_t* own = vectors.data + row * dimension * element_bytes;
    if (element_bytes == 4) {
      for (int64_t k = 0; k < dimension; ++k) sums[k] += load<float>(own + k * 4);
    } else {
      for (int64_t k = 0; k < dimension; ++k) sums[k] += load<double>(own + k * 8);
    }
  }
  return 0;
}

namespace {

#if defined(_MSC_VER)
struct Lanes {
  float at[kWide];
};
struct Numbers {
  int32_t at[kWide];
};
LANCELET_INLINE void add_square(Lanes& sums, float x, const Lanes& line) {
  for (int64_t k = 0; k < kWide; ++k) sums.at[k] += (x - line.at[k]) * (x - line.at[k]);
}
LANCELET_INLINE void update_nearest(const Lanes& sums, int32_t first, Lanes& best, Numbers& nearest) {
  for (int32_t k = 0; k < kWide; ++k)
    if (sums.at[k] < best.at[k]) {
      best.at[k] = sums.at[k];
      nearest.at[k] = first;
    }
}
#else
typedef float Lanes __attribute__((vector_size(4 * kWide)));
typedef int32_t Numbers __attribute__((vector_size(4 * kWide)));
LANCELET_INLINE void add_square(Lanes& sums, float x, const Lanes& line) {
  const Lanes difference = x - line;
  sums += difference * difference;
}
LANCELET_INLINE void update_nearest(const Lanes& sums, int32_t first, Lanes& best, Numbers& nearest) {
  const Numbers is_less = sums < best;
  best = is_less ? sums : best;
  nearest = is_less ? first + Numbers{} : nearest;
}
#endif

constexpr int64_t kGroups = 2;

// Finds the nearest of `count` codes for one sub-vector of some rows, several code groups at a
// time.
template <int64_t kRows, int64_t kSideBySide>
LANCELET_INLINE void nearest_of_rows(const float* rows, int64_t stride, const float* codebook,
                                     int64_t count, int64_t size, int64_t num_sub_vectors, uint8_t* codes,
                                     float* distances) {
  Lanes best[kRows];
  Numbers nearest[kRows];
  float far[kWide];
  for (int64_t k = 0; k < kWide; ++k) far[k] = 3.4028235e38f;
  for (int64_t row = 0; row < kRows; ++row) {
    memcpy(&best[row], far, sizeof far);
    memset(&nearest[row], 0, sizeof nearest[row]);
  }
  for (int64_t first = 0; first < count; first += kWide * kSideBySide) {
    Lanes sums[kRows][kSideBySide];
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t group = 0; group < kSideBySide; ++group) sums[row][group] = Lanes{};
    for (int64_t k = 0; k < size; ++k) {
      Lanes lines[kSideBySide];
      for (int64_t group = 0; group < kSideBySide; ++group)
        memcpy(&lines[group], codebook + k * count + first + group * kWide, sizeof(Lanes));
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t group = 0; group < kSideBySide; ++group)
          add_square(sums[row][group], rows[row * stride + k], lines[group]);
    }
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t group = 0; group < kSideBySide; ++group)
        update_nearest(sums[row][group], static_cast<int32_t>(first + group * kWide), best[row],
                  nearest[row]);
  }
  for (int64_t row = 0; row < kRows; ++row) {
    float difference[kWide];
    int32_t firsts[kWide];
    memcpy(difference, &best[row], sizeof difference);
    memcpy(firsts, &nearest[row], sizeof firsts);
    int32_t found = firsts[0];
    float least = difference[0];
    for (int32_t lane = 1; lane < kWide; ++lane) {
      const int32_t code = firsts[lane] + lane;
      if (difference[lane] < least || (difference[lane] == least && code < found)) {
        least = difference[lane];
        found = code;
      }
    }
    codes[row * num_sub_vectors] = static_cast<uint8_t>(found);
    distances[row * num_sub_vectors] = least;
  }
}

template <int64_t kSideBySide>
void nearest_in_codebook(const float* vectors, int64_t rows, const float* codebook, int64_t count,
                     int64_t size, int64_t num_sub_vectors, uint8_t* codes, float* distances) {
  constexpr int64_t kRows = 4;
  const int64_t stride = num_sub_vectors * size;
  int64_t row = 0;
  for (; row + kRows <= rows; row += kRows)
    nearest_of_rows<kRows, kSideBySide>(vectors + row * stride, stride, codebook, count, size, num_sub_vectors,
                                    codes + row * num_sub_vectors, distances + row * num_sub_vectors);
  for (; row < rows; ++row)
    nearest_of_rows<1, kSideBySide>(vectors + row * stride, stride, codebook, count, size, num_sub_vectors,
                                codes + row * num_sub_vectors, distances + row * num_sub_vectors);
}

}  // namespace

int64_t pq_encode(Span<const float> vectors, Span<const float> codebooks, int64_t num_sub_vectors,
                      int64_t count, Bytes codes, Span<float> distances) {
  if (num_sub_vectors < 1 || count < 16 || count > 256 || count % 16 != 0) return fail(kBadCount, 0);
  const int64_t size = codebooks.size / (num_sub_vectors * count);
  if (size < 1 || codebooks.size != num_sub_vectors * count * size) return fail(kBadLength, 0);
  const int64_t rows = vectors.size / (num_sub_vectors * size);
  if (vectors.size != rows * num_sub_vectors * size || codes.size != rows * num_sub_vectors ||
      distances.size != codes.size)
    return fail(kBadLength, 1);
  for (int64_t sub_vector = 0; sub_vector < num_sub_vectors; ++sub_vector) {
    const float* own = vectors.data + sub_vector * size;
    const float* codebook = codebooks.data + sub_vector * count * size;
    if (count % (kGroups * kWide) == 0)
      nearest_in_codebook<kGroups>(own, rows, codebook, count, size, num_sub_vectors, codes.data + sub_vector,
                         distances.data + sub_vector);
    else
      nearest_in_codebook<1>(own, rows, codebook, count, size, num_sub_vectors, codes.data + sub_vector,
                         distances.data + sub_vector);
  }
  return 0;
}

// Exact k-nearest-neighbor search in a column, and distances of single vectors.
int64_t nearest_vectors(args::VectorRows rows, ConstBytes query, int64_t metric, ConstBytes valid,
                        int64_t valid_from, Span<const float> bounds, Span<uint64_t> best_rows,
                        Span<float> best_scores) {
  const ConstBytes vectors = rows.vectors;
  const int64_t element_bytes = rows.element_bytes;
  const int64_t dimension = rows.dimension;
  if (dimension < 1 || dimension > (int64_t{1} << 40) || element_bytes < 1 || element_bytes > 8)
    return fail(kBadCount, 0);
  const int64_t bytes = dimension * element_bytes;
  const int64_t query_bytes = dimension * (element_bytes == 2 ? 4 : element_bytes);
  if (vectors.size % bytes != 0 || query.size != query_bytes || bounds.size != 2 ||
      best_rows.size != best_scores.size || best_rows.size < 1)
    return fail(kBadLength, 0);
  const int64_t count = vectors.size / bytes;
  if (valid_from < 0 || (valid.size > 0 && valid_from + count > valid.size * 8))
    return fail(kBadLength, 1);
  const float lower = bounds.data[0], upper = bounds.data[1];
  TopRows best{best_scores, best_rows, 0};
  const bool is_supported =
      with_score(metric, element_bytes, query.data, dimension, [&](auto& score) {
        for (int64_t row = 0; row < count; ++row) {
          if (valid.size > 0) {
            const int64_t bit = valid_from + row;
            if (!(valid.data[bit >> 3] >> (bit & 7) & 1)) continue;
          }
          const bool is_full = best.size == best.scores.size;
          const float limit = is_full ? smaller(upper, best.scores.data[0]) : upper;
          const float found = score(vectors.data + row * bytes, limit);
          // Without an upper bound, infinite distances are returned; NaN never is.
          if (!(found >= lower) || (found >= upper && upper < HUGE_VALF)) continue;
          const Row own{found, static_cast<uint64_t>(row)};
          if (best.takes(own)) best.add(own);
        }
      });
  if (!is_supported) return fail(kBadWidth, 0);
  best.sort();
  return best.size;
}

int64_t slice_distances(ConstBytes source, ConstInts position, ConstInts size,
                        int64_t element_bytes, int64_t dimension, ConstBytes query,
                        int64_t metric, Span<float> out) {
  if (dimension < 1 || dimension > (int64_t{1} << 40) || element_bytes < 1 || element_bytes > 8)
    return fail(kBadCount, 0);
  const int64_t bytes = dimension * element_bytes;
  if (query.size != dimension * (element_bytes == 2 ? 4 : element_bytes) ||
      position.size != size.size || out.size != size.size)
    return fail(kBadLength, 0);
  for (int64_t row = 0; row < out.size; ++row) {
    if (!within(position.data[row], size.data[row], source.size)) return fail(kOutOfSource, row);
    if (size.data[row] != bytes) return fail(kTooShort, row);
  }
  const bool is_supported =
      with_score(metric, element_bytes, query.data, dimension, [&](auto& score) {
        for (int64_t row = 0; row < out.size; ++row)
          out.data[row] = score(source.data + position.data[row], HUGE_VALF);
      });
  return is_supported ? 0 : fail(kBadWidth, 0);
}

}  // namespace LANCELET_NAMESPACE
