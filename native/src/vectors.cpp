// Distances between one vector and many, and what finding clusters takes.
#include "distances.hpp"

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
  for (int64_t place = 0; place < out.size; ++place) {
    const int64_t row = rows.size > 0 ? rows.data[place] : place;
    if (LANCELET_UNLIKELY(row < 0 || row >= count)) return fail(kBadIndex, place);
    Sum first, second;
    add_up<Element, kMetric>(vectors.data + row * bytes, query.data, dimension, &first, &second);
    if (kMetric == kL2) {
      out.data[place] = static_cast<float>(first);
    } else if (kMetric == kDot) {
      out.data[place] = static_cast<float>(1 - first);
    } else {
      const Sum both = norm * second;
      out.data[place] = static_cast<float>(1 - first / root_of(both));
    }
  }
  return 0;
}

int64_t hamming(ConstBytes vectors, int64_t dimension, ConstBytes query, ConstInts rows,
                Span<float> out) {
  const int64_t count = vectors.size / dimension;
  if (query.size != dimension) return fail(kBadLength, 0);
  if (out.size != (rows.size > 0 ? rows.size : count)) return fail(kBadCount, 0);
  for (int64_t place = 0; place < out.size; ++place) {
    const int64_t row = rows.size > 0 ? rows.data[place] : place;
    if (LANCELET_UNLIKELY(row < 0 || row >= count)) return fail(kBadIndex, place);
    const uint8_t* vector = vectors.data + row * dimension;
    out.data[place] = static_cast<float>(bits_apart(vector, query.data, dimension));
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

int64_t pq_distances(ConstBytes codes, Span<const float> table, int64_t count, Span<float> out) {
  const int64_t columns = table.size / 256;
  if (count < 0 || out.size != count || table.size % 256 != 0) return fail(kBadCount, 0);
  if (codes.size != columns * count) return fail(kBadLength, 0);
  // A stretch of rows at a time, so that its sums stay in the nearest cache.
  constexpr int64_t kStretch = 2048;
  for (int64_t start = 0; start < count; start += kStretch) {
    const int64_t rows = smaller(kStretch, count - start);
    float* sums = out.data + start;
    for (int64_t row = 0; row < rows; ++row) sums[row] = 0;
    for (int64_t column = 0; column < columns; ++column) {
      const float* entries = table.data + column * 256;
      const uint8_t* own = codes.data + column * count + start;
      for (int64_t row = 0; row < rows; ++row) sums[row] += entries[own[row]];
    }
  }
  return 0;
}

int64_t sq_distances(ConstBytes codes, ConstBytes query, Span<const float> weights, int64_t metric,
                     Span<float> out) {
  const int64_t dimension = metric == kDot ? weights.size : query.size;
  if (dimension < 1 || dimension > 65536) return fail(kBadCount, 0);
  if (codes.size != dimension * out.size) return fail(kBadLength, 0);
  for (int64_t row = 0; row < out.size; ++row) {
    const uint8_t* own = codes.data + row * dimension;
    if (metric == kDot) {
      float sums[kLanes] = {};
      int64_t k = 0;
      for (; k + kLanes <= dimension; k += kLanes)
        for (int64_t lane = 0; lane < kLanes; ++lane)
          sums[lane] += weights.data[k + lane] * static_cast<float>(own[k + lane]);
      for (int64_t lane = 0; k < dimension; ++k, ++lane)
        sums[lane] += weights.data[k] * static_cast<float>(own[k]);
      for (int64_t half = kLanes / 2; half > 0; half /= 2)
        for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
      out.data[row] = sums[0];
    } else {
      // At most 65536 squares below 2^16: the sum fits.
      uint32_t sum = 0;
      for (int64_t k = 0; k < dimension; ++k) {
        const int32_t apart = static_cast<int32_t>(own[k]) - static_cast<int32_t>(query.data[k]);
        sum += static_cast<uint32_t>(apart * apart);
      }
      out.data[row] = static_cast<float>(sum);
    }
  }
  return 0;
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

int64_t nearest_words(Span<const float> vectors, Span<const float> words, int64_t pieces,
                      int64_t count, Bytes codes, Span<float> distances) {
  constexpr int64_t kWords = 16;
  if (pieces < 1 || count < kWords || count > 256 || count % kWords != 0) return fail(kBadCount, 0);
  const int64_t size = words.size / (pieces * count);
  if (size < 1 || words.size != pieces * count * size) return fail(kBadLength, 0);
  const int64_t rows = vectors.size / (pieces * size);
  if (vectors.size != rows * pieces * size || codes.size != rows * pieces ||
      distances.size != codes.size)
    return fail(kBadLength, 1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const float* LANCELET_RESTRICT own = vectors.data + (row * pieces + piece) * size;
      const float* LANCELET_RESTRICT book = words.data + piece * count * size;
      float best[kWords];
      int32_t which[kWords];
      for (int64_t lane = 0; lane < kWords; ++lane) {
        best[lane] = 3.4028235e38f;
        which[lane] = 0;
      }
      for (int32_t first = 0; first < count; first += kWords) {
        float sums[kWords] = {};
        for (int64_t k = 0; k < size; ++k) {
          const float x = own[k];
          const float* LANCELET_RESTRICT line = book + k * count + first;
          for (int64_t lane = 0; lane < kWords; ++lane) {
            const float apart = x - line[lane];
            sums[lane] += apart * apart;
          }
        }
        for (int64_t lane = 0; lane < kWords; ++lane) {
          const bool is_less = sums[lane] < best[lane];
          best[lane] = is_less ? sums[lane] : best[lane];
          which[lane] = is_less ? first + static_cast<int32_t>(lane) : which[lane];
        }
      }
      int64_t at = 0;
      for (int64_t lane = 1; lane < kWords; ++lane)
        if (best[lane] < best[at] || (best[lane] == best[at] && which[lane] < which[at])) at = lane;
      codes.data[row * pieces + piece] = static_cast<uint8_t>(which[at]);
      distances.data[row * pieces + piece] = best[at];
    }
  }
  return 0;
}

}  // namespace LANCELET_NAMESPACE
