// Exact k-nearest-neighbor search in a column, and distances of single vectors.
#include "top_rows.hpp"
#include "vector_scores.hpp"

namespace LANCELET_NAMESPACE {

int64_t nearest_vectors(ConstBytes vectors, int64_t element_bytes, int64_t dimension,
                        ConstBytes query, int64_t metric, ConstBytes valid,
                        int64_t valid_from, Span<const float> bounds, Span<uint64_t> best_rows,
                        Span<float> best_scores) {
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
