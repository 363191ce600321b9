// XXH64 of byte strings and of fixed-width values.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint64_t kP1 = 0x9E3779B185EBCA87u, kP2 = 0xC2B2AE3D27D4EB4Fu,
                   kP3 = 0x165667B19E3779F9u, kP4 = 0x85EBCA77C2B2AE63u,
                   kP5 = 0x27D4EB2F165667C5u;

LANCELET_INLINE uint64_t rotate(uint64_t value, int bits) {
  return value << bits | value >> (64 - bits);
}

LANCELET_INLINE uint64_t mix_lane(uint64_t lane, uint64_t word) {
  return rotate(lane + word * kP2, 31) * kP1;
}

LANCELET_INLINE uint64_t xxh64(const uint8_t* at, int64_t size, uint64_t seed) {
  const uint8_t* end = at + size;
  uint64_t hash = seed + kP5;
  if (size >= 32) {
    uint64_t lanes[4] = {seed + kP1 + kP2, seed + kP2, seed, seed - kP1};
    for (; end - at >= 32; at += 32)
      for (int k = 0; k < 4; ++k) lanes[k] = mix_lane(lanes[k], load<uint64_t>(at + 8 * k));
    hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = (hash ^ mix_lane(0, lane)) * kP1 + kP4;
  }
  hash += static_cast<uint64_t>(size);
  for (; end - at >= 8; at += 8)
    hash = rotate(hash ^ mix_lane(0, load<uint64_t>(at)), 27) * kP1 + kP4;
  if (end - at >= 4) {
    hash = rotate(hash ^ load<uint32_t>(at) * kP1, 23) * kP2 + kP3;
    at += 4;
  }
  for (; at < end; ++at) hash = rotate(hash ^ *at * kP5, 11) * kP1;
  hash = (hash ^ hash >> 33) * kP2;
  hash = (hash ^ hash >> 29) * kP3;
  return hash ^ hash >> 32;
}

template <class Offset>
int64_t hash_rows(ConstBytes offsets, ConstBytes data, uint64_t seed, Span<uint64_t> hashes) {
  const int64_t rows = offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1;
  if (rows > hashes.size) return fail(kOutputFull, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t start = load<Offset>(offsets.data + row * sizeof(Offset));
    const int64_t stop = load<Offset>(offsets.data + (row + 1) * sizeof(Offset));
    if (start < 0 || stop < start || stop > data.size) return fail(kBadOffsets, row);
    hashes.data[row] = xxh64(data.data + start, stop - start, seed);
  }
  return rows;
}

// With a constant width, the compiler unrolls the hash.
template <int64_t kBytes>
int64_t hash_fixed(ConstBytes values, uint64_t seed, Span<uint64_t> hashes) {
  const int64_t rows = values.size / kBytes;
  if (rows > hashes.size) return fail(kOutputFull, 0);
  for (int64_t row = 0; row < rows; ++row)
    hashes.data[row] = xxh64(values.data + row * kBytes, kBytes, seed);
  return rows;
}

}  // namespace

int64_t xxh64_fixed(ConstBytes values, int64_t value_bytes, uint64_t seed,
                    Span<uint64_t> hashes) {
  switch (value_bytes) {
    case 1: return hash_fixed<1>(values, seed, hashes);
    case 2: return hash_fixed<2>(values, seed, hashes);
    case 4: return hash_fixed<4>(values, seed, hashes);
    case 8: return hash_fixed<8>(values, seed, hashes);
    default: return fail(kBadWidth, 0);
  }
}

int64_t xxh64_many(ConstBytes offsets, int64_t offset_bytes, ConstBytes data, uint64_t seed,
                   Span<uint64_t> hashes) {
  return offset_bytes == 4 ? hash_rows<int32_t>(offsets, data, seed, hashes)
                           : hash_rows<int64_t>(offsets, data, seed, hashes);
}

// Hash lookup of keys through an index of buckets.

#if defined(_MSC_VER)
#define LANCELET_PREFETCH(at) ((void)(at))
#else
#define LANCELET_PREFETCH(at) __builtin_prefetch(at)
#endif
namespace {

// Lookups whose memory accesses overlap.
constexpr int64_t kBatch = 256;

// Filter bits per bucket (log2), and in total, so that the filter stays in the cache.
constexpr int64_t kFilterShift = 3, kFilterBitsMax = 22;

LANCELET_INLINE int64_t bucket_of(uint64_t hash, int64_t bits) {
  return static_cast<int64_t>(hash >> (64 - bits));
}

// One bit for the upper bits of each hash; most other hashes hit a zero.
struct Filter {
  uint64_t* words = nullptr;
  int64_t bits = 0;

  ~Filter() { free(words); }

  bool build(Span<const uint64_t> hashes, int64_t num_bits) {
    bits = larger<int64_t>(num_bits, 6);
    words = static_cast<uint64_t*>(calloc(size_t(1) << (bits - 6), sizeof(uint64_t)));
    if (words == nullptr) return false;
    for (int64_t i = 0; i < hashes.size; ++i) {
      const int64_t bit = bucket_of(hashes.data[i], bits);
      words[bit >> 6] |= uint64_t(1) << (bit & 63);
    }
    return true;
  }

  LANCELET_INLINE int64_t may_contain(uint64_t hash) const {
    const int64_t bit = bucket_of(hash, bits);
    return static_cast<int64_t>(words[bit >> 6] >> (bit & 63) & 1);
  }
};

}  // namespace

int64_t mix_integers(Span<const uint64_t> values, uint64_t seed, Span<uint64_t> out) {
  if (out.size < values.size) return fail(kOutputFull, 0);
  for (int64_t i = 0; i < values.size; ++i) {
    uint64_t mixed = values.data[i] ^ seed;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
    out.data[i] = mixed ^ mixed >> 31;
  }
  return values.size;
}

int64_t bucket_rows(Span<const uint64_t> hashes, int64_t bits, Span<int32_t> starts,
                    Span<int32_t> rows) {
  const int64_t count = hashes.size;
  if (bits < 1 || bits > 31 || count > INT32_MAX) return fail(kBadWidth, 0);
  const int64_t buckets = int64_t(1) << bits;
  if (starts.size != buckets + 1 || rows.size < count) return fail(kOutputFull, 0);
  memset(starts.data, 0, size_t(starts.size) * sizeof(int32_t));
  for (int64_t i = 0; i < count; ++i) ++starts.data[bucket_of(hashes.data[i], bits)];
  int32_t total = 0;
  for (int64_t bucket = 0; bucket <= buckets; ++bucket) {
    const int32_t size = starts.data[bucket];
    starts.data[bucket] = total;
    total += size;
  }
  // Filling advances each start to the next bucket; they are shifted back below.
  for (int64_t i = 0; i < count; ++i)
    rows.data[starts.data[bucket_of(hashes.data[i], bits)]++] = int32_t(i);
  for (int64_t bucket = buckets; bucket > 0; --bucket)
    starts.data[bucket] = starts.data[bucket - 1];
  starts.data[0] = 0;
  return count;
}

int64_t match_hashes(Span<const int32_t> starts, Span<const uint64_t> ordered,
                    Span<const uint64_t> probes, int64_t bits, Span<int32_t> out) {
  if (bits < 1 || bits > 31 || starts.size != (int64_t(1) << bits) + 1)
    return fail(kBadWidth, 0);
  if (out.size < probes.size) return fail(kOutputFull, 0);
  int32_t before = 0;
  for (int64_t bucket = 0; bucket < starts.size; ++bucket) {
    if (starts.data[bucket] < before) return fail(kBadOffsets, 0);
    before = starts.data[bucket];
  }
  if (starts.data[0] != 0 || before != ordered.size) return fail(kBadOffsets, 0);
  Filter filter;
  const bool is_filtered =
      probes.size / 4 > ordered.size && bits + kFilterShift <= kFilterBitsMax;
  if (is_filtered && !filter.build(ordered, bits + kFilterShift)) return fail(kNoMemory, 0);
  for (int64_t first = 0; first < probes.size; first += kBatch) {
    const uint64_t* keys = probes.data + first;
    int32_t* found = out.data + first;
    int64_t count = smaller(kBatch, probes.size - first);
    int64_t chosen[kBatch];
    int64_t num_chosen = 0;
    for (int64_t i = 0; i < count; ++i) {
      found[i] = -1;
      chosen[num_chosen] = i;
      num_chosen += is_filtered ? filter.may_contain(keys[i]) : 1;
    }
    for (int64_t i = 0; i < num_chosen; ++i)
      LANCELET_PREFETCH(starts.data + bucket_of(keys[chosen[i]], bits));
    for (int64_t i = 0; i < num_chosen; ++i)
      LANCELET_PREFETCH(ordered.data + starts.data[bucket_of(keys[chosen[i]], bits)]);
    for (int64_t i = 0; i < num_chosen; ++i) {
      const uint64_t key = keys[chosen[i]];
      const int64_t bucket = bucket_of(key, bits);
      const int32_t stop = starts.data[bucket + 1];
      int32_t at = starts.data[bucket];
      while (at < stop && ordered.data[at] != key) ++at;
      if (at < stop) found[chosen[i]] = at;
    }
  }
  return probes.size;
}

// Split-block Bloom filters: building and probing.
//
// A value sets eight bits of one block, one per 32-bit word: the upper half of its hash selects the
// block, and the lower half times a salt selects the bit of each word. The words are independent,
// which compilers vectorize.
namespace {

constexpr int kBlockWords = 8;
constexpr int64_t kBlockBytes = 4 * kBlockWords;
constexpr uint32_t kSalt[kBlockWords] = {0x47b6137bu, 0x44974d91u, 0x8824ad5bu, 0xa2b7289du,
                                    0x705495c7u, 0x2df1424bu, 0x9efc4947u, 0x5c6bfb31u};

LANCELET_INLINE int64_t block_of(uint64_t hash, int64_t blocks) {
  return static_cast<int64_t>((hash >> 32) * static_cast<uint64_t>(blocks) >> 32);
}

LANCELET_INLINE void add(uint64_t hash, uint8_t* filter, int64_t blocks) {
  uint8_t* block = filter + block_of(hash, blocks) * kBlockBytes;
  const uint32_t low = static_cast<uint32_t>(hash);
  uint32_t words[kBlockWords];
  memcpy(words, block, sizeof words);
  for (int k = 0; k < kBlockWords; ++k) words[k] |= uint32_t{1} << (low * kSalt[k] >> 27);
  memcpy(block, words, sizeof words);
}

LANCELET_INLINE bool has(uint64_t hash, const uint8_t* filter, int64_t blocks) {
  const uint8_t* block = filter + block_of(hash, blocks) * kBlockBytes;
  const uint32_t low = static_cast<uint32_t>(hash);
  uint32_t words[kBlockWords], missing = 0;
  memcpy(words, block, sizeof words);
  for (int k = 0; k < kBlockWords; ++k) missing |= ~words[k] & uint32_t{1} << (low * kSalt[k] >> 27);
  return missing == 0;
}

}  // namespace

int64_t build_filters(Span<const uint64_t> hashes, ConstInts stops, Bytes filters) {
  if (stops.size == 0) return hashes.size == 0 ? 0 : fail(kBadLength, 0);
  const int64_t filter_bytes = filters.size / stops.size;
  const int64_t blocks = filter_bytes / kBlockBytes;
  if (blocks == 0 || blocks > int64_t{1} << 31 || filter_bytes % kBlockBytes != 0)
    return fail(kBadWidth, 0);
  int64_t start = 0;
  for (int64_t zone = 0; zone < stops.size; ++zone) {
    const int64_t stop = stops.data[zone];
    if (stop < start || stop > hashes.size) return fail(kBadOffsets, zone);
    uint8_t* filter = filters.data + zone * filter_bytes;
    memset(filter, 0, static_cast<size_t>(filter_bytes));
    for (; start < stop; ++start) add(hashes.data[start], filter, blocks);
  }
  return start == hashes.size ? start : fail(kBadLength, start);
}

int64_t probe_filters(ConstBytes data, ConstInts starts, ConstInts sizes,
                    Span<const uint64_t> hashes, Bytes found) {
  if (starts.size != sizes.size) return fail(kBadLength, 0);
  if (hashes.size > 0 && found.size / hashes.size < starts.size) return fail(kOutputFull, 0);
  for (int64_t filter = 0; filter < starts.size; ++filter) {
    const int64_t blocks = sizes.data[filter] / kBlockBytes;
    if (!within(starts.data[filter], sizes.data[filter], data.size))
      return fail(kOutOfSource, filter);
    if (blocks == 0 || blocks > int64_t{1} << 31) return fail(kBadWidth, filter);
    uint8_t* own = found.data + filter * hashes.size;
    for (int64_t k = 0; k < hashes.size; ++k)
      own[k] = has(hashes.data[k], data.data + starts.data[filter], blocks);
  }
  return starts.size;
}

}  // namespace LANCELET_NAMESPACE
