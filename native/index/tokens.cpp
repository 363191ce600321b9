// Tokens of texts (maximal runs of characters of a set), and counting sort.
#include "characters.hpp"
#include "parameters.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint32_t kEmpty = 0xffffffff;

// Calls `emit(start, end)` for each token of a text.
template <class Emit>
LANCELET_INLINE void each_token(const uint8_t* data, int64_t start, int64_t stop,
                               const Members& members, Emit emit) {
  int64_t token = -1;
  for (int64_t at = start; at < stop;) {
    const Character c = read_character(data + at, stop - at);
    if (members.has(c.code)) {
      if (token < 0) token = at;
    } else if (token >= 0) {
      emit(token, at);
      token = -1;
    }
    at += c.bytes;
  }
  if (token >= 0) emit(token, stop);
}

}  // namespace

int64_t count_tokens(ConstInts offsets, ConstBytes data, ConstBytes members, Ints count) {
  const int64_t status = check_texts(offsets, data);
  if (status < 0) return status;
  const Members own = members_of(members);
  int64_t total = 0;
  for (int64_t i = 0; i + 1 < offsets.size; ++i) {
    int64_t found = 0;
    each_token(data.data, offsets.data[i], offsets.data[i + 1], own,
              [&found](int64_t, int64_t) { ++found; });
    count.data[i] = found;
    total += found;
  }
  return total;
}

int64_t locate_tokens(ConstInts offsets, ConstBytes data, ConstBytes members, Ints position,
                    Ints size) {
  const int64_t status = check_texts(offsets, data);
  if (status < 0) return status;
  const Members own = members_of(members);
  int64_t total = 0;
  bool full = false;
  for (int64_t i = 0; i + 1 < offsets.size; ++i)
    each_token(data.data, offsets.data[i], offsets.data[i + 1], own,
              [&](int64_t start, int64_t end) {
                full = full || total >= position.size;
                if (full) return;
                position.data[total] = start;
                size.data[total++] = end - start;
              });
  return full ? fail(kOutputFull, total) : total;
}

// Stable argsort of keys by counting.
int64_t counting_order(Span<const uint32_t> keys, int64_t num_keys, Span<uint32_t> order) {
  if (keys.size >= static_cast<int64_t>(kEmpty)) return fail(kBadCount, 0);
  auto* next = static_cast<uint32_t*>(calloc(num_keys + 1, sizeof(uint32_t)));
  if (!next) return fail(kNoMemory, 0);
  for (int64_t i = 0; i < keys.size; ++i) {
    if (keys.data[i] >= num_keys) {
      free(next);
      return fail(kBadIndex, i);
    }
    ++next[keys.data[i] + 1];
  }
  for (int64_t k = 0; k < num_keys; ++k) next[k + 1] += next[k];
  for (int64_t i = 0; i < keys.size; ++i)
    order.data[next[keys.data[i]]++] = static_cast<uint32_t>(i);
  free(next);
  return 0;
}

// A persistent table of tokens: each distinct token has a fixed id.
//
// The caller owns the table. If its capacity is exhausted, a call returns the number of tokens
// processed, and continues after the caller has grown the table.
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
int64_t assign_token_ids(args::Slices tokens, args::TokenTable stored, Span<uint32_t> id) {
  const ConstBytes source = tokens.source;
  const ConstInts position = tokens.position;
  const ConstInts size = tokens.size;
  const Span<uint32_t> slots = stored.slots;
  const Span<uint64_t> hashes = stored.hashes;
  const Ints ends = stored.ends;
  const Bytes text = stored.text;
  const Ints state = stored.state;
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

// Stable LSD radix sort of pairs by key.
//
// Digits are sorted from the lowest to the highest, each by counting. Digits without differences
// are skipped, so similar keys take few passes. Between passes, keys and values are interleaved,
// since a pass writes to 256 positions concurrently.
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
