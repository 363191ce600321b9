// The nearest rows of some partitions of an index of vectors, of those that may be found.
//
//     partition 7    rows 300..450 of the segment    scores of these, as their kind of code says
//     best           the `count` smallest scores, a heap whose first is the farthest
//     admitted       looked up only for rows that would get into the heap
//
// Rows that score the same are told apart by their address, the smaller first.
#include "best.hpp"
#include "vector_scores.hpp"

#if defined(__AVX512BW__) && defined(__GNUC__)
#define LANCELET_BOUNDS 1
#endif

namespace LANCELET_NAMESPACE {
namespace {

enum Kind : int64_t {
  kWords = 0,       // codes of a book; what is compared is the query less the centre
  kTable = 1,       // codes of a table that is the same in all partitions
  kBytes = 2,       // bytes, by their squared difference from those of the query
  kProducts = 3,    // bytes, by their product with weights
  kVectors = 4,     // vectors, by a metric
  kRotated = 5,     // numbers of 8 bits whose products are adjusted row by row
  kRotatedWide = 6  // the same with 16 bits
};

constexpr int64_t kStretch = 1024;
constexpr int64_t kEntries = 256;

// Which rows may be found: a byte for each row of each fragment, all where there are no fragments.
struct Admission {
  ConstInts fragments;
  ConstInts starts;
  ConstBytes mask;

  LANCELET_INLINE bool admits(uint64_t address) const {
    const int64_t fragment = static_cast<int64_t>(address >> 32);
    const int64_t offset = static_cast<int64_t>(address & 0xffffffffu);
    int64_t low = 0, high = fragments.size;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (fragments.data[middle] < fragment)
        low = middle + 1;
      else
        high = middle;
    }
    if (low == fragments.size || fragments.data[low] != fragment) return false;
    const int64_t place = starts.data[low] + offset;
    return place < starts.data[low + 1] && mask.data[place] != 0;
  }
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

  // Whether less than half of some rows may be found, by the looks of a few of them.
  LANCELET_INLINE bool admits_few(int64_t first, int64_t count) const {
    constexpr int64_t kLooks = 64;
    if (count < kLooks) return false;
    int64_t admitted = 0;
    for (int64_t k = 0; k < kLooks; ++k)
      admitted += admission.admits(addresses.data[first + k * (count / kLooks)]);
    return admitted < kLooks / 2;
  }

  // Looks at the scores of rows from `first` on; a score that is no number is never kept.
  LANCELET_INLINE void look(int64_t first, int64_t count, const float* scores) {
    for (int64_t k = 0; k < count; ++k) {
      const float score = scores[k];
      if (best.size == best.scores.size && !(score <= best.scores.data[0])) continue;
      if (!(score >= lower) || !(score < upper)) continue;
      const Row row{score, addresses.data[first + k]};
      if (best.takes(row) && admission.admits(row.address)) best.add(row);
    }
  }
};

struct Codes {
  ConstBytes data;
  int64_t row_bytes;
  Span<const float> add, scale;
};

struct Query {
  ConstBytes data;
  Span<const float> words;
  int64_t pieces, metric, element_bytes, dimension;
  float factor, base;
};

// How far the words of each piece are from a query less a centre, 256 entries for each byte.
LANCELET_INLINE void fill_table(const Query& query, const float* center, int64_t words,
                                float* rest, float* table) {
  const int64_t size = query.dimension / query.pieces;
  for (int64_t k = 0; k < query.dimension; ++k) rest[k] = load<float>(query.data.data + k * 4) - center[k];
  float small[kEntries];
  for (int64_t piece = 0; piece < query.pieces; ++piece) {
    float* LANCELET_RESTRICT entries = words == kEntries ? table + piece * kEntries : small + (piece % 2) * 16;
    for (int64_t word = 0; word < words; ++word) entries[word] = 0;
    for (int64_t k = 0; k < size; ++k) {
      const float own = rest[piece * size + k];
      const float* LANCELET_RESTRICT line = query.words.data + (piece * size + k) * words;
      for (int64_t word = 0; word < words; ++word) {
        const float apart = own - line[word];
        entries[word] += apart * apart;
      }
    }
    if (words != kEntries && piece % 2 == 1)
      for (int64_t byte = 0; byte < kEntries; ++byte)
        table[piece / 2 * kEntries + byte] = small[byte & 15] + small[16 + (byte >> 4)];
  }
}

// Adds up entries of a table for rows whose codes lie column by column.
LANCELET_INLINE void add_entries(const uint8_t* codes, int64_t rows, int64_t columns,
                                 int64_t first, int64_t count, const float* table, float base,
                                 float* LANCELET_RESTRICT sums) {
  for (int64_t row = 0; row < count; ++row) sums[row] = base;
  int64_t column = 0;
  for (; column + 4 <= columns; column += 4) {
    const float* t = table + column * kEntries;
    const uint8_t* a = codes + column * rows + first;
    const uint8_t* b = a + rows;
    const uint8_t* c = b + rows;
    const uint8_t* d = c + rows;
    for (int64_t row = 0; row < count; ++row)
      sums[row] += (t[a[row]] + t[kEntries + b[row]]) +
                   (t[2 * kEntries + c[row]] + t[3 * kEntries + d[row]]);
  }
  for (; column < columns; ++column) {
    const float* t = table + column * kEntries;
    const uint8_t* a = codes + column * rows + first;
    for (int64_t row = 0; row < count; ++row) sums[row] += t[a[row]];
  }
}

#if defined(LANCELET_BOUNDS)

// The same sum as that of `add_entries`, of one row.
LANCELET_INLINE float sum_of_row(const uint8_t* codes, int64_t rows, int64_t columns, int64_t row,
                                 const float* table, float base) {
  float sum = base;
  int64_t column = 0;
  for (; column + 4 <= columns; column += 4) {
    const float* t = table + column * kEntries;
    const uint8_t* a = codes + column * rows + row;
    sum += (t[a[0]] + t[kEntries + a[rows]]) +
           (t[2 * kEntries + a[2 * rows]] + t[3 * kEntries + a[3 * rows]]);
  }
  for (; column < columns; ++column)
    sum += table[column * kEntries + codes[column * rows + row]];
  return sum;
}

// A table in bytes, rounded down: a sum of entries is at least `low` and `step` times that of bytes.
struct Bounds {
  uint8_t* bytes;
  float low, step;

  // False if there are no finite bounds.
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

// Which of 64 rows have a sum of bytes that is not above `most`.
__attribute__((target("avx512vbmi,avx512bw,avx512f"))) uint64_t rows_within(
    const uint8_t* codes, int64_t rows, int64_t columns, const uint8_t* bytes, uint16_t most) {
  __m512i first = _mm512_setzero_si512(), second = _mm512_setzero_si512();
  for (int64_t column = 0; column < columns; ++column) {
    const __m512i own = _mm512_loadu_si512(codes + column * rows);
    const uint8_t* entries = bytes + column * kEntries;
    const __m512i low = _mm512_permutex2var_epi8(_mm512_loadu_si512(entries), own,
                                                 _mm512_loadu_si512(entries + 64));
    const __m512i high = _mm512_permutex2var_epi8(_mm512_loadu_si512(entries + 128), own,
                                                  _mm512_loadu_si512(entries + 192));
    const __m512i found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(own), low, high);
    first = _mm512_add_epi16(first, _mm512_cvtepu8_epi16(_mm512_castsi512_si256(found)));
    second = _mm512_add_epi16(second, _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(found, 1)));
  }
  const __m512i bound = _mm512_set1_epi16(static_cast<int16_t>(most));
  const uint64_t low = _mm512_cmple_epu16_mask(first, bound);
  const uint64_t high = _mm512_cmple_epu16_mask(second, bound);
  return low | high << 32;
}

// Looks at 64 rows at a time, of which sums are found only where their bound would get them into
// the heap. Returns how many rows were looked at.
int64_t look_by_bounds(const uint8_t* codes, int64_t start, int64_t length, int64_t columns,
                       const float* table, float base, Bounds bounds, Search& search) {
  constexpr int64_t kMostColumns = 256;  // sums of bytes have 16 bits
  if (columns > kMostColumns || length < 64 || !__builtin_cpu_supports("avx512vbmi") ||
      !bounds.fill(table, columns, base))
    return 0;
  int64_t first = 0;
  for (; first + 64 <= length; first += 64) {
    uint64_t left = ~uint64_t{0};
    // One more than what bounds say, as they are rounded themselves.
    const float most = (search.limit() - bounds.low) / bounds.step + 1;
    if (most < 0) continue;
    if (most < 65535)
      left = rows_within(codes + first, length, columns, bounds.bytes,
                         static_cast<uint16_t>(most));
    for (; left != 0; left &= left - 1) {
      const int64_t row = first + trailing_zeros(left);
      if (!search.admission.admits(search.addresses.data[start + row])) continue;
      const float score = sum_of_row(codes, length, columns, row, table, base);
      search.look(start + row, 1, &score);
    }
  }
  return first;
}

#endif

// Looks up whether rows may be found before they are scored, if few of them may, else after.
template <class Score>
LANCELET_INLINE void each_row(const Codes& codes, int64_t start, int64_t length, Search& search,
                              float* scores, Score score) {
  if (search.admits_few(start, length)) {
    for (int64_t row = start; row < start + length; ++row) {
      if (!search.admission.admits(search.addresses.data[row])) continue;
      const float own = score(codes.data.data + row * codes.row_bytes, row);
      search.look(row, 1, &own);
    }
    return;
  }
  for (int64_t first = 0; first < length; first += kStretch) {
    const int64_t count = smaller(kStretch, length - first);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t row = start + first + k;
      scores[k] = score(codes.data.data + row * codes.row_bytes, row);
    }
    search.look(start + first, count, scores);
  }
}

// What each kind takes of its arguments besides rows; false if something does not fit.
bool fits(int64_t kind, const Codes& codes, const Query& query, Span<const float> centers,
          Span<const float> bases, int64_t partitions, int64_t rows) {
  const int64_t floats = query.data.size / 4;
  switch (kind) {
    case kWords: {
      const int64_t words = query.words.size / query.dimension;
      return query.pieces >= 1 && query.dimension % query.pieces == 0 &&
             query.words.size == words * query.dimension && floats == query.dimension &&
             centers.size == partitions * query.dimension &&
             (words == kEntries ? codes.row_bytes == query.pieces
                                : words == 16 && query.pieces == 2 * codes.row_bytes);
    }
    case kTable:
      return query.words.size == codes.row_bytes * kEntries;
    case kBytes:
      return query.data.size == query.dimension && codes.row_bytes == query.dimension &&
             query.dimension <= 65536;
    case kProducts:
      return floats == query.dimension && codes.row_bytes == query.dimension;
    case kVectors: {
      const int64_t wide = query.element_bytes == 2 ? 4 : query.element_bytes;
      return query.data.size == query.dimension * wide &&
             codes.row_bytes == query.dimension * query.element_bytes;
    }
    case kRotated:
    case kRotatedWide:
      return floats == query.dimension && bases.size == partitions && codes.add.size >= rows &&
             codes.scale.size >= rows &&
             codes.row_bytes == query.dimension * (kind == kRotated ? 1 : 2);
    default:
      return false;
  }
}

}  // namespace

int64_t scan_partitions(int64_t kind, ConstBytes code_bytes, int64_t row_bytes,
                        Span<const float> add, Span<const float> scale, ConstBytes query_bytes,
                        Span<const float> words, int64_t pieces, int64_t metric,
                        int64_t element_bytes, int64_t dimension, Span<const float> numbers,
                        Span<const float> centers, Span<const float> bases, ConstInts starts,
                        ConstInts lengths, Span<const uint64_t> addresses, ConstInts fragments,
                        ConstInts fragment_starts, ConstBytes mask,
                        Span<uint64_t> best_addresses, Span<float> best_scores) {
  if (numbers.size != 4 || starts.size != lengths.size || dimension < 1 || row_bytes < 1 ||
      best_addresses.size != best_scores.size || best_scores.size < 1)
    return fail(kBadCount, 0);
  if (fragment_starts.size != fragments.size + 1 ||
      fragment_starts.data[fragments.size] > mask.size)
    return fail(kBadLength, 0);
  const Codes codes{code_bytes, row_bytes, add, scale};
  const Query query{query_bytes, words,     pieces,          metric, element_bytes,
                    dimension,   numbers.data[2], numbers.data[3]};
  Search search{addresses,
                {fragments, fragment_starts, mask},
                numbers.data[0],
                numbers.data[1],
                {best_scores, best_addresses, 0}};
  int64_t rows = 0;
  for (int64_t place = 0; place < starts.size; ++place) {
    const int64_t start = starts.data[place], length = lengths.data[place];
    if (!within(start, length, addresses.size) || !within(start, length, code_bytes.size / row_bytes))
      return fail(kBadIndex, place);
    rows = larger(rows, start + length);
  }
  if (!fits(kind, codes, query, centers, bases, starts.size, rows)) return fail(kBadLength, 1);
  // Scores of a stretch, the query less a centre, a table, and the same table in bytes.
  const int64_t entries = kind == kWords || kind == kTable ? row_bytes * kEntries : 0;
  float* scratch =
      static_cast<float*>(malloc(static_cast<size_t>(kStretch + dimension + entries) * 4 +
                                 static_cast<size_t>(entries)));
  if (scratch == nullptr) return fail(kNoMemory, 0);
  float* rest = scratch + kStretch;
  float* own_table = rest + dimension;
  [[maybe_unused]] uint8_t* bytes = reinterpret_cast<uint8_t*>(own_table + entries);
  bool is_known = true;
  for (int64_t place = 0; place < starts.size && is_known; ++place) {
    const int64_t start = starts.data[place], length = lengths.data[place];
    switch (kind) {
      case kWords:
      case kTable: {
        if (kind == kWords)
          fill_table(query, centers.data + place * dimension, words.size / dimension, rest,
                     own_table);
        const float* table = kind == kWords ? own_table : words.data;
        int64_t first = 0;
#if defined(LANCELET_BOUNDS)
        first = look_by_bounds(code_bytes.data + start * row_bytes, start, length, row_bytes,
                               table, query.base, {bytes, 0, 0}, search);
#endif
        for (; first < length; first += kStretch) {
          const int64_t count = smaller(kStretch, length - first);
          add_entries(code_bytes.data + start * row_bytes, length, row_bytes, first, count, table,
                      query.base, scratch);
          search.look(start + first, count, scratch);
        }
        break;
      }
      case kBytes:
        each_row(codes, start, length, search, scratch, [&](const uint8_t* own, int64_t) {
          return bytes_apart(own, query.data.data, dimension) * query.factor;
        });
        break;
      case kProducts: {
        const float* weights = reinterpret_cast<const float*>(query.data.data);
        each_row(codes, start, length, search, scratch, [&](const uint8_t* own, int64_t) {
          return query.base + query.factor * weighted<uint8_t>(own, weights, dimension);
        });
        break;
      }
      case kVectors:
        is_known = with_score(query.metric, query.element_bytes, query.data.data, dimension,
                              [&](auto& score) {
                                each_row(codes, start, length, search, scratch,
                                         [&](const uint8_t* own, int64_t) {
                                           return score(own, search.limit());
                                         });
                              });
        break;
      default: {
        const float* weights = reinterpret_cast<const float*>(query.data.data);
        const float near = bases.data[place];
        each_row(codes, start, length, search, scratch, [&](const uint8_t* own, int64_t row) {
          const float product = kind == kRotated ? weighted<uint8_t>(own, weights, dimension)
                                                 : weighted<uint16_t>(own, weights, dimension);
          return near + add.data[row] + scale.data[row] * (product + query.base);
        });
      }
    }
  }
  free(scratch);
  if (!is_known) return fail(kBadCode, 0);
  search.best.sort();
  return search.best.size;
}

}  // namespace LANCELET_NAMESPACE
