// Dictionary lookup. A vectorized loop finds the largest index first, so that the copy loop needs
// no bounds checks.
#include "copies.hpp"
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

template <class Index>
Index largest(const uint8_t* indices, int64_t count) {
  Index most = 0;
  for (int64_t i = 0; i < count; ++i)
    most = larger(most, load<Index>(indices + i * int64_t(sizeof(Index))));
  return most;
}

template <class Index>
int64_t first_above(const uint8_t* indices, int64_t count, uint64_t most) {
  int64_t i = 0;
  while (i < count && load<Index>(indices + i * int64_t(sizeof(Index))) <= most) ++i;
  return i;
}

template <class Index, class Item>
void copy(const uint8_t* LANCELET_RESTRICT items, const uint8_t* LANCELET_RESTRICT indices,
          int64_t count, uint8_t* LANCELET_RESTRICT out) {
  for (int64_t i = 0; i < count; ++i) {
    const auto index = int64_t(load<Index>(indices + i * int64_t(sizeof(Index))));
    store(out + i * int64_t(sizeof(Item)),
          load<Item>(items + index * int64_t(sizeof(Item))));
  }
}

struct Wide {
  uint64_t low, high;
};

template <class Index>
void copy_any(const uint8_t* LANCELET_RESTRICT items, int64_t item_bytes,
              const uint8_t* LANCELET_RESTRICT indices, int64_t count,
              uint8_t* LANCELET_RESTRICT out) {
  for (int64_t i = 0; i < count; ++i) {
    const auto index = int64_t(load<Index>(indices + i * int64_t(sizeof(Index))));
    memcpy(out + i * item_bytes, items + index * item_bytes, size_t(item_bytes));
  }
}

template <class Index>
int64_t lookup(ConstBytes items, int64_t item_bytes, ConstBytes indices, Bytes out) {
  const int64_t count = indices.size / int64_t(sizeof(Index));
  if (count > out.size / item_bytes) return fail(kOutputFull, 0);
  if (count == 0) return 0;
  const int64_t num_items = items.size / item_bytes;
  if (num_items == 0) return fail(kBadIndex, 0);
  if (uint64_t(largest<Index>(indices.data, count)) >= uint64_t(num_items))
    return fail(kBadIndex, first_above<Index>(indices.data, count, uint64_t(num_items) - 1));
  switch (item_bytes) {
    case 1: copy<Index, uint8_t>(items.data, indices.data, count, out.data); break;
    case 2: copy<Index, uint16_t>(items.data, indices.data, count, out.data); break;
    case 4: copy<Index, uint32_t>(items.data, indices.data, count, out.data); break;
    case 8: copy<Index, uint64_t>(items.data, indices.data, count, out.data); break;
    case 16: copy<Index, Wide>(items.data, indices.data, count, out.data); break;
    default: copy_any<Index>(items.data, item_bytes, indices.data, count, out.data);
  }
  return count;
}

// Byte strings: item i is data[offsets[i], offsets[i + 1]).
template <class Offset>
struct Strings {
  ConstBytes offsets;
  int64_t data_bytes;

  int64_t count() const { return offsets.size / int64_t(sizeof(Offset)) - 1; }

  int64_t at(uint64_t i) const {
    return int64_t(load<Offset>(offsets.data + i * sizeof(Offset)));
  }
};

template <class Index, class Offset>
int64_t sizes_of(Strings<Offset> items, ConstBytes indices, Bytes out) {
  const int64_t count = indices.size / int64_t(sizeof(Index));
  if (count + 1 > out.size / int64_t(sizeof(Offset))) return fail(kOutputFull, 0);
  const int64_t num_items = items.count();
  const int64_t most = sizeof(Offset) == 4 ? INT32_MAX : INT64_MAX / 2;
  int64_t total = 0;
  store(out.data, Offset(0));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t index = load<Index>(indices.data + i * int64_t(sizeof(Index)));
    if (LANCELET_UNLIKELY(num_items <= 0 || index >= uint64_t(num_items))) return fail(kBadIndex, i);
    const int64_t start = items.at(index), size = items.at(index + 1) - start;
    if (LANCELET_UNLIKELY(!within(start, size, items.data_bytes))) return fail(kBadOffsets, i);
    if (LANCELET_UNLIKELY(size > most - total)) return fail(kTooLarge, i);
    total += size;
    store(out.data + (i + 1) * int64_t(sizeof(Offset)), Offset(total));
  }
  return total;
}

template <class Index, class Offset>
int64_t bytes_of(Strings<Offset> items, ConstBytes data, ConstBytes indices, Bytes out) {
  const int64_t count = indices.size / int64_t(sizeof(Index));
  const int64_t num_items = items.count();
  int64_t done = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t index = load<Index>(indices.data + i * int64_t(sizeof(Index)));
    if (LANCELET_UNLIKELY(num_items <= 0 || index >= uint64_t(num_items))) return fail(kBadIndex, i);
    const int64_t start = items.at(index), size = items.at(index + 1) - start;
    if (LANCELET_UNLIKELY(!within(start, size, data.size))) return fail(kBadOffsets, i);
    if (LANCELET_UNLIKELY(size > out.size - done)) return fail(kOutputFull, i);
    copy_ahead(out.data + done, out.size - done, data.data + start, data.size - start, size);
    done += size;
  }
  return done;
}

// Items of at most 32 bytes that were checked once, each padded to `kSlot` bytes: many values are
// copied without a check for each.
struct Slots {
  static constexpr int64_t kSlot = 32;
  uint8_t* bytes = nullptr;
  int64_t* sizes = nullptr;
  int64_t longest = 0;
  Slots() = default;
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;
  ~Slots() { free(bytes), free(sizes); }

  // Returns false if an item is invalid or too long, or if there are as many items as values.
  template <class Offset>
  bool fill(Strings<Offset> items, const uint8_t* data, int64_t count) {
    const int64_t num_items = items.count();
    if (num_items <= 0 || num_items >= count) return false;
    bytes = static_cast<uint8_t*>(calloc(num_items, kSlot));
    sizes = static_cast<int64_t*>(malloc(num_items * sizeof(int64_t)));
    if (bytes == nullptr || sizes == nullptr) return false;
    for (int64_t i = 0; i < num_items; ++i) {
      const int64_t start = items.at(i), size = items.at(i + 1) - start;
      if (size > kSlot || !within(start, size, items.data_bytes)) return false;
      if (size > 0 && data != nullptr) memcpy(bytes + i * kSlot, data + start, size);
      sizes[i] = size;
      longest = larger(longest, size);
    }
    return true;
  }
};

template <class Index, class Offset>
int64_t sizes_of_slots(Strings<Offset> items, ConstBytes indices, Bytes out) {
  const int64_t count = indices.size / int64_t(sizeof(Index));
  const int64_t most = sizeof(Offset) == 4 ? INT32_MAX : INT64_MAX / 2;
  Slots slots;
  const bool fits = count < out.size / int64_t(sizeof(Offset)) &&
                    slots.fill(items, nullptr, count) && count <= most / Slots::kSlot &&
                    uint64_t(largest<Index>(indices.data, count)) < uint64_t(items.count());
  if (!fits) return sizes_of<Index>(items, indices, out);
  int64_t total = 0;
  store(out.data, Offset(0));
  for (int64_t i = 0; i < count; ++i) {
    total += slots.sizes[load<Index>(indices.data + i * int64_t(sizeof(Index)))];
    store(out.data + (i + 1) * int64_t(sizeof(Offset)), Offset(total));
  }
  return total;
}

template <int64_t kWidth, class Index>
int64_t copy_slots(const Slots& slots, const uint8_t* LANCELET_RESTRICT indices, int64_t count,
                   uint8_t* LANCELET_RESTRICT out) {
  int64_t done = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto index = int64_t(load<Index>(indices + i * int64_t(sizeof(Index))));
    memcpy(out + done, slots.bytes + index * Slots::kSlot, kWidth);
    done += slots.sizes[index];
  }
  return done;
}

template <class Index, class Offset>
int64_t bytes_of_slots(Strings<Offset> items, ConstBytes data, ConstBytes indices, Bytes out) {
  const int64_t count = indices.size / int64_t(sizeof(Index));
  Slots slots;
  const bool fits = slots.fill(items, data.data, count) &&
                    uint64_t(largest<Index>(indices.data, count)) < uint64_t(items.count());
  if (!fits) return bytes_of<Index>(items, data, indices, out);
  // Whole slots are copied, so the last values, which end near the end of the output, are copied
  // by their sizes; the sum is checked first.
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i)
    total += slots.sizes[load<Index>(indices.data + i * int64_t(sizeof(Index)))];
  if (total > out.size) return bytes_of<Index>(items, data, indices, out);
  int64_t ahead = count, left = 0;
  while (ahead > 0 && left < Slots::kSlot)
    left += slots.sizes[load<Index>(indices.data + --ahead * int64_t(sizeof(Index)))];
  int64_t done = slots.longest <= 16
                     ? copy_slots<16, Index>(slots, indices.data, ahead, out.data)
                     : copy_slots<Slots::kSlot, Index>(slots, indices.data, ahead, out.data);
  for (int64_t i = ahead; i < count; ++i) {
    const auto index = int64_t(load<Index>(indices.data + i * int64_t(sizeof(Index))));
    memcpy(out.data + done, slots.bytes + index * Slots::kSlot, slots.sizes[index]);
    done += slots.sizes[index];
  }
  return done;
}

template <class Offset>
int64_t sizes_by(int64_t index_bytes, Strings<Offset> items, ConstBytes indices, Bytes out) {
  switch (index_bytes) {
    case 1: return sizes_of_slots<uint8_t>(items, indices, out);
    case 2: return sizes_of_slots<uint16_t>(items, indices, out);
    case 4: return sizes_of_slots<uint32_t>(items, indices, out);
    case 8: return sizes_of_slots<uint64_t>(items, indices, out);
    default: return fail(kBadWidth, 1);
  }
}

template <class Offset>
int64_t bytes_by(int64_t index_bytes, Strings<Offset> items, ConstBytes data, ConstBytes indices,
                 Bytes out) {
  switch (index_bytes) {
    case 1: return bytes_of_slots<uint8_t>(items, data, indices, out);
    case 2: return bytes_of_slots<uint16_t>(items, data, indices, out);
    case 4: return bytes_of_slots<uint32_t>(items, data, indices, out);
    case 8: return bytes_of_slots<uint64_t>(items, data, indices, out);
    default: return fail(kBadWidth, 1);
  }
}

}  // namespace

int64_t lookup_fixed(ConstBytes items, int64_t item_bytes, ConstBytes indices,
                      int64_t index_bytes, Bytes out) {
  if (item_bytes <= 0) return fail(kBadWidth, 0);
  switch (index_bytes) {
    case 1: return lookup<uint8_t>(items, item_bytes, indices, out);
    case 2: return lookup<uint16_t>(items, item_bytes, indices, out);
    case 4: return lookup<uint32_t>(items, item_bytes, indices, out);
    case 8: return lookup<uint64_t>(items, item_bytes, indices, out);
    default: return fail(kBadWidth, 1);
  }
}

int64_t lookup_sizes(ConstBytes offsets, int64_t offset_bytes, int64_t data_bytes,
                      ConstBytes indices, int64_t index_bytes, Bytes out_offsets) {
  if (offset_bytes == 4)
    return sizes_by(index_bytes, Strings<int32_t>{offsets, data_bytes}, indices, out_offsets);
  if (offset_bytes == 8)
    return sizes_by(index_bytes, Strings<int64_t>{offsets, data_bytes}, indices, out_offsets);
  return fail(kBadWidth, 0);
}

int64_t lookup_bytes(ConstBytes offsets, int64_t offset_bytes, ConstBytes data,
                      ConstBytes indices, int64_t index_bytes, Bytes out) {
  if (offset_bytes == 4)
    return bytes_by(index_bytes, Strings<int32_t>{offsets, data.size}, data, indices, out);
  if (offset_bytes == 8)
    return bytes_by(index_bytes, Strings<int64_t>{offsets, data.size}, data, indices, out);
  return fail(kBadWidth, 0);
}

}  // namespace LANCELET_NAMESPACE
