// Words in ascending order, each with the number that belongs to it; equal words stay as they
// stand.
//
// Digits are sorted by from the lowest to the highest, each time by counting how often it has
// which value. Only bits that differ among the words are looked at, so that numbers that are
// alike in most of their bits take few passes. Between passes a word and its number lie side by
// side, since a pass writes to as many places at once as a digit has values.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int kDigitBits = 8;
constexpr int64_t kDigits = int64_t{1} << kDigitBits;
constexpr int kPasses = 64 / kDigitBits;

struct Pair {
  uint64_t word, number;
};

struct Pass {
  int shift;
  int64_t place[kDigits];
};

LANCELET_INLINE int64_t digit(uint64_t word, int shift) {
  return static_cast<int64_t>(word >> shift & (kDigits - 1));
}

}  // namespace

int64_t sort_words(Span<const uint64_t> words, Span<const uint64_t> numbers,
                   Span<uint64_t> words_out, Span<uint64_t> numbers_out, Span<uint64_t> spare) {
  const int64_t count = words.size;
  if (numbers.size != count || words_out.size != count || numbers_out.size != count)
    return fail(kBadLength, 0);
  if (spare.size < 4 * count) return fail(kOutputFull, 0);
  if (count == 0) return 0;
  uint64_t differs = 0;
  bool is_sorted = true;
  for (int64_t i = 1; i < count; ++i) {
    differs |= words.data[i] ^ words.data[0];
    is_sorted &= words.data[i - 1] <= words.data[i];
  }
  if (is_sorted) {
    memcpy(words_out.data, words.data, count * sizeof(uint64_t));
    memcpy(numbers_out.data, numbers.data, count * sizeof(uint64_t));
    return 0;
  }
  const int lowest = trailing_zeros(differs);
  auto* passes = static_cast<Pass*>(calloc(kPasses, sizeof(Pass)));
  if (!passes) return fail(kNoMemory, 0);
  int num_passes = 0;
  for (int shift = lowest; shift < 64; shift += kDigitBits)
    if (digit(differs, shift) != 0) passes[num_passes++].shift = shift;
  for (int64_t i = 0; i < count; ++i)
    for (int k = 0; k < num_passes; ++k) ++passes[k].place[digit(words.data[i], passes[k].shift)];
  for (int k = 0; k < num_passes; ++k) {
    int64_t at = 0;
    for (int64_t d = 0; d < kDigits; ++d) {
      const int64_t own = passes[k].place[d];
      passes[k].place[d] = at;
      at += own;
    }
  }
  auto* from = reinterpret_cast<Pair*>(spare.data);
  Pair* to = from + count;
  for (int k = 0; k < num_passes; ++k) {
    int64_t* const place = passes[k].place;
    const int shift = passes[k].shift;
    const bool is_last = k == num_passes - 1;
    if (k == 0 && is_last) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = place[digit(words.data[i], shift)]++;
        words_out.data[at] = words.data[i];
        numbers_out.data[at] = numbers.data[i];
      }
    } else if (k == 0) {
      for (int64_t i = 0; i < count; ++i)
        from[place[digit(words.data[i], shift)]++] = {words.data[i], numbers.data[i]};
    } else if (is_last) {
      for (int64_t i = 0; i < count; ++i) {
        const Pair pair = from[i];
        const int64_t at = place[digit(pair.word, shift)]++;
        words_out.data[at] = pair.word;
        numbers_out.data[at] = pair.number;
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const Pair pair = from[i];
        to[place[digit(pair.word, shift)]++] = pair;
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
