// Comparisons of Arrow strings with constant bytes.
//
// A search compares the first and the last part byte with 64 positions at once, across strings;
// only positions with both are compared further. An order is decided by the first eight bytes, which
// are compared as one number, for most strings.
#include "kernel.hpp"
#include "parameters.hpp"

#if defined(__AVX512BW__) && defined(__GNUC__)
#include <immintrin.h>
#define LANCELET_SEARCHES 1
#else
#define LANCELET_SEARCHES 0
#endif

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kGroup = 64;

// The strings with valid offsets, which are checked while they are read.
template <class Offset>
struct Texts {
  const uint8_t* offsets;
  ConstBytes data;

  LANCELET_INLINE int64_t at(int64_t i) const {
    return static_cast<int64_t>(load<Offset>(offsets + i * static_cast<int64_t>(sizeof(Offset))));
  }

  LANCELET_INLINE bool is_valid(int64_t i) const {
    const int64_t first = at(i), stop = at(i + 1);
    return first >= 0 && first <= stop && stop <= data.size;
  }
};

// Returns the first occurrence at or after `from` of bytes that end before `stop`, or -1.
int64_t find(const uint8_t* data, int64_t from, int64_t stop, ConstBytes part) {
  const int64_t last = part.size - 1;
#if LANCELET_SEARCHES
  const __m512i head = _mm512_set1_epi8(static_cast<char>(part.data[0]));
  const __m512i tail = _mm512_set1_epi8(static_cast<char>(part.data[last]));
  for (; stop - from - last >= kGroup; from += kGroup) {
    const __m512i begins = _mm512_loadu_si512(data + from);
    const __m512i ends = _mm512_loadu_si512(data + from + last);
    uint64_t found = _mm512_cmpeq_epi8_mask(begins, head) & _mm512_cmpeq_epi8_mask(ends, tail);
    for (; found; found &= found - 1) {
      const int64_t at = from + trailing_zeros(found);
      if (memcmp(data + at, part.data, static_cast<size_t>(part.size)) == 0) return at;
    }
  }
#endif
  while (stop - from >= part.size) {
    const auto* const head_at = static_cast<const uint8_t*>(
        memchr(data + from, part.data[0], static_cast<size_t>(stop - from - last)));
    if (head_at == nullptr) return -1;
    from = head_at - data;
    if (memcmp(head_at, part.data, static_cast<size_t>(part.size)) == 0) return from;
    ++from;
  }
  return -1;
}

template <class Offset>
int64_t contain(Texts<Offset> texts, ConstBytes part, Bytes out) {
  for (int64_t i = 0; i < out.size; ++i)
    if (LANCELET_UNLIKELY(!texts.is_valid(i))) return fail(kBadOffsets, i);
  memset(out.data, part.size == 0, static_cast<size_t>(out.size));
  if (out.size == 0 || part.size == 0) return 0;
  const int64_t stop = texts.at(out.size);
  int64_t i = 0;
  for (int64_t from = texts.at(0); i < out.size;) {
    const int64_t at = find(texts.data.data, from, stop, part);
    if (at < 0) break;
    while (texts.at(i + 1) <= at) ++i;
    // An occurrence may begin in one string and end in the next.
    const bool is_within = at + part.size <= texts.at(i + 1);
    out.data[i] |= is_within;
    from = is_within ? texts.at(i + 1) : at + 1;
    i += is_within;
  }
  return 0;
}

LANCELET_INLINE uint64_t first_bytes(const uint8_t* data, int64_t size) {
  uint64_t word = 0;
  if (size >= 8) {
    word = load<uint64_t>(data);
  } else {
    memcpy(&word, data, static_cast<size_t>(size));
  }
  uint64_t number = 0;
  for (int k = 0; k < 64; k += 8) number = number << 8 | (word >> k & 255);
  return number;
}

template <class Offset>
int64_t compare(Texts<Offset> texts, ConstBytes constant, Bytes out) {
  const uint64_t part = first_bytes(constant.data, constant.size);
  for (int64_t i = 0; i < out.size; ++i) {
    if (LANCELET_UNLIKELY(!texts.is_valid(i))) return fail(kBadOffsets, i);
    const uint8_t* const text = texts.data.data + texts.at(i);
    const int64_t size = texts.at(i + 1) - texts.at(i);
    const uint64_t word = first_bytes(text, size);
    int64_t order = (word > part) - (word < part);
    if (order == 0) {
      const int64_t shared = smaller(size, constant.size);
      const int rest =
          shared > 8 ? memcmp(text + 8, constant.data + 8, static_cast<size_t>(shared - 8)) : 0;
      order = rest != 0 ? (rest > 0) - (rest < 0) : (size > constant.size) - (size < constant.size);
    }
    out.data[i] = static_cast<uint8_t>(order + 1);
  }
  return 0;
}

}  // namespace

// Writes 1 for each string with an occurrence of the bytes, else 0.
int64_t contain_bytes(args::Strings strings, ConstBytes part, Bytes out) {
  const ConstBytes offsets = strings.offsets;
  if (offsets.size < (out.size + 1) * strings.offset_bytes) return fail(kTooShort, 0);
  return strings.offset_bytes == 4
             ? contain<int32_t>({offsets.data, strings.data}, part, out)
             : contain<int64_t>({offsets.data, strings.data}, part, out);
}

// Writes 0 for each string before the constant, 1 for each equal one, and 2 for each after it.
int64_t compare_bytes(args::Strings strings, ConstBytes constant, Bytes out) {
  const ConstBytes offsets = strings.offsets;
  if (offsets.size < (out.size + 1) * strings.offset_bytes) return fail(kTooShort, 0);
  return strings.offset_bytes == 4
             ? compare<int32_t>({offsets.data, strings.data}, constant, out)
             : compare<int64_t>({offsets.data, strings.data}, constant, out);
}

}  // namespace LANCELET_NAMESPACE
