// Top-k search in partitions of a vector index, with a prefilter.
//
//     partition 7    rows 300..450 of the segment, scored by code kind
//     best           the `count` smallest scores, a heap with the farthest on top
//     allowed        checked only for rows that qualify for the heap
//
// Ties are broken by row address, smallest first.
#include "code_tables.hpp"
#include "parameters.hpp"
#include "row_scores.hpp"
#include "vector_scores.hpp"

namespace LANCELET_NAMESPACE {
namespace {

enum Kind : int64_t {
  kCodebook = 0,       // codebook indices, compared with the query residual
  kTable = 1,       // indices into a table shared by all partitions
  kBytes = 2,       // bytes, by squared distance from the query
  kProducts = 3,    // bytes, by dot product with weights
  kVectors = 4,     // vectors, by metric
  kRotated = 5,     // 8-bit codes with a correction per row
  kRotatedWide = 6  // 16-bit codes with a correction per row
};

struct Codes {
  ConstBytes data;
  int64_t row_bytes;
  Span<const float> add, scale;
  ConstBytes bytes;

  LANCELET_INLINE const uint8_t* row(int64_t index) const { return data.data + index * row_bytes; }
};

// Returns whether the arguments fit the code kind.
bool fits(int64_t kind, const Codes& codes, const Query& query, Span<const float> centers,
          Span<const float> bases, int64_t partitions, int64_t rows) {
  const int64_t floats = query.data.size / 4;
  switch (kind) {
    case kCodebook: {
      const int64_t num_codes = query.codebook.size / query.dimension;
      return query.num_sub_vectors >= 1 && query.dimension % query.num_sub_vectors == 0 &&
             query.codebook.size == num_codes * query.dimension && floats == query.dimension &&
             centers.size == partitions * query.dimension &&
             (num_codes == kEntries ? codes.row_bytes == query.num_sub_vectors
                                : num_codes == 16 && query.num_sub_vectors == 2 * codes.row_bytes);
    }
    case kTable:
      return query.codebook.size == codes.row_bytes * kEntries;
    case kBytes:
      return query.data.size == query.dimension && codes.row_bytes == query.dimension &&
             query.dimension <= 65536 && (codes.add.size == 0 || codes.add.size >= rows);
    case kProducts:
      return floats == query.dimension && codes.row_bytes == query.dimension;
    case kVectors: {
      const int64_t wide = query.element_bytes == 2 ? 4 : query.element_bytes;
      const bool has_bytes = centers.size == partitions * query.dimension &&
                             codes.bytes.size / query.dimension >= rows &&
                             codes.scale.size >= rows &&
                             (query.metric != kL2 || codes.add.size >= rows);
      return query.data.size == query.dimension * wide &&
             codes.row_bytes == query.dimension * query.element_bytes &&
             (codes.bytes.size == 0 || has_bytes);
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

LANCELET_INLINE float squares_of(const uint8_t* bytes, int64_t dimension) {
  int64_t sum = 0;
  for (int64_t k = 0; k < dimension; ++k) sum += int64_t{bytes[k]} * bytes[k];
  return static_cast<float>(sum);
}

// Position of a query relative to a centroid: `offset` is the score of the centroid itself, `base`
// corrects byte products for the bias of 128.
struct Origin {
  float offset, base;
};

LANCELET_INLINE Origin relate(const Query& query, const float* center, float* weights) {
  const bool is_double = query.element_bytes == 8;
  double squares = 0, sum = 0, product = 0, own = 0;
  for (int64_t k = 0; k < query.dimension; ++k) {
    const double q = is_double ? load<double>(query.data.data + k * 8)
                               : static_cast<double>(load<float>(query.data.data + k * 4));
    const double weight = query.metric == kL2 ? q - static_cast<double>(center[k]) : q;
    weights[k] = static_cast<float>(weight);
    squares += weight * weight;
    product += q * static_cast<double>(center[k]);
    own += q * q;
    sum += static_cast<double>(weights[k]);
  }
  if (query.metric == kL2)
    return {static_cast<float>(squares), static_cast<float>(-128 * sum)};
  const double size = query.metric == kCosine && own > 0 ? root_of(own) : 1;
  for (int64_t k = 0; k < query.dimension; ++k)
    weights[k] = static_cast<float>(static_cast<double>(weights[k]) / size);
  return {static_cast<float>(1 - product / size), static_cast<float>(-128 * sum / size)};
}

}  // namespace

int64_t scan_partitions(args::PackedCodes packed, args::CodeQuery scoring, args::Probes probes,
                        Span<const uint64_t> addresses, ConstBytes allowed,
                        Span<uint64_t> best_addresses, Span<float> best_scores) {
  const int64_t kind = packed.kind;
  const ConstBytes code_bytes = packed.codes;
  const int64_t row_bytes = packed.row_bytes;
  const Span<const float> add = packed.add;
  const Span<const float> scale = packed.scale;
  const ConstBytes row_numbers = packed.row_numbers;
  const ConstBytes query_bytes = scoring.query;
  const Span<const float> codebook = scoring.codebook;
  const int64_t num_sub_vectors = scoring.num_sub_vectors;
  const int64_t metric = scoring.metric;
  const int64_t element_bytes = scoring.element_bytes;
  const int64_t dimension = scoring.dimension;
  const Span<const float> numbers = scoring.numbers;
  const Span<const float> centers = probes.centers;
  const Span<const float> bases = probes.bases;
  const ConstInts starts = probes.starts;
  const ConstInts lengths = probes.lengths;
  if (numbers.size != 4 || starts.size != lengths.size || dimension < 1 || row_bytes < 1 ||
      best_addresses.size != best_scores.size || best_scores.size < 1)
    return fail(kBadCount, 0);
  if (allowed.size != addresses.size) return fail(kBadLength, 0);
  const Codes codes{code_bytes, row_bytes, add, scale, row_numbers};
  const Query query{query_bytes, codebook,  num_sub_vectors,          metric, element_bytes,
                    dimension,   numbers.data[2], numbers.data[3]};
  Search search{addresses,
                {allowed},
                numbers.data[0],
                numbers.data[1],
                {best_scores, best_addresses, 0}};
  int64_t rows = 0;
  for (int64_t partition = 0; partition < starts.size; ++partition) {
    const int64_t start = starts.data[partition], length = lengths.data[partition];
    if (!within(start, length, addresses.size) || !within(start, length, code_bytes.size / row_bytes))
      return fail(kBadIndex, partition);
    rows = larger(rows, start + length);
  }
  if (!fits(kind, codes, query, centers, bases, starts.size, rows)) return fail(kBadLength, 1);
  // Scratch: scores of a batch, the query residual, a table, and its (or the weights') bytes.
  const int64_t entries = kind == kCodebook || kind == kTable ? row_bytes * kEntries : 0;
  const int64_t spare = larger(entries, (dimension + 63) / 64 * 64);
  float* scratch = static_cast<float*>(
      malloc(static_cast<size_t>(kBatchRows + dimension + entries) * 4 + static_cast<size_t>(spare)));
  if (scratch == nullptr) return fail(kNoMemory, 0);
  float* rest = scratch + kBatchRows;
  float* own_table = rest + dimension;
  uint8_t* bytes = reinterpret_cast<uint8_t*>(own_table + entries);
  QuantizedWeights quantized{reinterpret_cast<int8_t*>(bytes), 0, 0, 0, 0};
  const bool has_own = kind == kVectors ? row_numbers.size > 0 : kind == kBytes && add.size > 0;
  const bool are_bounded = can_quantize() && (has_own || kind == kProducts || kind == kRotated);
  const Span<const float> none{nullptr, 0};
  const QuantizedRows bounded{kind == kVectors ? row_numbers.data : code_bytes.data, dimension,
                        kind == kProducts ? none : add,
                        kind == kProducts || kind == kBytes ? none : scale};
  bool is_supported = true;
  for (int64_t partition = 0; partition < starts.size && is_supported; ++partition) {
    const int64_t start = starts.data[partition], length = lengths.data[partition];
    switch (kind) {
      case kCodebook:
      case kTable: {
        if (kind == kCodebook)
          fill_table(query, centers.data + partition * dimension, codebook.size / dimension, rest,
                     own_table);
        const float* table = kind == kCodebook ? own_table : codebook.data;
        int64_t first = 0;
#if defined(LANCELET_BOUNDS)
        first = scan_with_bounds(code_bytes.data + start * row_bytes, start, length, row_bytes,
                               table, query.base, {bytes, 0, 0}, search);
#endif
        for (; first < length; first += kBlock) {
          const int64_t count = smaller(kBlock, length - first);
          add_entries(code_bytes.data + (start + first) * row_bytes, count, row_bytes, table,
                      query.base, scratch);
          search.add_all(start + first, count, scratch);
        }
        break;
      }
      case kBytes: {
        float offset = 0;
        if (are_bounded) {
          quantized.take(query.data.data, dimension);
          quantized.scale = -2 * query.factor;
          offset = query.factor * squares_of(query.data.data, dimension);
        }
        each_row(start, length, bounded, quantized, 0, offset, search, [&](int64_t row) {
          return squared_byte_distance(codes.row(row), query.data.data, dimension) * query.factor;
        });
        break;
      }
      case kProducts: {
        const float* weights = reinterpret_cast<const float*>(query.data.data);
        if (are_bounded) quantized.fill(weights, dimension, 127.5f, 0);
        quantized.scale = query.factor;
        each_row(start, length, bounded, quantized, 0, query.base, search, [&](int64_t row) {
          return query.base + query.factor * weighted<uint8_t>(codes.row(row), weights, dimension);
        });
        break;
      }
      case kVectors: {
        Origin origin{0, 0};
        if (are_bounded) {
          origin = relate(query, centers.data + partition * dimension, rest);
          quantized.fill(rest, dimension, 128, 0.5 * root_of(static_cast<double>(dimension)));
        }
        is_supported = with_score(
            query.metric, query.element_bytes, query.data.data, dimension, [&](auto& score) {
              each_row(start, length, bounded, quantized, origin.base, origin.offset, search,
                       [&](int64_t row) { return score(codes.row(row), search.limit()); });
            });
        break;
      }
      default: {
        const float* weights = reinterpret_cast<const float*>(query.data.data);
        const float offset = bases.data[partition];
        if (are_bounded) quantized.fill(weights, dimension, query.factor, 0);
        each_row(start, length, bounded, quantized, query.base, offset, search, [&](int64_t row) {
          const float product = kind == kRotated
                                    ? weighted<uint8_t>(codes.row(row), weights, dimension)
                                    : weighted<uint16_t>(codes.row(row), weights, dimension);
          return offset + add.data[row] + scale.data[row] * (product + query.base);
        });
      }
    }
  }
  free(scratch);
  if (!is_supported) return fail(kBadCode, 0);
  search.best.sort();
  return search.best.size;
}

// Prefilter of a vector index: fragment masks, gathered in index order.
//
//     fragment 4     mask 0 1 1
//     addresses      4:2 4:0 9:1 4:1     of the rows of a partition
//     allowed        1   0   0   1       fragment 9 does not exist
//
// Consecutive rows usually have the same fragment, so the last mask is reused.
namespace {

struct FragmentMask {
  const uint8_t* mask;
  int64_t count;
};

LANCELET_INLINE FragmentMask mask_of(int64_t fragment, ConstInts fragments, ConstInts starts,
                             ConstBytes mask) {
  int64_t low = 0, high = fragments.size;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (fragments.data[middle] < fragment)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == fragments.size || fragments.data[low] != fragment) return {mask.data, 0};
  return {mask.data + starts.data[low], starts.data[low + 1] - starts.data[low]};
}

}  // namespace

int64_t prefilter_rows(Span<const uint64_t> addresses, ConstInts starts, ConstInts lengths,
                   ConstInts fragments, ConstInts fragment_starts, ConstBytes mask,
                   Bytes allowed) {
  if (starts.size != lengths.size || fragment_starts.size != fragments.size + 1)
    return fail(kBadCount, 0);
  if (allowed.size != addresses.size) return fail(kBadLength, 0);
  for (int64_t k = 0; k < fragments.size; ++k)
    if (fragment_starts.data[k] < 0 || fragment_starts.data[k] > fragment_starts.data[k + 1])
      return fail(kBadLength, k);
  if (fragment_starts.data[fragments.size] > mask.size) return fail(kBadLength, fragments.size);
  for (int64_t partition = 0; partition < starts.size; ++partition) {
    const int64_t start = starts.data[partition], length = lengths.data[partition];
    if (!within(start, length, addresses.size)) return fail(kBadIndex, partition);
    int64_t mask_fragment = -1;
    FragmentMask current{mask.data, 0};
    for (int64_t row = start; row < start + length; ++row) {
      const uint64_t address = addresses.data[row];
      const int64_t fragment = static_cast<int64_t>(address >> 32);
      const int64_t offset = static_cast<int64_t>(address & 0xffffffffu);
      if (fragment != mask_fragment) {
        current = mask_of(fragment, fragments, fragment_starts, mask);
        mask_fragment = fragment;
      }
      allowed.data[row] = offset < current.count && current.mask[offset] != 0;
    }
  }
  return 0;
}

}  // namespace LANCELET_NAMESPACE
