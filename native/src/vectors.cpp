// Distances between one vector and many.
//
// A sum of floats must be in one order unless told otherwise, and one order is slow. So there are
// kLanes sums side by side, which compilers keep in vector registers, added up at the end. Results
// differ from those of other orders in the last digits, and are the same in every run.
#include <math.h>

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kLanes = 32;

enum Metric : int64_t { kL2 = 0, kCosine = 1, kDot = 2, kHamming = 3 };

struct Half {
  using Sum = float;
  static constexpr int64_t kBytes = 2;
  // Exponents of halves lie 112 below those of floats, and multiplying by 2^112 moves them there,
  // those of numbers too small for an exponent included. Only infinity and NaN need more.
  static LANCELET_INLINE float read(const uint8_t* from) {
    const uint32_t bits = load<uint16_t>(from);
    const float scaled = load_float((bits & 0x7fffu) << 13) * 5.192296858534828e33f;
    const uint32_t special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    uint32_t whole;
    memcpy(&whole, &scaled, 4);
    return load_float(whole | special | (bits & 0x8000u) << 16);
  }
  static LANCELET_INLINE float load_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
  }
};

template <class T>
struct Plain {
  using Sum = T;
  static constexpr int64_t kBytes = sizeof(T);
  static LANCELET_INLINE T read(const uint8_t* from) { return load<T>(from); }
};

#if defined(_MSC_VER)
LANCELET_INLINE float root_of(float value) { return sqrtf(value); }
LANCELET_INLINE double root_of(double value) { return sqrt(value); }
#else
LANCELET_INLINE float root_of(float value) { return __builtin_sqrtf(value); }
LANCELET_INLINE double root_of(double value) { return __builtin_sqrt(value); }
#endif

// The sums over one vector that metrics are made of.
template <class Element, Metric kMetric, class Sum = typename Element::Sum>
LANCELET_INLINE void add_up(const uint8_t* vector, const uint8_t* query, int64_t dimension,
                            Sum* LANCELET_RESTRICT first, Sum* LANCELET_RESTRICT second) {
  Sum a[kLanes] = {}, b[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= dimension; k += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const Sum x = Element::read(vector + (k + lane) * Element::kBytes);
      const Sum q = load<Sum>(query + (k + lane) * static_cast<int64_t>(sizeof(Sum)));
      if (kMetric == kL2) {
        a[lane] += (x - q) * (x - q);
      } else {
        a[lane] += x * q;
        if (kMetric == kCosine) b[lane] += x * x;
      }
    }
  }
  for (int64_t lane = 0; k < dimension; ++k, ++lane) {
    const Sum x = Element::read(vector + k * Element::kBytes);
    const Sum q = load<Sum>(query + k * static_cast<int64_t>(sizeof(Sum)));
    if (kMetric == kL2) {
      a[lane] += (x - q) * (x - q);
    } else {
      a[lane] += x * q;
      if (kMetric == kCosine) b[lane] += x * x;
    }
  }
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane) {
      a[lane] += a[lane + half];
      b[lane] += b[lane + half];
    }
  *first = a[0];
  *second = b[0];
}

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

LANCELET_INLINE uint64_t ones(uint64_t bits) {
  bits -= bits >> 1 & 0x5555555555555555u;
  bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
  bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
  return bits * 0x0101010101010101u >> 56;
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
    uint64_t bits = 0;
    int64_t k = 0;
    for (; k + 8 <= dimension; k += 8)
      bits += ones(load<uint64_t>(vector + k) ^ load<uint64_t>(query.data + k));
    for (; k < dimension; ++k) bits += ones(static_cast<uint64_t>(vector[k] ^ query.data[k]));
    out.data[place] = static_cast<float>(bits);
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
