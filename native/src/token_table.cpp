// A persistent table of tokens: each distinct token has a fixed id.
//
// The caller owns the table. If its capacity is exhausted, a call returns the number of tokens
// processed, and continues after the caller has grown the table.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint32_t kNoToken = 0xffffffff;

LANCELET_INLINE uint64_t hash_bytes(const uint8_t* at, int64_t size) {
  uint64_t hash = 0x9e3779b97f4a7c15ull ^ static_cast<uint64_t>(size);
  for (; size >= 8; at += 8, size -= 8) {
    hash = (hash ^ load<uint64_t>(at)) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  uint64_t rest = 0;
  memcpy(&rest, at, size);
  hash = (hash ^ rest) * 0xc4ceb9fe1a85ec53ull;
  return hash ^ hash >> 29;
}

// Finds the slot of a token, or the empty slot to insert it; there always is one.
struct Table {
  Span<uint32_t> slots;
  const uint64_t* hashes;
  const int64_t* ends;
  const uint8_t* text;

  int64_t find(uint64_t hash, const uint8_t* at, int64_t size) const {
    const int64_t mask = slots.size - 1;
    for (int64_t slot = hash & mask;; slot = (slot + 1) & mask) {
      const uint32_t token = slots.data[slot];
      if (token == kNoToken) return slot;
      if (hashes[token] != hash) continue;
      const int64_t start = token ? ends[token - 1] : 0;
      if (ends[token] - start == size && memcmp(text + start, at, size) == 0) return slot;
    }
  }
};

bool is_power_of_two(int64_t number) { return number > 0 && (number & (number - 1)) == 0; }

}  // namespace

// Returns the number of slices processed; `state` holds the number of tokens and their bytes.
int64_t assign_token_ids(ConstBytes source, ConstInts position, ConstInts size, Span<uint32_t> slots,
                     Span<uint64_t> hashes, Ints ends, Bytes text, Ints state,
                     Span<uint32_t> id) {
  if (!is_power_of_two(slots.size) || hashes.size != ends.size || state.size != 2 ||
      hashes.size * 2 > slots.size || id.size < position.size || position.size != size.size)
    return fail(kBadLength, 0);
  int64_t count = state.data[0], used = state.data[1], i = 0;
  if (count < 0 || count > hashes.size || used < 0 || used > text.size) return fail(kBadLength, 1);
  const Table table{slots, hashes.data, ends.data, text.data};
  for (; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const uint8_t* at = source.data + position.data[i];
    const int64_t bytes = size.data[i];
    const uint64_t hash = hash_bytes(at, bytes);
    const int64_t slot = table.find(hash, at, bytes);
    uint32_t token = slots.data[slot];
    if (token == kNoToken) {
      if (count == hashes.size || bytes > text.size - used) break;
      memcpy(text.data + used, at, bytes);
      used += bytes;
      hashes.data[count] = hash;
      ends.data[count] = used;
      token = slots.data[slot] = static_cast<uint32_t>(count++);
    }
    id.data[i] = token;
  }
  state.data[0] = count;
  state.data[1] = used;
  return i;
}

// Inserts tokens with distinct hashes into empty slots.
int64_t insert_hashes(Span<const uint64_t> hashes, Span<uint32_t> slots) {
  if (!is_power_of_two(slots.size) || hashes.size * 2 > slots.size) return fail(kBadLength, 0);
  memset(slots.data, 0xff, slots.size * sizeof(uint32_t));
  const int64_t mask = slots.size - 1;
  for (int64_t k = 0; k < hashes.size; ++k) {
    int64_t slot = hashes.data[k] & mask;
    while (slots.data[slot] != kNoToken) slot = (slot + 1) & mask;
    slots.data[slot] = static_cast<uint32_t>(k);
  }
  return 0;
}

}  // namespace LANCELET_NAMESPACE
