// FSST encoding: greedy, with the longest matching symbol, or an escape and the byte.
//
// Symbol lookup is dominated by unpredictable branches, one or two per code. Text repeats: most
// sequences of eight bytes have occurred before. Results are therefore cached by the next eight
// bytes, which leaves one predictable branch and a short chain of loads. Four lanes of rows are
// interleaved to overlap these loads, each with its own part of the output; the parts are joined at
// the end.
//
// For data without repetition (numbers, hashes), the cache is disabled.
#include "variable.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int kLanes = 4;
constexpr int64_t kSomeBytes = 4096;        // smaller inputs use one lane
constexpr int64_t kManyBytes = 256 * 1024;  // smaller inputs do not use the cache
constexpr int kSteps = 8192;               // steps that fill the cache, then steps that measure misses
constexpr int64_t kMissesMax = kLanes * kSteps * 3 / 10;
constexpr uint8_t kEscape = 255;

// Symbols in matching order. A match is a code and, in the byte above, its length.
struct Matcher {
  static constexpr int kSlots = 4096;
  uint16_t pair[65536];  // match of the next two bytes, without longer symbols
  uint16_t single[256];  // match of a last byte
  uint8_t slot_start[kSlots + 1];
  // Symbols of three or more bytes, by hash of the first three bytes, longest first.
  uint64_t symbol[255], mask[255];
  uint8_t length[255], code[255];

  static LANCELET_INLINE uint32_t slot(uint64_t word) {
    return static_cast<uint32_t>((word & 0xffffff) * 2654435761u) >> 20;
  }

  void build(Span<const uint64_t> symbols, ConstBytes lengths) {
    for (int b = 0; b < 256; ++b) single[b] = kEscape | 1 << 8;
    const int n = static_cast<int>(lengths.size);
    for (int c = n - 1; c >= 0; --c)
      if (lengths.data[c] == 1)
        single[symbols.data[c] & 0xff] = static_cast<uint16_t>(c | 1 << 8);
    for (int w = 0; w < 65536; ++w) pair[w] = single[w & 0xff];
    for (int c = n - 1; c >= 0; --c)
      if (lengths.data[c] == 2)
        pair[symbols.data[c] & 0xffff] = static_cast<uint16_t>(c | 2 << 8);
    int used = 0;
    uint16_t slots[256];
    for (int c = 0; c < n; ++c) {
      const int bytes = lengths.data[c];
      if (bytes < 3) continue;
      const uint64_t m = ~uint64_t{0} >> (64 - 8 * bytes);
      const uint64_t s = symbols.data[c] & m;
      const uint16_t h = static_cast<uint16_t>(slot(s));
      int at = used++;
      for (; at > 0 && (slots[at - 1] > h || (slots[at - 1] == h && length[at - 1] < bytes)); --at) {
        slots[at] = slots[at - 1], symbol[at] = symbol[at - 1], mask[at] = mask[at - 1];
        length[at] = length[at - 1], code[at] = code[at - 1];
      }
      slots[at] = h, symbol[at] = s, mask[at] = m;
      length[at] = static_cast<uint8_t>(bytes), code[at] = static_cast<uint8_t>(c);
    }
    int next = 0;
    for (int h = 0; h <= kSlots; ++h) {
      while (next < used && slots[next] < h) ++next;
      slot_start[h] = static_cast<uint8_t>(next);
    }
  }

  LANCELET_INLINE uint32_t longest(uint64_t word, int64_t left) const {
    const uint32_t h = slot(word);
    for (int k = slot_start[h]; k < slot_start[h + 1]; ++k)
      if ((word & mask[k]) == symbol[k] && length[k] <= left)
        return code[k] | uint32_t{length[k]} << 8;
    return left > 1 ? pair[word & 0xffff] : single[word & 0xff];
  }
};

// Cache of matches by the next eight or fewer bytes of a string.
struct Memory {
  static constexpr int kBits = 13;
  struct Entry {
    uint64_t word;
    uint32_t size, found;  // size 0: empty
  };
  Entry entries[1 << kBits];
  int64_t misses;

  LANCELET_INLINE uint32_t longest(const Matcher& matcher, uint64_t word, uint32_t size) {
    Entry& entry = entries[(word * 0x9E3779B97F4A7C15u) >> (64 - kBits)];
    if (LANCELET_UNLIKELY((entry.word != word) | (entry.size != size))) {
      entry = {word, size, matcher.longest(word, size)};
      ++misses;
    }
    return entry.found;
  }
};

struct Encoder {
  Matcher matcher;
  Memory memory;
};

// Arrow strings and output offsets. Eight bytes are readable at positions before `safe`.
template <class Offset>
struct Strings {
  const uint8_t *offsets, *data, *safe;
  uint8_t* ends;

  LANCELET_INLINE int64_t offset(int64_t row) const {
    return static_cast<int64_t>(load<Offset>(offsets + row * sizeof(Offset)));
  }
};

// A lane: the rest of the current string and the output position.
template <class Offset>
struct Lane {
  const uint8_t *from, *end;
  uint8_t *start, *to;
  int64_t row, stop;

  // Stores the end of a string and continues with the next non-empty one, if any.
  LANCELET_INLINE bool advance(const Strings<Offset>& strings) {
    do {
      store<Offset>(strings.ends + (row + 1) * sizeof(Offset), static_cast<Offset>(to - start));
      if (++row == stop) return false;
      end = strings.data + strings.offset(row + 1);
    } while (from == end);
    return true;
  }

  template <bool kRemembers>
  LANCELET_INLINE void step(Encoder* encoder, const uint8_t* safe) {
    const int64_t left = end - from;
    const uint32_t size = static_cast<uint32_t>(smaller<int64_t>(left, 8));
    uint64_t word = 0;
    if (LANCELET_LIKELY(from < safe)) {
      word = load<uint64_t>(from);
      if (kRemembers) word &= ~uint64_t{0} >> (64 - 8 * size);
    } else {
      memcpy(&word, from, size);
    }
    const uint32_t found = kRemembers ? encoder->memory.longest(encoder->matcher, word, size)
                                      : encoder->matcher.longest(word, size);
    // Without an escape, the next code overwrites the second byte. The output has two bytes per
    // input byte.
    to[0] = static_cast<uint8_t>(found);
    to[1] = static_cast<uint8_t>(word);
    to += 1 + ((found & 0xff) == kEscape);
    from += found >> 8;
  }

  template <bool kRemembers>
  void finish(Encoder* encoder, const Strings<Offset>& strings) {
    if (row == stop) return;
    do {
      while (from < end) step<kRemembers>(encoder, strings.safe);
    } while (advance(strings));
  }
};

// Advances all lanes by some steps. Returns false if a lane ended.
template <bool kRemembers, class Offset>
bool go_on(Lane<Offset>* lanes, int64_t steps, Encoder* encoder, const Strings<Offset>& strings) {
  Lane<Offset> a = lanes[0], b = lanes[1], c = lanes[2], d = lanes[3];
  bool all_on = true;
  for (; steps > 0 && all_on; --steps) {
    a.template step<kRemembers>(encoder, strings.safe);
    b.template step<kRemembers>(encoder, strings.safe);
    c.template step<kRemembers>(encoder, strings.safe);
    d.template step<kRemembers>(encoder, strings.safe);
    if (LANCELET_UNLIKELY(a.from == a.end)) all_on &= a.advance(strings);
    if (LANCELET_UNLIKELY(b.from == b.end)) all_on &= b.advance(strings);
    if (LANCELET_UNLIKELY(c.from == c.end)) all_on &= c.advance(strings);
    if (LANCELET_UNLIKELY(d.from == d.end)) all_on &= d.advance(strings);
  }
  lanes[0] = a, lanes[1] = b, lanes[2] = c, lanes[3] = d;
  return all_on;
}

// Assigns rows of about equal total size to lanes, and advances each to its first string.
template <class Offset>
bool start_lanes(Lane<Offset>* lanes, int count, int64_t rows, Bytes out,
                 const Strings<Offset>& strings) {
  const int64_t first = strings.offset(0), total = strings.offset(rows) - first;
  bool all_on = true;
  int64_t row = 0;
  for (int k = 0; k < count; ++k) {
    const int64_t share = first + total / count * (k + 1);
    int64_t stop = k == count - 1 ? rows : row;
    for (int64_t high = rows; stop < high;) {  // the first row at or beyond the share
      const int64_t middle = stop + (high - stop) / 2;
      if (strings.offset(middle) >= share) high = middle;
      else stop = middle + 1;
    }
    const uint8_t* from = strings.data + strings.offset(row);
    uint8_t* to = out.data + 2 * (strings.offset(row) - first);
    // The end of the previous row is the start of this one.
    lanes[k] = {from, from, to, to, row - 1, stop};
    all_on &= lanes[k].advance(strings);
    row = stop;
  }
  return all_on;
}

template <class Offset>
int64_t encode_rows(Encoder* encoder, ConstBytes offsets, ConstBytes data, Bytes out_offsets,
                    Bytes out) {
  const int64_t rows = offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1;
  if (rows < 0 || out_offsets.size < offsets.size) return fail(kOutputFull, 0);
  const Strings<Offset> strings = {offsets.data, data.data,
                                   data.data + (data.size >= 8 ? data.size - 7 : 0),
                                   out_offsets.data};
  const int64_t first = strings.offset(0), last = strings.offset(rows);
  if (first < 0 || last > data.size || !in_order<Offset>(offsets.data, rows))
    return fail(kBadOffsets, 0);
  if (last - first > out.size / 2) return fail(kOutputFull, 0);

  Lane<Offset> lanes[kLanes];
  const int count = last - first >= kSomeBytes ? kLanes : 1;
  const bool all_on = start_lanes(lanes, count, rows, out, strings) && count == kLanes;
  bool remembers = all_on && last - first >= kManyBytes;
  if (remembers) {
    memset(&encoder->memory, 0, sizeof encoder->memory);
    if (go_on<true>(lanes, kSteps, encoder, strings)) {
      encoder->memory.misses = 0;
      if (go_on<true>(lanes, kSteps, encoder, strings)) {
        remembers = encoder->memory.misses <= kMissesMax;
        if (remembers) go_on<true>(lanes, INT64_MAX, encoder, strings);
        else go_on<false>(lanes, INT64_MAX, encoder, strings);
      }
    }
  } else if (all_on) {
    go_on<false>(lanes, INT64_MAX, encoder, strings);
  }
  uint8_t* to = out.data;
  int64_t row = 0;
  for (int k = 0; k < count; ++k) {
    Lane<Offset>& lane = lanes[k];
    if (remembers) lane.template finish<true>(encoder, strings);
    else lane.template finish<false>(encoder, strings);
    const int64_t size = lane.to - lane.start, before = to - out.data;
    if (sizeof(Offset) == 4 && before + size > INT32_MAX) return fail(kTooLarge, row);
    memmove(to, lane.start, static_cast<size_t>(size));
    for (; row < lane.stop; ++row) {
      uint8_t* end = out_offsets.data + (row + 1) * sizeof(Offset);
      store<Offset>(end, static_cast<Offset>(load<Offset>(end) + before));
    }
    to += size;
  }
  return to - out.data;
}

}  // namespace

int64_t fsst_encode(ConstBytes offsets, int64_t offset_bytes, ConstBytes data,
                    Span<const uint64_t> symbols, ConstBytes lengths, Bytes out_offsets,
                    Bytes out) {
  Encoder* encoder = static_cast<Encoder*>(malloc(sizeof(Encoder)));
  if (encoder == nullptr) return fail(kNoMemory, 0);
  encoder->matcher.build(symbols, lengths);
  const int64_t result =
      offset_bytes == 4 ? encode_rows<int32_t>(encoder, offsets, data, out_offsets, out)
                        : encode_rows<int64_t>(encoder, offsets, data, out_offsets, out);
  free(encoder);
  return result;
}

}  // namespace LANCELET_NAMESPACE
