// Words of texts: maximal runs of the characters that a set has, and the numbering of equal ones.
#include "characters.hpp"
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint32_t kEmpty = 0xffffffff;

// Calls `emit(start, end)` for each word of a text.
template <class Emit>
LANCELET_INLINE void each_word(const uint8_t* data, int64_t start, int64_t stop,
                               const Members& members, Emit emit) {
  int64_t word = -1;
  for (int64_t at = start; at < stop;) {
    const Character c = read_character(data + at, stop - at);
    if (members.has(c.code)) {
      if (word < 0) word = at;
    } else if (word >= 0) {
      emit(word, at);
      word = -1;
    }
    at += c.bytes;
  }
  if (word >= 0) emit(word, stop);
}

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

}  // namespace

int64_t count_words(ConstInts offsets, ConstBytes data, ConstBytes members, Ints count) {
  const int64_t status = check_texts(offsets, data);
  if (status < 0) return status;
  const Members own = members_of(members);
  int64_t total = 0;
  for (int64_t i = 0; i + 1 < offsets.size; ++i) {
    int64_t found = 0;
    each_word(data.data, offsets.data[i], offsets.data[i + 1], own,
              [&found](int64_t, int64_t) { ++found; });
    count.data[i] = found;
    total += found;
  }
  return total;
}

int64_t place_words(ConstInts offsets, ConstBytes data, ConstBytes members, Ints position,
                    Ints size) {
  const int64_t status = check_texts(offsets, data);
  if (status < 0) return status;
  const Members own = members_of(members);
  int64_t total = 0;
  bool full = false;
  for (int64_t i = 0; i + 1 < offsets.size; ++i)
    each_word(data.data, offsets.data[i], offsets.data[i + 1], own,
              [&](int64_t start, int64_t end) {
                full = full || total >= position.size;
                if (full) return;
                position.data[total] = start;
                size.data[total++] = end - start;
              });
  return full ? fail(kOutputFull, total) : total;
}

// Numbers slices so that equal ones have one number, in the order in which they are first met.
int64_t intern_slices(ConstBytes source, ConstInts position, ConstInts size, Span<uint32_t> id,
                      Ints first) {
  const int64_t count = position.size;
  if (count >= static_cast<int64_t>(kEmpty)) return fail(kBadCount, 0);
  int64_t slots = 1024;
  auto* table = static_cast<uint32_t*>(malloc(slots * sizeof(uint32_t)));
  auto* hashes = static_cast<uint64_t*>(malloc(smaller<int64_t>(count + 1, 512) * 8));
  int64_t room = smaller<int64_t>(count + 1, 512), met = 0, status = 0;
  if (table) memset(table, 0xff, slots * sizeof(uint32_t));
  for (int64_t i = 0; i < count && table && hashes; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) {
      status = fail(kOutOfSource, i);
      break;
    }
    const uint8_t* at = source.data + position.data[i];
    const int64_t bytes = size.data[i];
    const uint64_t hash = hash_bytes(at, bytes);
    int64_t slot = hash & (slots - 1);
    uint32_t found = kEmpty;
    while ((found = table[slot]) != kEmpty) {
      const int64_t other = first.data[found];
      if (hashes[found] == hash && size.data[other] == bytes &&
          memcmp(source.data + position.data[other], at, bytes) == 0)
        break;
      slot = (slot + 1) & (slots - 1);
    }
    if (found == kEmpty) {
      if (met == room) {
        room *= 2;
        auto* grown = static_cast<uint64_t*>(realloc(hashes, room * 8));
        if (!grown) {
          free(hashes);
          hashes = nullptr;
          break;
        }
        hashes = grown;
      }
      found = static_cast<uint32_t>(met);
      table[slot] = found;
      hashes[met] = hash;
      first.data[met++] = i;
      if (met * 2 > slots) {
        free(table);
        slots *= 4;
        table = static_cast<uint32_t*>(malloc(slots * sizeof(uint32_t)));
        if (!table) break;
        memset(table, 0xff, slots * sizeof(uint32_t));
        for (int64_t k = 0; k < met; ++k) {
          int64_t to = hashes[k] & (slots - 1);
          while (table[to] != kEmpty) to = (to + 1) & (slots - 1);
          table[to] = static_cast<uint32_t>(k);
        }
      }
    }
    id.data[i] = found;
  }
  const bool refused = !table || !hashes;
  free(table);
  free(hashes);
  if (refused) return fail(kNoMemory, 0);
  return status < 0 ? status : met;
}

// The places of keys in ascending order, equal ones in the order in which they stand.
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

}  // namespace LANCELET_NAMESPACE
