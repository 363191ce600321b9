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

int64_t fsst_decode_chunks(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                           int64_t offset_bytes, Span<const uint64_t> symbols, ConstBytes lengths,
                           ConstInts table_indices, int64_t out_bytes, Bytes out_offsets, Bytes out,
                           Ints progress) {
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

int64_t fsst_decode_rows(ConstBytes offsets, int64_t offset_bytes, ConstBytes data,
                         Span<const uint64_t> symbols, ConstBytes lengths, int64_t out_bytes,
                         Bytes out_offsets, Bytes out, Ints progress) {
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

int64_t fsst_decode_slices(ConstBytes source, ConstInts position, ConstInts size,
                           Span<const uint64_t> symbols, ConstBytes lengths, ConstInts table_indices,
                           int64_t out_bytes, Bytes out_offsets, Bytes out, Ints progress) {
  const SymbolTables tables = {symbols, lengths, table_indices};
  Progress state = read_progress(progress);
  const auto decode = out_bytes == 4 ? decode_slices<uint32_t> : decode_slices<uint64_t>;
  const int64_t result = decode(tables, source, position, size, out_offsets, out, &state);
  write_progress(progress, state);
  return result;
}

}  // namespace LANCELET_NAMESPACE
