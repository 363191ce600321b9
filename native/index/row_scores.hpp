// Scoring of partition rows: byte dot products give lower bounds that reject most rows.
//
// Scores of many kinds have the form offset + add + scale * (<weights, numbers> + base), where the
// numbers of a row are bytes, or approximately so. With weights quantized to bytes, the product is
// much cheaper and yields a lower bound of the score:
//
//     weight      3.1 -0.4      in steps of 0.025      124 -16
//     number      0..31         midpoint 15.5, so a remainder r contributes at most 15.5 * |r|
//
// Only rows whose bound qualifies for the heap are scored exactly.
#pragma once

#include "distances.hpp"
#include "partition_search.hpp"

#if defined(__AVX512BW__) && defined(__GNUC__)
#define LANCELET_QUANTIZED 1
#endif

namespace LANCELET_NAMESPACE {
namespace {

// Inputs of the bounds: bytes of each row; an empty `scale` is the same for all rows.
struct QuantizedRows {
  const uint8_t* bytes;
  int64_t dimension;
  Span<const float> add, scale;
};

// Weights quantized to bytes. The exact product is `step` times the byte product plus `shift`, with
// an error of at most `slack`. `step` 0 means that there are no bounds.
struct QuantizedWeights {
  int8_t* weights;
  float step, shift, slack, scale;

  // Row numbers are in [0, 2 * middle], with an error of norm `error`.
  void fill(const float* exact, int64_t dimension, float middle, double error) {
    float most = 0;
    for (int64_t k = 0; k < dimension; ++k) most = larger(most, exact[k] < 0 ? -exact[k] : exact[k]);
    step = most / 127;
    if (!(step > 1e-30f) || !(step < 1e30f)) {
      step = 0;
      return;
    }
    double rest = 0, absolute_rest = 0, size = 0, squares = 0;
    for (int64_t k = 0; k < dimension; ++k) {
      const float scaled = exact[k] / step;
      const int32_t whole = static_cast<int32_t>(scaled + (scaled < 0 ? -0.5f : 0.5f));
      weights[k] = static_cast<int8_t>(whole);
      const double own = static_cast<double>(exact[k]);
      const double left = own - static_cast<double>(step) * whole;
      rest += left;
      absolute_rest += left < 0 ? -left : left;
      size += own < 0 ? -own : own;
      squares += own * own;
    }
    fill_up(dimension);
    shift = static_cast<float>(middle * rest);
    // Includes rounding of the sums.
    slack = static_cast<float>(middle * (absolute_rest + 2e-5 * size) + error * root_of(squares));
  }

  // Sets weights to bytes minus 128.
  void take(const uint8_t* bytes, int64_t dimension) {
    for (int64_t k = 0; k < dimension; ++k) weights[k] = static_cast<int8_t>(bytes[k] ^ 128);
    fill_up(dimension);
    step = 1;
    shift = slack = 0;
  }

  void fill_up(int64_t dimension) {
    for (int64_t k = dimension; k % 64 != 0; ++k) weights[k] = 0;
  }
};

#if defined(LANCELET_QUANTIZED)

constexpr int64_t kGroup = 16;
constexpr int64_t kSums = 4;

LANCELET_INLINE bool can_quantize() { return __builtin_cpu_supports("avx512vnni"); }

// Loads numbers of 16 rows, directly if the rows are consecutive.
LANCELET_INLINE __m512 of_rows(Span<const float> numbers, const int64_t* rows, float fallback) {
  if (numbers.size == 0) return _mm512_set1_ps(fallback);
  if (rows[kGroup - 1] - rows[0] == kGroup - 1) return _mm512_loadu_ps(numbers.data + rows[0]);
  float found[kGroup];
  for (int64_t k = 0; k < kGroup; ++k) found[k] = numbers.data[rows[k]];
  return _mm512_loadu_ps(found);
}

// Sums four registers; the total of register k fills lanes 4 * k to 4 * k + 3.
LANCELET_INLINE __m512i totals_of(const __m512i* sums) {
  const __m512i first = _mm512_add_epi32(_mm512_shuffle_i32x4(sums[0], sums[1], 0x44),
                                         _mm512_shuffle_i32x4(sums[0], sums[1], 0xee));
  const __m512i second = _mm512_add_epi32(_mm512_shuffle_i32x4(sums[2], sums[3], 0x44),
                                          _mm512_shuffle_i32x4(sums[2], sums[3], 0xee));
  const __m512i four = _mm512_add_epi32(_mm512_shuffle_i32x4(first, second, 0x88),
                                        _mm512_shuffle_i32x4(first, second, 0xdd));
  const __m512i two = _mm512_add_epi32(four, _mm512_shuffle_epi32(four, _MM_PERM_BADC));
  return _mm512_add_epi32(two, _mm512_shuffle_epi32(two, _MM_PERM_CDAB));
}

// Returns a mask of the 16 rows whose score may be at most `limit`, or NaN.
__attribute__((target("avx512vnni"))) uint32_t rows_below(const QuantizedRows& numbers,
                                                           const int64_t* rows,
                                                           const QuantizedWeights& quantized, float base,
                                                           float offset, float limit) {
  const int64_t dimension = numbers.dimension, whole = dimension / 64 * 64;
  const __mmask64 rest = (__mmask64{1} << (dimension - whole)) - 1;
  __m512i products = _mm512_setzero_si512();
  for (int64_t group = 0; group < kSums; ++group) {
    const uint8_t* own[kSums];
    __m512i sums[kSums];
#pragma GCC unroll 4
    for (int64_t k = 0; k < kSums; ++k) {
      own[k] = numbers.bytes + rows[k * kSums + group] * dimension;
      sums[k] = _mm512_setzero_si512();
    }
    for (int64_t at = 0; at < whole; at += 64) {
      const __m512i weights = _mm512_loadu_si512(quantized.weights + at);
#pragma GCC unroll 4
      for (int64_t k = 0; k < kSums; ++k)
        sums[k] = _mm512_dpbusd_epi32(sums[k], _mm512_loadu_si512(own[k] + at), weights);
    }
    if (rest != 0) {
      const __m512i weights = _mm512_loadu_si512(quantized.weights + whole);
#pragma GCC unroll 4
      for (int64_t k = 0; k < kSums; ++k)
        sums[k] = _mm512_dpbusd_epi32(sums[k], _mm512_maskz_loadu_epi8(rest, own[k] + whole),
                                      weights);
    }
    // Each total fills four lanes, of which each group uses one.
    products = _mm512_mask_mov_epi32(products, static_cast<__mmask16>(0x1111 << group),
                                     totals_of(sums));
  }
  const __m512 add = of_rows(numbers.add, rows, 0);
  const __m512 scale = of_rows(numbers.scale, rows, quantized.scale);
  const __m512 product = _mm512_add_ps(
      _mm512_mul_ps(_mm512_cvtepi32_ps(products), _mm512_set1_ps(quantized.step)),
      _mm512_set1_ps(quantized.shift + base));
  const __m512 size = _mm512_add_ps(_mm512_abs_ps(add), _mm512_set1_ps(offset < 0 ? -offset : offset));
  const __m512 slack =
      _mm512_add_ps(_mm512_mul_ps(_mm512_abs_ps(scale), _mm512_set1_ps(quantized.slack)),
                    _mm512_mul_ps(size, _mm512_set1_ps(1e-5f)));
  const __m512 score = _mm512_add_ps(_mm512_add_ps(add, _mm512_set1_ps(offset)),
                                     _mm512_mul_ps(scale, product));
  return _mm512_cmp_ps_mask(_mm512_sub_ps(score, slack), _mm512_set1_ps(limit), _CMP_NGT_UQ);
}

#else

LANCELET_INLINE bool can_quantize() { return false; }

#endif

// Scores the rows of a partition; if few are allowed, only these.
template <class Score>
LANCELET_INLINE void each_row(int64_t start, int64_t length, [[maybe_unused]] const QuantizedRows& numbers,
                              [[maybe_unused]] const QuantizedWeights& quantized, [[maybe_unused]] float base,
                              [[maybe_unused]] float offset, Search& search, Score score) {
  int64_t rows[kBatchRows];
  const bool is_selective = search.allows_few(start, length);
  for (int64_t first = start; first < start + length; first += kBatchRows) {
    int64_t count = smaller(kBatchRows, start + length - first);
    if (is_selective) {
      count = search.prefilter.select(first, count, rows);
    } else {
      for (int64_t k = 0; k < count; ++k) rows[k] = first + k;
    }
    int64_t done = 0;
#if defined(LANCELET_QUANTIZED)
    if (quantized.step > 0)
      for (; done + kGroup <= count; done += kGroup) {
        uint64_t left = rows_below(numbers, rows + done, quantized, base, offset, search.limit());
        for (; left != 0; left &= left - 1) {
          const int64_t row = rows[done + trailing_zeros(left)];
          search.add(row, score(row));
        }
      }
#endif
    for (; done < count; ++done) search.add(rows[done], score(rows[done]));
  }
}

}  // namespace
}  // namespace LANCELET_NAMESPACE
