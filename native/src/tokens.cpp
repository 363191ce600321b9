// Tokens of texts (maximal runs of characters of a set), and counting sort.
#include "characters.hpp"
#include "kernel.hpp"

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

}  // namespace LANCELET_NAMESPACE
