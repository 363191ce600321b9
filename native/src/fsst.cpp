// FSST decoding of bytes and offsets in one pass.
//
// Codes of adjacent strings are contiguous, so a window of many strings is decoded as one stream,
// eight codes at a time. `output_at[i]`, the number of bytes decoded before code byte i, then
// yields the offset of each string. This avoids a branch per string, which would be mispredicted at
// nearly every end.
#include "variable.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kWindow = 4096;        // code bytes per window; output_at stays in the L1 cache
constexpr uint32_t kEscaped = 0xffffffff;  // an escaped byte, where no string can start
constexpr uint8_t kEscape = 255;

// Symbols and lengths of all 256 codes; undefined codes have length 0.
struct SymbolTable {
  const uint64_t* symbols;
  const uint8_t* lengths;
};

constexpr int64_t kCodes = 256;

// One or more tables in sequence, and the table index of each chunk or slice.
struct SymbolTables {
  Span<const uint64_t> symbols;
  ConstBytes lengths;
  ConstInts table_indices;

  // Returns false if the table does not exist.
  LANCELET_INLINE bool find(int64_t i, SymbolTable* table) const {
    const int64_t index = i < table_indices.size ? table_indices.data[i] : 0;
    const int64_t count = smaller(symbols.size, lengths.size) / kCodes;
    if (index < 0 || index >= count) return false;
    *table = {symbols.data + index * kCodes, lengths.data + index * kCodes};
    return true;
  }
};

// State between calls.
struct Progress {
  int64_t chunk, row, rows_done, written;
};

// Returns the position of the first byte that is 255, or 8.
LANCELET_INLINE int first_escape(uint64_t word) {
  const uint64_t inverse = ~word;
  const uint64_t zero = (inverse - 0x0101010101010101u) & word & 0x8080808080808080u;
  return zero ? trailing_zeros(zero) / 8 : 8;
}

// Decodes one code. `seen` accumulates lengths less one, so that length 0 sets high bits.
LANCELET_INLINE void decode_code(const SymbolTable& table, uint8_t code, uint8_t* to,
                                 int64_t* written, uint32_t* seen) {
  const uint32_t length = table.lengths[code];
  store<uint64_t>(to + *written, table.symbols[code]);
  *written += length;
  *seen |= length - 1;
}

// Decodes `size` code bytes to `to`, which has room for 8 * size + 8. With `kRecordsOutput`, size
// is at most kWindow and `output_at` has size + 1 entries. Returns the bytes written, or -1.
template <bool kRecordsOutput>
int64_t decode_stream(const SymbolTable& table, const uint8_t* codes, int64_t size, uint8_t* to,
                      uint32_t* output_at) {
  int64_t at = 0, written = 0;
  uint32_t seen = 0;
  while (at < size) {
    int plain = 1;
    if (LANCELET_LIKELY(size - at >= 8)) {
      const uint64_t word = load<uint64_t>(codes + at);
      plain = first_escape(word);
      if (LANCELET_LIKELY(plain == 8)) {
        for (int k = 0; k < 8; ++k) {
          if (kRecordsOutput) output_at[at + k] = static_cast<uint32_t>(written);
          decode_code(table, static_cast<uint8_t>(word >> (8 * k)), to, &written, &seen);
        }
        at += 8;
        continue;
      }
    } else if (codes[at] == kEscape) {
      plain = 0;
    }
    for (int k = 0; k < plain; ++k, ++at) {
      if (kRecordsOutput) output_at[at] = static_cast<uint32_t>(written);
      decode_code(table, codes[at], to, &written, &seen);
    }
    if (at < size && codes[at] == kEscape) {
      if (at + 1 >= size) return -1;
      if (kRecordsOutput) {
        output_at[at] = static_cast<uint32_t>(written);
        output_at[at + 1] = kEscaped;
      }
      to[written++] = codes[at + 1];
      at += 2;
    }
  }
  if (kRecordsOutput) output_at[size] = static_cast<uint32_t>(written);
  return seen > 7 ? -1 : written;
}

// Decodes rows with validated offsets. Returns 0 if all rows are done, the missing room if the
// output is full, or a fault.
template <class Stored, class Arrow>
int64_t decode_rows(const SymbolTable& table, const uint8_t* codes, const uint8_t* offsets,
                    int64_t rows, Bytes out_offsets, Bytes out, int64_t index,
                    Progress* progress) {
  alignas(64) uint32_t output_at[kWindow + 1];
  const auto offset = [offsets](int64_t row) {
    return static_cast<int64_t>(load<Stored>(offsets + row * sizeof(Stored)));
  };
  while (progress->row < rows) {
    const int64_t row = progress->row;
    const int64_t start = offset(row);
    int64_t end = rows;
    if (offset(rows) - start > kWindow)
      for (end = row; offset(end + 1) - start <= kWindow;) ++end;
    const bool single = end == row;  // a string longer than the window
    if (single) ++end;
    const int64_t size = offset(end) - start;
    if (size > (out.size - progress->written - 8) / 8) return 8 * size + 8;
    uint8_t* to = out.data + progress->written;
    const int64_t bytes = single
                              ? decode_stream<false>(table, codes + start, size, to, output_at)
                              : decode_stream<true>(table, codes + start, size, to, output_at);
    if (bytes < 0) return fail(kBadCode, index);
    if (sizeof(Arrow) == 4 && progress->written + bytes > INT32_MAX)
      return fail(kTooLarge, index);
    uint8_t* ends = out_offsets.data + (progress->rows_done + 1) * sizeof(Arrow);
    if (single) {
      store<Arrow>(ends, static_cast<Arrow>(progress->written + bytes));
    } else {
      uint32_t inside = 0;
      for (int64_t k = row; k < end; ++k) {
        const uint32_t value = output_at[offset(k + 1) - start];
        inside |= value == kEscaped;
        store<Arrow>(ends + (k - row) * sizeof(Arrow),
                     static_cast<Arrow>(progress->written + value));
      }
      if (inside) return fail(kBadCode, index);
    }
    progress->written += bytes;
    progress->rows_done += end - row;
    progress->row = end;
  }
  return 0;
}

template <class Stored, class Arrow>
int64_t decode_chunks(const SymbolTables& tables, ConstBytes source, ConstInts position,
                      ConstInts size, ConstInts count, Bytes out_offsets, Bytes out,
                      Progress* progress) {
  const int64_t room = out_offsets.size / static_cast<int64_t>(sizeof(Arrow));
  for (; progress->chunk < position.size; ++progress->chunk, progress->row = 0) {
    const int64_t i = progress->chunk, n = count.data[i];
    SymbolTable table = {};
    if (!tables.find(i, &table)) return fail(kBadIndex, i);
    VariableChunk chunk = {};
    const int64_t status =
        read_chunk<Stored>(source, position.data[i], size.data[i], n, i, &chunk);
    if (status < 0) return status;
    if (n - progress->row >= room - progress->rows_done) return fail(kOutputFull, i);
    if (!in_order<Stored>(chunk.start, n)) return fail(kBadOffsets, i);
    const int64_t result = decode_rows<Stored, Arrow>(table, chunk.start, chunk.start, n,
                                                      out_offsets, out, i, progress);
    if (result != 0) return result;
  }
  return 0;
}

template <class Stored, class Arrow>
int64_t decode_arrow(const SymbolTable& table, ConstBytes offsets, ConstBytes data,
                     Bytes out_offsets, Bytes out, Progress* progress) {
  const int64_t rows = offsets.size / static_cast<int64_t>(sizeof(Stored)) - 1;
  if (rows < 0 || out_offsets.size / static_cast<int64_t>(sizeof(Arrow)) <= rows)
    return fail(kOutputFull, 0);
  const Stored first = load<Stored>(offsets.data);
  const Stored last = load<Stored>(offsets.data + rows * sizeof(Stored));
  // Negative offsets are large unsigned numbers.
  if (first > last || last > static_cast<uint64_t>(data.size) ||
      !in_order<Stored>(offsets.data, rows))
    return fail(kBadOffsets, 0);
  return decode_rows<Stored, Arrow>(table, data.data, offsets.data, rows, out_offsets, out, 0,
                                    progress);
}

template <class Arrow>
int64_t decode_slices(const SymbolTables& tables, ConstBytes source, ConstInts position,
                      ConstInts size, Bytes out_offsets, Bytes out, Progress* progress) {
  if (out_offsets.size / static_cast<int64_t>(sizeof(Arrow)) <= position.size)
    return fail(kOutputFull, 0);
  for (; progress->row < position.size; ++progress->row) {
    const int64_t i = progress->row;
    SymbolTable table = {};
    if (!tables.find(i, &table)) return fail(kBadIndex, i);
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    if (size.data[i] > (out.size - progress->written - 8) / 8) return 8 * size.data[i] + 8;
    const int64_t bytes = decode_stream<false>(table, source.data + position.data[i],
                                               size.data[i], out.data + progress->written, nullptr);
    if (bytes < 0) return fail(kBadCode, i);
    progress->written += bytes;
    if (sizeof(Arrow) == 4 && progress->written > INT32_MAX) return fail(kTooLarge, i);
    store<Arrow>(out_offsets.data + (i + 1) * sizeof(Arrow),
                 static_cast<Arrow>(progress->written));
    progress->rows_done = i + 1;
  }
  return 0;
}

LANCELET_INLINE Progress read_progress(Ints progress) {
  return {progress.data[0], progress.data[1], progress.data[2], progress.data[3]};
}

LANCELET_INLINE void write_progress(Ints progress, const Progress& from) {
  progress.data[0] = from.chunk;
  progress.data[1] = from.row;
  progress.data[2] = from.rows_done;
  progress.data[3] = from.written;
}

}  // namespace

int64_t fsst_decode_chunks(args::Slices chunks, ConstInts count, int64_t offset_bytes,
                           args::SymbolTables coding, int64_t out_bytes, Bytes out_offsets,
                           Bytes out, Ints progress) {
  const ConstBytes source = chunks.source;
  const ConstInts position = chunks.position;
  const ConstInts size = chunks.size;
  const Span<const uint64_t> symbols = coding.symbols;
  const ConstBytes lengths = coding.lengths;
  const ConstInts table_indices = coding.table_indices;
  const SymbolTables tables = {symbols, lengths, table_indices};
  Progress state = read_progress(progress);
  const auto decode =
      offset_bytes == 4
          ? (out_bytes == 4 ? decode_chunks<uint32_t, uint32_t> : decode_chunks<uint32_t, uint64_t>)
          : (out_bytes == 4 ? decode_chunks<uint64_t, uint32_t> : decode_chunks<uint64_t, uint64_t>);
  const int64_t result =
      decode(tables, source, position, size, count, out_offsets, out, &state);
  write_progress(progress, state);
  return result;
}

int64_t fsst_decode_rows(args::Strings rows, Span<const uint64_t> symbols, ConstBytes lengths,
                         int64_t out_bytes, Bytes out_offsets, Bytes out, Ints progress) {
  const ConstBytes offsets = rows.offsets;
  const int64_t offset_bytes = rows.offset_bytes;
  const ConstBytes data = rows.data;
  const SymbolTable table = {symbols.data, lengths.data};
  Progress state = read_progress(progress);
  const auto decode =
      offset_bytes == 4
          ? (out_bytes == 4 ? decode_arrow<uint32_t, uint32_t> : decode_arrow<uint32_t, uint64_t>)
          : (out_bytes == 4 ? decode_arrow<uint64_t, uint32_t> : decode_arrow<uint64_t, uint64_t>);
  const int64_t result = decode(table, offsets, data, out_offsets, out, &state);
  write_progress(progress, state);
  return result;
}

int64_t fsst_decode_slices(args::Slices slices, args::SymbolTables coding, int64_t out_bytes,
                           Bytes out_offsets, Bytes out, Ints progress) {
  const ConstBytes source = slices.source;
  const ConstInts position = slices.position;
  const ConstInts size = slices.size;
  const Span<const uint64_t> symbols = coding.symbols;
  const ConstBytes lengths = coding.lengths;
  const ConstInts table_indices = coding.table_indices;
  const SymbolTables tables = {symbols, lengths, table_indices};
  Progress state = read_progress(progress);
  const auto decode = out_bytes == 4 ? decode_slices<uint32_t> : decode_slices<uint64_t>;
  const int64_t result = decode(tables, source, position, size, out_offsets, out, &state);
  write_progress(progress, state);
  return result;
}

// FSST encoding: greedy, with the longest matching symbol, or an escape and the byte.
//
// Symbol lookup is dominated by unpredictable branches, one or two per code. Text repeats: most
// sequences of eight bytes have occurred before. Results are therefore cached by the next eight
// bytes, which leaves one predictable branch and a short chain of loads. Four lanes of rows are
// interleaved to overlap these loads, each with its own part of the output; the parts are joined at
// the end.
//
// For data without repetition (numbers, hashes), the cache is disabled.
namespace {

constexpr int kLanes = 4;
constexpr int64_t kSomeBytes = 4096;        // smaller inputs use one lane
constexpr int64_t kManyBytes = 256 * 1024;  // smaller inputs do not use the cache
constexpr int kSteps = 8192;               // steps that fill the cache, then steps that measure misses
constexpr int64_t kMissesMax = kLanes * kSteps * 3 / 10;

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
