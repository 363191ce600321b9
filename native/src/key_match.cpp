// Hash lookup of keys through an index of buckets.
#include "kernel.hpp"

#if defined(_MSC_VER)
#define LANCELET_PREFETCH(at) ((void)(at))
#else
#define LANCELET_PREFETCH(at) __builtin_prefetch(at)
#endif

namespace LANCELET_NAMESPACE {
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

}  // namespace LANCELET_NAMESPACE
