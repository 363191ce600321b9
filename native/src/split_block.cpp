// Split-block Bloom filters: building and probing.
//
// A value sets eight bits of one block, one per 32-bit word: the upper half of its hash selects the
// block, and the lower half times a salt selects the bit of each word. The words are independent,
// which compilers vectorize.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
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
