// Scoring by lookup tables: the distances of codes from a query, summed over the sub-vectors.
//
//     sub-vector  0    1    2          codes of a row   7 200 31
//     entries     256  256  256        its distance     t0[7] + t1[200] + t2[31]
//
// Codes are stored in blocks of 64 rows (the last block may be shorter), column by column. Blocks
// are read sequentially, and only as far as a row may still qualify.
#pragma once

#include "lanes.hpp"
#include "partition_search.hpp"

#if defined(__AVX512BW__) && defined(__GNUC__)
#define LANCELET_BOUNDS 1
#endif

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kEntries = 256;
constexpr int64_t kBlock = 64;

// Fills a table with the distances of all codes from a query residual, 256 entries per code byte.
LANCELET_INLINE void fill_table(const Query& query, const float* center, int64_t num_codes,
                                float* rest, float* table) {
  const int64_t size = query.dimension / query.num_sub_vectors;
  for (int64_t k = 0; k < query.dimension; ++k) rest[k] = load<float>(query.data.data + k * 4) - center[k];
  float small[kEntries];
  for (int64_t sub_vector = 0; sub_vector < query.num_sub_vectors; ++sub_vector) {
    float* LANCELET_RESTRICT entries = num_codes == kEntries ? table + sub_vector * kEntries : small + (sub_vector % 2) * 16;
    for (int64_t code = 0; code < num_codes; ++code) entries[code] = 0;
    for (int64_t k = 0; k < size; ++k) {
      const float own = rest[sub_vector * size + k];
      const float* LANCELET_RESTRICT line = query.codebook.data + (sub_vector * size + k) * num_codes;
      for (int64_t code = 0; code < num_codes; ++code) {
        const float difference = own - line[code];
        entries[code] += difference * difference;
      }
    }
    if (num_codes != kEntries && sub_vector % 2 == 1)
      for (int64_t byte = 0; byte < kEntries; ++byte)
        table[sub_vector / 2 * kEntries + byte] = small[byte & 15] + small[16 + (byte >> 4)];
  }
}

// Sums table entries for the rows of a block.
LANCELET_INLINE void add_entries(const uint8_t* codes, int64_t count, int64_t columns,
                                 const float* table, float base, float* LANCELET_RESTRICT sums) {
  for (int64_t row = 0; row < count; ++row) sums[row] = base;
  int64_t column = 0;
  for (; column + 4 <= columns; column += 4) {
    const float* t = table + column * kEntries;
    const uint8_t* a = codes + column * count;
    const uint8_t* b = a + count;
    const uint8_t* c = b + count;
    const uint8_t* d = c + count;
    for (int64_t row = 0; row < count; ++row)
      sums[row] += (t[a[row]] + t[kEntries + b[row]]) +
                   (t[2 * kEntries + c[row]] + t[3 * kEntries + d[row]]);
  }
  for (; column < columns; ++column) {
    const float* t = table + column * kEntries;
    const uint8_t* a = codes + column * count;
    for (int64_t row = 0; row < count; ++row) sums[row] += t[a[row]];
  }
}

#if defined(LANCELET_BOUNDS)

// Returns the sum that `add_entries` computes, for one row of a full block.
LANCELET_INLINE float sum_of_row(const uint8_t* codes, int64_t columns, int64_t row,
                                 const float* table, float base) {
  float sum = base;
  int64_t column = 0;
  for (; column + 4 <= columns; column += 4) {
    const float* t = table + column * kEntries;
    const uint8_t* a = codes + column * kBlock + row;
    sum += (t[a[0]] + t[kEntries + a[kBlock]]) +
           (t[2 * kEntries + a[2 * kBlock]] + t[3 * kEntries + a[3 * kBlock]]);
  }
  for (; column < columns; ++column)
    sum += table[column * kEntries + codes[column * kBlock + row]];
  return sum;
}

// A table quantized to bytes, rounded down: a sum of entries is at least `low` plus `step` times
// the sum of bytes.
struct Bounds {
  uint8_t* bytes;
  float low, step;

  // Returns false for tables without finite bounds.
  bool fill(const float* table, int64_t columns, float base) {
    float widest = 0;
    low = base;
    for (int64_t column = 0; column < columns; ++column) {
      float least, most;
      extremes(table + column * kEntries, &least, &most);
      low += least;
      widest = larger(widest, most - least);
    }
    step = widest / 255;
    if (!(step > 0) || !(step < 1e30f) || !(low > -1e30f && low < 1e30f)) return false;
    const float scale = 1 / step;
    for (int64_t column = 0; column < columns; ++column) {
      const float* entries = table + column * kEntries;
      float least, most;
      extremes(entries, &least, &most);
      uint8_t* own = bytes + column * kEntries;
      for (int64_t k = 0; k < kEntries; ++k) {
        const int32_t whole = static_cast<int32_t>((entries[k] - least) * scale);
        own[k] = static_cast<uint8_t>(whole > 255 ? 255 : whole);
      }
    }
    return true;
  }

  static LANCELET_INLINE void extremes(const float* entries, float* least, float* most) {
    float low_lanes[16], high_lanes[16];
    for (int64_t lane = 0; lane < 16; ++lane) low_lanes[lane] = high_lanes[lane] = entries[lane];
    for (int64_t k = 16; k < kEntries; k += 16)
      for (int64_t lane = 0; lane < 16; ++lane) {
        const float entry = entries[k + lane];
        low_lanes[lane] = entry < low_lanes[lane] ? entry : low_lanes[lane];
        high_lanes[lane] = entry > high_lanes[lane] ? entry : high_lanes[lane];
      }
    *least = low_lanes[0];
    *most = high_lanes[0];
    for (int64_t lane = 1; lane < 16; ++lane) {
      *least = smaller(*least, low_lanes[lane]);
      *most = larger(*most, high_lanes[lane]);
    }
  }
};

// Returns a mask of the rows in `left` whose sum of bytes is at most `most`. Sums only grow, so the
// remaining columns are skipped once the mask is empty.
__attribute__((target("avx512vbmi,avx512bw,avx512f"))) uint64_t rows_within(
    const uint8_t* codes, int64_t columns, const uint8_t* bytes, uint16_t most, uint64_t left) {
  constexpr int64_t kColumnsPerCheck = 8;
  const __m512i bound = _mm512_set1_epi16(static_cast<int16_t>(most));
  __m512i first = _mm512_setzero_si512(), second = _mm512_setzero_si512();
  for (int64_t column = 0; column < columns && left != 0;) {
    const int64_t stop = smaller(column + kColumnsPerCheck, columns);
    for (; column < stop; ++column) {
      const __m512i own = _mm512_loadu_si512(codes + column * kBlock);
      const uint8_t* entries = bytes + column * kEntries;
      const __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(entries), own,
                                                   _mm512_loadu_si512(entries + 64));
      const __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(entries + 128), own,
                                                    _mm512_loadu_si512(entries + 192));
      const __m512i found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(own), low, high);
      first = _mm512_add_epi16(first, _mm512_cvtepu8_epi16(_mm512_castsi512_si256(found)));
      second = _mm512_add_epi16(second, _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(found, 1)));
    }
    const uint64_t low = _mm512_cmple_epu16_mask(first, bound);
    const uint64_t high = _mm512_cmple_epu16_mask(second, bound);
    left &= low | high << 32;
  }
  return left;
}

// Scans full blocks and scores only rows whose bound qualifies for the heap. Returns the number of
// rows scanned.
int64_t scan_with_bounds(const uint8_t* codes, int64_t start, int64_t length, int64_t columns,
                       const float* table, float base, Bounds bounds, Search& search) {
  constexpr int64_t kMostColumns = 256;  // sums of bytes have 16 bits
  if (columns > kMostColumns || length < kBlock || !__builtin_cpu_supports("avx512vbmi") ||
      !bounds.fill(table, columns, base))
    return 0;
  int64_t first = 0;
  for (; first + kBlock <= length; first += kBlock) {
    const uint8_t* block = codes + first * columns;
    const __m512i allowed = _mm512_loadu_si512(search.prefilter.mask.data + start + first);
    uint64_t left = _mm512_test_epi8_mask(allowed, allowed);
    // Adds one, since the bounds are rounded too.
    const float most = (search.limit() - bounds.low) / bounds.step + 1;
    if (most < 0 || left == 0) continue;
    if (most < 65535)
      left = rows_within(block, columns, bounds.bytes, static_cast<uint16_t>(most), left);
    for (; left != 0; left &= left - 1) {
      const int64_t row = trailing_zeros(left);
      search.add(start + first + row, sum_of_row(block, columns, row, table, base));
    }
  }
  return first;
}

#endif

}  // namespace
}  // namespace LANCELET_NAMESPACE
