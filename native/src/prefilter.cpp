// Prefilter of a vector index: fragment masks, gathered in index order.
//
//     fragment 4     mask 0 1 1
//     addresses      4:2 4:0 9:1 4:1     of the rows of a partition
//     allowed        1   0   0   1       fragment 9 does not exist
//
// Consecutive rows usually have the same fragment, so the last mask is reused.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
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
