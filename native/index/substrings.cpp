// Substring search: suffix arrays, and FM-index search by a wavelet tree.
//
// The tree represents the Burrows-Wheeler transform of the text. A node has a bit per byte below
// it: 0 for bytes below its first child, 1 for the second. A child is a node index, above that of
// its parent, or -1 - byte.
#include "kernel.hpp"
#include "levels.hpp"
#include "parameters.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kSymbols = 256;
constexpr int64_t kNodesMax = kSymbols - 1;
constexpr int64_t kOrderedMax = (int64_t{1} << 31) - 2;
constexpr int64_t kStepsPerRow = 256;  // maximum average distance of rows from samples, relative to the rate

// ---- Suffix array construction by induced sorting (SA-IS) ---------------------------------------

struct Scratch {
  void* data;
  explicit Scratch(int64_t bytes) : data(malloc(static_cast<size_t>(bytes > 0 ? bytes : 1))) {}
  ~Scratch() { free(data); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

// A bitmap of the S-type suffixes, which sort before the following suffix.
struct SuffixTypes {
  uint8_t* bits;
  bool operator[](int64_t i) const { return (bits[i >> 3] >> (i & 7)) & 1; }
  void set(int64_t i) { bits[i >> 3] |= static_cast<uint8_t>(1 << (i & 7)); }
  // Returns whether a suffix is leftmost S-type (LMS).
  bool is_lms(int64_t i) const { return i > 0 && (*this)[i] && !(*this)[i - 1]; }
};

template <class T>
struct Buckets {
  const T* text;
  int32_t length, symbols;
  int32_t* heads;

  void find(bool ends) {
    memset(heads, 0, sizeof(int32_t) * static_cast<size_t>(symbols));
    for (int32_t i = 0; i < length; ++i) ++heads[text[i]];
    int32_t sum = 0;
    for (int32_t c = 0; c < symbols; ++c) {
      const int32_t count = heads[c];
      heads[c] = ends ? sum + count : sum;
      sum += count;
    }
  }
};

// Induces the order of all suffixes from the LMS suffixes at the ends of their buckets.
template <class T>
void induce(Buckets<T>& buckets, const SuffixTypes& types, int32_t* order) {
  buckets.find(false);
  for (int32_t i = 0; i < buckets.length; ++i) {
    const int32_t before = order[i] - 1;
    if (before >= 0 && !types[before]) order[buckets.heads[buckets.text[before]]++] = before;
  }
  buckets.find(true);
  for (int32_t i = buckets.length - 1; i >= 0; --i) {
    const int32_t before = order[i] - 1;
    if (before >= 0 && types[before]) order[--buckets.heads[buckets.text[before]]] = before;
  }
}

// Returns whether two LMS substrings are equal.
template <class T>
bool same_lms_substring(const T* text, int32_t length, const SuffixTypes& types, int32_t a, int32_t b) {
  for (int32_t d = 0;; ++d) {
    if (a + d >= length || b + d >= length) return false;
    if (text[a + d] != text[b + d] || types[a + d] != types[b + d]) return false;
    if (d > 0) {
      const bool first = types.is_lms(a + d), second = types.is_lms(b + d);
      if (first || second) return first && second;
    }
  }
}

// The last symbol must be the unique smallest. Returns false if memory allocation fails.
template <class T>
bool order_all(const T* text, int32_t length, int32_t symbols, int32_t* order) {
  if (length == 1) {
    order[0] = 0;
    return true;
  }
  Scratch bits((length + 7) / 8), heads(int64_t{4} * symbols);
  if (!bits.data || !heads.data) return false;
  memset(bits.data, 0, static_cast<size_t>((length + 7) / 8));
  SuffixTypes types{static_cast<uint8_t*>(bits.data)};
  Buckets<T> buckets{text, length, symbols, static_cast<int32_t*>(heads.data)};
  types.set(length - 1);
  for (int32_t i = length - 2; i >= 0; --i)
    if (text[i] < text[i + 1] || (text[i] == text[i + 1] && types[i + 1])) types.set(i);

  for (int32_t i = 0; i < length; ++i) order[i] = -1;
  buckets.find(true);
  for (int32_t i = 1; i < length; ++i)
    if (types.is_lms(i)) order[--buckets.heads[text[i]]] = i;
  induce(buckets, types, order);

  // LMS substrings are sorted now; equal ones get the same name.
  int32_t num_lms = 0;
  for (int32_t i = 0; i < length; ++i)
    if (types.is_lms(order[i])) order[num_lms++] = order[i];
  for (int32_t i = num_lms; i < length; ++i) order[i] = -1;
  int32_t num_names = 0, last = -1;
  for (int32_t i = 0; i < num_lms; ++i) {
    const int32_t at = order[i];
    if (last < 0 || !same_lms_substring(text, length, types, last, at)) ++num_names;
    order[num_lms + at / 2] = num_names - 1;
    last = at;
  }
  for (int32_t i = length - 1, to = length - 1; i >= num_lms; --i)
    if (order[i] >= 0) order[to--] = order[i];

  int32_t* shorter = order + length - num_lms;
  if (num_names < num_lms) {
    if (!order_all(shorter, num_lms, num_names, order)) return false;
  } else {
    for (int32_t i = 0; i < num_lms; ++i) order[shorter[i]] = i;
  }
  for (int32_t i = 1, to = 0; i < length; ++i)
    if (types.is_lms(i)) shorter[to++] = i;
  for (int32_t i = 0; i < num_lms; ++i) order[i] = shorter[order[i]];
  for (int32_t i = num_lms; i < length; ++i) order[i] = -1;
  buckets.find(true);
  for (int32_t i = num_lms - 1; i >= 0; --i) {
    const int32_t at = order[i];
    order[i] = -1;
    order[--buckets.heads[text[at]]] = at;
  }
  induce(buckets, types, order);
  return true;
}

// ---- The wavelet tree ---------------------------------------------------------------------------

struct Tree {
  Span<const uint64_t> words;
  Span<const uint32_t> ranks;
  ConstInts starts, bits;
  Span<const int32_t> children;
  ConstInts counts;
  int64_t length = 0;
  int32_t parent[kNodesMax];  // of a node: twice the parent, plus the child number
  int32_t leaf[kSymbols];     // of a byte, likewise, or -1

  // Validates the tree; returns 0 or a fault. Later code only checks positions against node sizes.
  int64_t check() {
    const int64_t nodes = bits.size;
    if (nodes > kNodesMax || starts.size != nodes + 1 || children.size != 2 * nodes ||
        counts.size != kSymbols + 1 || ranks.size != words.size + nodes || starts.data[0] != 0 ||
        starts.data[nodes] != words.size || counts.data[0] != 0)
      return fail(kBadCount, nodes);
    length = counts.data[kSymbols];
    for (int64_t c = 0; c < kSymbols; ++c)
      if (counts.data[c] > counts.data[c + 1]) return fail(kBadCount, c);
    if (length != (nodes ? bits.data[0] : 0)) return fail(kBadLength, 0);
    for (int64_t i = 0; i < nodes; ++i) parent[i] = -1;
    for (int64_t c = 0; c < kSymbols; ++c) leaf[c] = -1;
    for (int64_t i = 0; i < nodes; ++i) {
      const int64_t first = starts.data[i], end = starts.data[i + 1];
      if (first > end || end > words.size) return fail(kBadOffsets, i);
      if (bits.data[i] < 0 || bits.data[i] > 64 * (end - first)) return fail(kTooShort, i);
      if (i > 0 && parent[i] < 0) return fail(kBadIndex, i);
      for (int32_t side = 0; side < 2; ++side) {
        const int32_t child = children.data[2 * i + side];
        int32_t* link = nullptr;
        if (child > i && child < nodes) link = parent + child;
        if (child < 0 && -1 - child < kSymbols) link = leaf + (-1 - child);
        if (!link || *link >= 0) return fail(kBadIndex, i);
        *link = static_cast<int32_t>(2 * i + side);
      }
    }
    return 0;
  }

  bool has(int64_t node, int64_t position) const {
    return (words.data[starts.data[node] + (position >> 6)] >> (position & 63)) & 1;
  }

  // Returns the number of set bits before a position, which is at most the node size.
  int64_t ones(int64_t node, int64_t position) const {
    const int64_t word = starts.data[node] + (position >> 6);
    int64_t count = ranks.data[word + node];
    if (position & 63)
      count += count_bits(words.data[word] & ((uint64_t{1} << (position & 63)) - 1));
    return count;
  }

  // Moves to the row of the preceding byte's suffix and returns that byte. False if out of range.
  bool step(int64_t& row, uint8_t& symbol) const {
    int64_t position = row;
    for (int64_t node = 0;;) {
      if (position >= bits.data[node]) return false;
      const bool is_second = has(node, position);
      const int64_t before = ones(node, position);
      position = is_second ? before : position - before;
      const int32_t child = children.data[2 * node + is_second];
      if (child < 0) {
        symbol = static_cast<uint8_t>(-1 - child);
        row = counts.data[symbol] + position;
        return row >= 0 && row < length;
      }
      node = child;
    }
  }
};

}  // namespace

int64_t order_suffixes(ConstBytes text, Span<int32_t> order) {
  if (text.size < 1 || text.size > kOrderedMax || order.size != text.size)
    return fail(kBadCount, 0);
  for (int64_t i = 0; i < text.size; ++i)
    if ((text.data[i] == 0) != (i == text.size - 1)) return fail(kBadStream, i);
  if (!order_all(text.data, static_cast<int32_t>(text.size), kSymbols, order.data))
    return fail(kNoMemory, 0);
  return 0;
}

int64_t rank_bits(Span<const uint64_t> words, ConstInts starts, Span<uint32_t> ranks) {
  const int64_t nodes = starts.size - 1;
  if (nodes < 0 || ranks.size != words.size + nodes) return fail(kBadCount, 0);
  for (int64_t node = 0; node < nodes; ++node) {
    const int64_t first = starts.data[node], end = starts.data[node + 1];
    if (first < 0 || first > end || end > words.size) return fail(kBadOffsets, node);
    if (end - first > (int64_t{1} << 25)) return fail(kBadCount, node);
    uint32_t count = 0;
    for (int64_t i = first; i < end; ++i) {
      ranks.data[i + node] = count;
      count += static_cast<uint32_t>(count_bits(words.data[i]));
    }
    ranks.data[end + node] = count;
  }
  return 0;
}

int64_t find_suffixes(args::WaveletTree stored, ConstBytes pattern, Ints bounds) {
  const Span<const uint64_t> words = stored.words;
  const Span<const uint32_t> ranks = stored.ranks;
  const ConstInts starts = stored.starts;
  const ConstInts bits = stored.bits;
  const Span<const int32_t> children = stored.children;
  const ConstInts counts = stored.counts;
  Tree tree{words, ranks, starts, bits, children, counts, 0, {}, {}};
  if (const int64_t fault = tree.check()) return fault;
  int64_t low = 0, high = tree.length;
  for (int64_t i = pattern.size - 1; i >= 0 && low < high; --i) {
    int32_t path[kNodesMax];
    int64_t depth = 0;
    for (int32_t link = tree.leaf[pattern.data[i]]; link >= 0; link = tree.parent[link / 2])
      path[depth++] = link;
    if (depth == 0) {
      low = high = 0;
      break;
    }
    while (depth-- > 0) {
      const int64_t node = path[depth] / 2;
      if (high > bits.data[node]) return fail(kBadIndex, node);
      const int64_t first = tree.ones(node, low), last = tree.ones(node, high);
      low = path[depth] % 2 ? first : low - first;
      high = path[depth] % 2 ? last : high - last;
    }
    low += counts.data[pattern.data[i]];
    high += counts.data[pattern.data[i]];
    if (high > tree.length) return fail(kBadIndex, i);
  }
  bounds.data[0] = low;
  bounds.data[1] = larger(low, high);
  return 0;
}

int64_t locate_suffixes(args::WaveletTree stored, Span<const uint64_t> samples, int64_t rate,
                        int64_t first, Ints positions) {
  const Span<const uint64_t> words = stored.words;
  const Span<const uint32_t> ranks = stored.ranks;
  const ConstInts starts = stored.starts;
  const ConstInts bits = stored.bits;
  const Span<const int32_t> children = stored.children;
  const ConstInts counts = stored.counts;
  Tree tree{words, ranks, starts, bits, children, counts, 0, {}, {}};
  if (const int64_t fault = tree.check()) return fault;
  if (rate < 1 || !within(first, positions.size, tree.length)) return fail(kBadIndex, 0);
  if (samples.size < tree.length / rate + (tree.length % rate != 0))
    return fail(kTooShort, samples.size);
  // A corrupt tree may have cycles without samples.
  int64_t steps_left = tree.length + positions.size * smaller(rate, tree.length) * kStepsPerRow;
  for (int64_t i = 0; i < positions.size; ++i) {
    int64_t row = first + i, steps = 0;
    uint8_t symbol = 0;
    for (; row % rate; ++steps) {
      if (--steps_left < 0 || !tree.step(row, symbol)) return fail(kBadStream, i);
    }
    const uint64_t sample = samples.data[row / rate];
    if (sample >= static_cast<uint64_t>(tree.length)) return fail(kBadIndex, i);
    positions.data[i] = (static_cast<int64_t>(sample) + steps) % tree.length;
  }
  return 0;
}

int64_t unwind_text(args::WaveletTree stored, Bytes text) {
  const Span<const uint64_t> words = stored.words;
  const Span<const uint32_t> ranks = stored.ranks;
  const ConstInts starts = stored.starts;
  const ConstInts bits = stored.bits;
  const Span<const int32_t> children = stored.children;
  const ConstInts counts = stored.counts;
  Tree tree{words, ranks, starts, bits, children, counts, 0, {}, {}};
  if (const int64_t fault = tree.check()) return fault;
  if (text.size != tree.length) return fail(kBadLength, 0);
  // The first row is the terminator; each step yields the preceding byte.
  int64_t row = 0;
  for (int64_t i = text.size - 2; i >= 0; --i)
    if (!tree.step(row, text.data[i])) return fail(kBadStream, i);
  if (text.size > 0) text.data[text.size - 1] = 0;
  return 0;
}

}  // namespace LANCELET_NAMESPACE
