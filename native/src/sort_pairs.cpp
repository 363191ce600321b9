// Stable LSD radix sort of pairs by key.
//
// Digits are sorted from the lowest to the highest, each by counting. Digits without differences
// are skipped, so similar keys take few passes. Between passes, keys and values are interleaved,
// since a pass writes to 256 positions concurrently.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int kDigitBits = 8;
constexpr int64_t kDigits = int64_t{1} << kDigitBits;
constexpr int kPasses = 64 / kDigitBits;

struct Pair {
  uint64_t key, value;
};

struct Pass {
  int shift;
  int64_t offset[kDigits];
};

LANCELET_INLINE int64_t digit(uint64_t key, int shift) {
  return static_cast<int64_t>(key >> shift & (kDigits - 1));
}

}  // namespace

int64_t sort_pairs(Span<const uint64_t> keys, Span<const uint64_t> values,
                   Span<uint64_t> keys_out, Span<uint64_t> values_out, Span<uint64_t> spare) {
  const int64_t count = keys.size;
  if (values.size != count || keys_out.size != count || values_out.size != count)
    return fail(kBadLength, 0);
  if (spare.size < 4 * count) return fail(kOutputFull, 0);
  if (count == 0) return 0;
  uint64_t differs = 0;
  bool is_sorted = true;
  for (int64_t i = 1; i < count; ++i) {
    differs |= keys.data[i] ^ keys.data[0];
    is_sorted &= keys.data[i - 1] <= keys.data[i];
  }
  if (is_sorted) {
    memcpy(keys_out.data, keys.data, count * sizeof(uint64_t));
    memcpy(values_out.data, values.data, count * sizeof(uint64_t));
    return 0;
  }
  const int lowest = trailing_zeros(differs);
  auto* passes = static_cast<Pass*>(calloc(kPasses, sizeof(Pass)));
  if (!passes) return fail(kNoMemory, 0);
  int num_passes = 0;
  for (int shift = lowest; shift < 64; shift += kDigitBits)
    if (digit(differs, shift) != 0) passes[num_passes++].shift = shift;
  for (int64_t i = 0; i < count; ++i)
    for (int k = 0; k < num_passes; ++k) ++passes[k].offset[digit(keys.data[i], passes[k].shift)];
  for (int k = 0; k < num_passes; ++k) {
    int64_t at = 0;
    for (int64_t d = 0; d < kDigits; ++d) {
      const int64_t own = passes[k].offset[d];
      passes[k].offset[d] = at;
      at += own;
    }
  }
  auto* from = reinterpret_cast<Pair*>(spare.data);
  Pair* to = from + count;
  for (int k = 0; k < num_passes; ++k) {
    int64_t* const offset = passes[k].offset;
    const int shift = passes[k].shift;
    const bool is_last = k == num_passes - 1;
    if (k == 0 && is_last) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = offset[digit(keys.data[i], shift)]++;
        keys_out.data[at] = keys.data[i];
        values_out.data[at] = values.data[i];
      }
    } else if (k == 0) {
      for (int64_t i = 0; i < count; ++i)
        from[offset[digit(keys.data[i], shift)]++] = {keys.data[i], values.data[i]};
    } else if (is_last) {
      for (int64_t i = 0; i < count; ++i) {
        const Pair pair = from[i];
        const int64_t at = offset[digit(pair.key, shift)]++;
        keys_out.data[at] = pair.key;
        values_out.data[at] = pair.value;
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const Pair pair = from[i];
        to[offset[digit(pair.key, shift)]++] = pair;
      }
      Pair* const next = to;
      to = from;
      from = next;
    }
  }
  free(passes);
  return 0;
}

}  // namespace LANCELET_NAMESPACE
