// Zstandard frames of strings that are short codes already: chunks of offsets, then bytes.
//
//     offsets   e4 01 00 00 | f0 01 00 00 | ...    each keeps three bytes of the one before
//     bytes     5a 03 91 17 ...                    no order, but some are more frequent
//
// A search for repetition would miss most of the first and find little in the rest, and it is what
// takes the time of a general compressor. So offsets become sequences without a search, a byte and
// a copy of three, and bytes are stored, or get the codes of Huffman where that saves enough. Any
// reader of Zstandard reads the result.
#include "zstd_codes.hpp"
#include "zstd_sequences.hpp"

namespace LANCELET_NAMESPACE {
namespace zstd {
namespace {

constexpr int64_t kPartMax = 1 << 16;
constexpr int64_t kFewBytes = 64;      // not worth a table of codes
constexpr int64_t kSavingMin = 6;      // codes must save a sixth, as they take time to read
constexpr int64_t kRoom = 600;         // what heads and tables may take besides the bytes

struct Scratch {
  uint8_t literals[kPartMax + 64];
  uint8_t taken[kPartMax / 4];
  SymbolCodes codes;
  StateWriter of_literals, of_distances;
};

uint8_t* write_little(uint8_t* to, uint64_t value, int bytes) {
  for (int k = 0; k < bytes; ++k) *to++ = static_cast<uint8_t>(value >> 8 * k);
  return to;
}

uint8_t* write_block_head(uint8_t* to, int kind, int64_t size, bool is_last) {
  return write_little(to, static_cast<uint64_t>(size << 3 | kind << 1 | is_last), 3);
}

uint8_t* write_stored(uint8_t* to, const uint8_t* data, int64_t size, bool is_last) {
  to = write_block_head(to, 0, size, is_last);
  memcpy(to, data, static_cast<size_t>(size));
  return to + size;
}

uint8_t* write_stream(uint8_t* to, const uint8_t* data, int64_t size, const SymbolCodes& codes) {
  BitWriter out = {to, 0, 0};
  int64_t k = size;
  for (; k >= 4; k -= 4) {
    for (int64_t j = 1; j <= 4; ++j) out.put(codes.code[data[k - j]], codes.width[data[k - j]]);
    out.flush();
  }
  while (k-- > 0) out.put(codes.code[data[k]], codes.width[data[k]]);
  out.flush();
  return out.close();
}

// log2 of a number in 256ths, at most 22 too small.
LANCELET_INLINE int64_t logarithm(uint64_t number) {
  const int whole = highest_bit(number);
  return whole << 8 | static_cast<int64_t>((number << 8 >> whole) & 255);
}

// Whether the best codes there could be would save enough.
bool may_save(const uint32_t* found, int64_t size) {
  const int64_t of_all = logarithm(static_cast<uint64_t>(size));
  int64_t bits = 0;
  for (int byte = 0; byte < 256; ++byte)
    if (found[byte]) bits += found[byte] * (of_all - logarithm(found[byte]));
  return bits / (8 << 8) < size - size / kSavingMin;
}

// Write a block of bytes, coded if that saves enough.
uint8_t* write_bytes(uint8_t* to, const uint8_t* data, int64_t size, bool is_last,
                     Scratch* scratch) {
  uint32_t found[4][256] = {};
  int64_t k = 0;
  for (; k + 4 <= size; k += 4)
    ++found[0][data[k]], ++found[1][data[k + 1]], ++found[2][data[k + 2]], ++found[3][data[k + 3]];
  for (; k < size; ++k) ++found[0][data[k]];
  for (int byte = 0; byte < 256; ++byte)
    found[0][byte] += found[1][byte] + found[2][byte] + found[3][byte];
  SymbolCodes& codes = scratch->codes;
  if (size < kFewBytes || !may_save(found[0], size) || !make_codes(found[0], &codes))
    return write_stored(to, data, size, is_last);
  int64_t bits = 0;
  for (int byte = 0; byte < codes.symbols; ++byte) bits += int64_t{codes.width[byte]} * found[0][byte];
  const int form = size < 1024 ? 1 : size < 16384 ? 2 : 3;
  uint8_t* const head = to + 3;
  uint8_t* const body = head + (form == 1 ? 3 : form + 2);
  uint8_t* at = bits / 8 < size - size / kSavingMin ? write_widths(codes, body) : nullptr;
  if (at == nullptr) return write_stored(to, data, size, is_last);
  uint8_t* const jumps = at;
  at += 6;
  const int64_t part = (size + 3) / 4;
  for (int stream = 0; stream < 4; ++stream) {
    uint8_t* const end =
        write_stream(at, data + stream * part, stream < 3 ? part : size - 3 * part, codes);
    if (stream < 3) store<uint16_t>(jumps + 2 * stream, static_cast<uint16_t>(end - at));
    at = end;
  }
  const int64_t stored = at - body;
  if (stored >= size) return write_stored(to, data, size, is_last);
  const int width = form == 1 ? 10 : form == 2 ? 14 : 18;
  write_little(head, static_cast<uint64_t>(2 | form << 2 | size << 4 | stored << (4 + width)),
               static_cast<int>(body - head));
  *at++ = 0;  // no sequences
  write_block_head(to, 2, at - head, is_last);
  return at;
}

// How many literals come before a copy: 1, or 4 more for each offset that was not copied from.
LANCELET_INLINE int literals_code(int count) {
  return count < 16 ? count : count < 24 ? 16 + (count - 16) / 2 : count < 32 ? 20 + (count - 24) / 4
       : count < 48 ? 22 + (count - 32) / 8 : count < 64 ? 24 : 25;
}
constexpr int kTakenMax = 100;  // so that the code is at most 25

// Write a block of offsets as sequences; `size` is a multiple of 4. Null if that does not pay.
uint8_t* write_offsets(uint8_t* to, const uint8_t* data, int64_t size, bool is_last,
                       Scratch* scratch) {
  uint8_t* literals = scratch->literals;
  int64_t count = 0;
  int waiting = 0;
  int32_t of_taken[26] = {};
  for (int64_t at = 0; at < size; at += 4) {
    const uint32_t word = load<uint32_t>(data + at);
    const bool is_like = at > 0 && (word ^ load<uint32_t>(data + at - 4)) < 256;
    store(literals, word);
    literals += is_like ? 1 : 4;
    if (!is_like) {
      waiting += 4;
      continue;
    }
    if (++waiting > kTakenMax) return nullptr;
    scratch->taken[count++] = static_cast<uint8_t>(waiting);
    ++of_taken[literals_code(waiting)];
    waiting = 0;
  }
  if (count < 16) return nullptr;
  const int64_t num_literals = literals - scratch->literals;
  uint8_t* at = to + 3;
  const int form = num_literals < 32 ? 0 : num_literals < 4096 ? 1 : 3;
  at = write_little(at, static_cast<uint64_t>(form << 2 | num_literals << (form ? 4 : 3)),
                    form == 3 ? 3 : form + 1);
  memcpy(at, scratch->literals, static_cast<size_t>(num_literals));
  at += num_literals;
  if (count < 128)
    *at++ = static_cast<uint8_t>(count);
  else if (count < 0x7F00)
    *at++ = static_cast<uint8_t>(128 + (count >> 8)), *at++ = static_cast<uint8_t>(count);
  else
    return nullptr;
  // Codes of literals and distances as states, those of lengths all the same: 3.
  *at++ = 2 << 6 | 2 << 4 | 1 << 2;
  Counts counts;
  scale_counts(of_taken, 26, 6, &counts);
  int kinds = 0;
  for (int k = 0; k < 26; ++k) kinds += of_taken[k] > 0;
  if (kinds < 2) {
    // A table needs two symbols; the second is never used.
    for (int k = 0; k < counts.symbols; ++k) if (counts.of[k] > 0) --counts.of[k];
    counts.of[counts.symbols++] = 1;
  }
  at = write_counts(counts, at);
  scratch->of_literals.build(counts);
  // The first copy is from the second of the distances that a frame starts with, which is 4; the
  // others from the last one.
  const int32_t of_distance[2] = {static_cast<int32_t>(count - 1), 1};
  scale_counts(of_distance, 2, 5, &counts);
  at = write_counts(counts, at);
  scratch->of_distances.build(counts);
  *at++ = 0;
  BitWriter out = {at, 0, 0};
  uint32_t literals_state = 0, distance_state = 0;
  for (int64_t k = count - 1; k >= 0; --k) {
    const int taken = scratch->taken[k];
    const int code = literals_code(taken);
    if (k == count - 1) {
      distance_state = scratch->of_distances.first(k == 0);
      literals_state = scratch->of_literals.first(code);
    } else {
      distance_state = scratch->of_distances.step(distance_state, k == 0, &out);
      literals_state = scratch->of_literals.step(literals_state, code, &out);
    }
    out.put(static_cast<uint64_t>(taken) - kLiteralBase[code], kLiteralBits[code]);
    if (k == 0) out.put(0, 1);  // 2 + 0: the second distance
    out.flush();
  }
  scratch->of_distances.last(distance_state, &out);
  scratch->of_literals.last(literals_state, &out);
  at = out.close();
  if (at - to >= size) return nullptr;
  write_block_head(to, 2, at - to - 3, is_last);
  return at;
}

uint8_t* write_frame(uint8_t* to, const uint8_t* data, int64_t size, int64_t offsets,
                     Scratch* scratch) {
  store<uint32_t>(to, 0xFD2FB528);
  const int form = size < 256 ? 0 : size < 65536 + 256 ? 1 : 2;
  to[4] = static_cast<uint8_t>(form << 6 | 1 << 5);
  to = write_little(to + 5, static_cast<uint64_t>(form == 1 ? size - 256 : size), 1 << form);
  int64_t done = 0;
  if (offsets > 0 && offsets <= kPartMax) {
    uint8_t* const end = write_offsets(to, data, offsets, offsets == size, scratch);
    if (end != nullptr) {
      to = end;
      done = offsets;
    }
  }
  while (done < size) {
    const int64_t part = smaller(kPartMax, size - done);
    to = write_bytes(to, data + done, part, done + part == size, scratch);
    done += part;
  }
  return to;
}

}  // namespace
}  // namespace zstd

int64_t zstd_code_chunks(ConstBytes source, ConstInts position, ConstInts size, ConstInts offsets,
                         int64_t sized, Bytes out, Ints out_size) {
  auto* scratch = static_cast<zstd::Scratch*>(malloc(sizeof(zstd::Scratch)));
  if (scratch == nullptr) return fail(kNoMemory, 0);
  int64_t written = 0, status = 0;
  for (int64_t i = 0; i < position.size && status == 0; ++i) {
    const int64_t bytes = size.data[i], head = offsets.data[i];
    if (!within(position.data[i], bytes, source.size)) {
      status = fail(kOutOfSource, i);
    } else if (head < 0 || head > bytes || head % 4 != 0) {
      status = fail(kBadOffsets, i);
    } else if (bytes > 1ll << 31) {
      status = fail(kTooLarge, i);
    } else if (bytes + bytes / 64 + zstd::kRoom > out.size - written) {
      status = fail(kOutputFull, i);
    } else if (bytes == 0) {
      out_size.data[i] = 0;
    } else {
      uint8_t* const to = out.data + written;
      if (sized) store<uint64_t>(to, static_cast<uint64_t>(bytes));
      const uint8_t* const end = zstd::write_frame(
          to + (sized ? 8 : 0), source.data + position.data[i], bytes, head, scratch);
      out_size.data[i] = end - to;
      written += end - to;
    }
  }
  free(scratch);
  return status < 0 ? status : written;
}

}  // namespace LANCELET_NAMESPACE
