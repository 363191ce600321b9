// Zstandard decompression of many frames (RFC 8878).
//
// For page-sized frames of some kilobytes: without set-up per frame or a window, and directly into
// the output. Features that pages never use (checksums, dictionaries, concatenated frames) are
// rejected as kBadStream, and the caller uses the zstd library.
#include "zstd_prefix.hpp"
#include "zstd_sequences.hpp"

namespace LANCELET_NAMESPACE {
namespace zstd {
namespace {

constexpr uint32_t kMagic = 0xFD2FB528;

struct Scratch {
  Literals literals;
  Tables tables;
};

constexpr int kWindowMax = (27 - 10) << 3;  // descriptor of a window of 2^27, the library's limit

// Reads a frame header; returns its size, or -1 if unsupported or the stated size differs.
int64_t read_head(const uint8_t* at, int64_t size, int64_t out_size) {
  if (size < 6 || load<uint32_t>(at) != kMagic) return -1;
  const int descriptor = at[4];
  const bool is_single = descriptor >> 5 & 1;
  if (descriptor & 0x0F) return -1;  // reserved bit, checksum, dictionary
  if (descriptor & 0x10) return -1;
  const int form = descriptor >> 6;
  const int size_bytes = form == 0 ? is_single : 1 << form;
  const int64_t head = 5 + !is_single + size_bytes;
  if (size < head) return -1;
  if (!is_single && at[5] > kWindowMax) return -1;
  if (size_bytes == 0) return head;
  uint64_t stated = 0;
  for (int k = 0; k < size_bytes; ++k)
    stated |= static_cast<uint64_t>(at[head - size_bytes + k]) << (8 * k);
  if (size_bytes == 2) stated += 256;
  return stated == static_cast<uint64_t>(out_size) ? head : -1;
}

bool decompress(const uint8_t* at, int64_t size, const uint8_t* readable, Output* out,
                Scratch* scratch) {
  const uint8_t* const end = at + size;
  const int64_t head = read_head(at, size, out->end - out->to);
  if (head < 0) return false;
  at += head;
  out->start = out->to;
  out->back[0] = 1, out->back[1] = 4, out->back[2] = 8;
  scratch->literals.codes.is_set = false;
  scratch->tables.literals.is_set = false;
  scratch->tables.distances.is_set = false;
  scratch->tables.matches.is_set = false;
  for (bool is_last = false; !is_last;) {
    if (end - at < 3) return false;
    const uint32_t bits = at[0] | at[1] << 8 | at[2] << 16;
    is_last = bits & 1;
    const int64_t block = bits >> 3;
    at += 3;
    if (block > kBlockMax) return false;
    switch (bits >> 1 & 3) {
      case 0:
        if (block > end - at || block > out->end - out->to) return false;
        memcpy(out->to, at, static_cast<size_t>(block));
        out->to += block;
        at += block;
        break;
      case 1:
        if (at >= end || block > out->end - out->to) return false;
        memset(out->to, *at++, static_cast<size_t>(block));
        out->to += block;
        break;
      case 2: {
        if (block > end - at) return false;
        const int64_t bytes = read_literals(at, at + block, readable, &scratch->literals);
        if (bytes < 0) return false;
        if (!run_sequences(at + bytes, at + block, scratch->literals, &scratch->tables, out))
          return false;
        at += block;
        break;
      }
      default:
        return false;
    }
  }
  return at == end && out->to == out->end;
}

}  // namespace
}  // namespace zstd

int64_t zstd_decompress_chunks(ConstBytes source, ConstInts position, ConstInts size,
                               ConstInts out_size, Bytes out) {
  auto* scratch = static_cast<zstd::Scratch*>(malloc(sizeof(zstd::Scratch)));
  if (scratch == nullptr) return fail(kNoMemory, 0);
  zstd::Output output = {};
  output.to = out.data;
  output.writable = out.data + out.size;
  int64_t status = 0;
  for (int64_t i = 0; i < position.size && status == 0; ++i) {
    const int64_t bytes = out_size.data[i];
    output.end = output.to + bytes;
    if (!within(position.data[i], size.data[i], source.size)) {
      status = fail(kOutOfSource, i);
    } else if (bytes < 0 || bytes > output.writable - output.to) {
      status = fail(kOutputFull, i);
    } else if ((bytes > 0 || size.data[i] > 0) &&
               !zstd::decompress(source.data + position.data[i], size.data[i],
                                 source.data + source.size, &output, scratch)) {
      status = fail(kBadStream, i);
    }
  }
  free(scratch);
  return status < 0 ? status : output.to - out.data;
}

// Zstandard compression of chunks with a fixed-width prefix, such as string offsets or decimals.
//
//     words     e4 01 00 00 | f0 01 00 00 | ...    high bytes mostly unchanged
//     bytes     5a 03 91 17 ...                    unordered, with skewed frequencies
//
// A match search would find nothing more in the words and little in the bytes, but dominates the
// time of a general compressor. Words are therefore written as sequences without a search
// (zstd_prefix.hpp), and bytes are stored, or Huffman-coded if that saves enough. The result is
// standard Zstandard.
namespace zstd {
namespace {

constexpr int64_t kFewBytes = 64;      // too few for a Huffman table
constexpr int64_t kSavingMin = 6;      // codes must save 1/6, since decoding takes time
constexpr int64_t kRoom = 600;         // maximum size of headers and tables

struct EncodeScratch {
  PrefixScratch prefix;
  SymbolCodes codes;
};

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

// Returns log2 of a number in units of 1/256, at most 22 too small.
LANCELET_INLINE int64_t logarithm(uint64_t number) {
  const int whole = highest_bit(number);
  return whole << 8 | static_cast<int64_t>((number << 8 >> whole) & 255);
}

// Returns whether an optimal code would save enough.
bool may_save(const uint32_t* found, int64_t size) {
  const int64_t of_all = logarithm(static_cast<uint64_t>(size));
  int64_t bits = 0;
  for (int byte = 0; byte < 256; ++byte)
    if (found[byte]) bits += found[byte] * (of_all - logarithm(found[byte]));
  return bits / (8 << 8) < size - size / kSavingMin;
}

// Writes a block of bytes, Huffman-coded if that saves enough.
uint8_t* write_bytes(uint8_t* to, const uint8_t* data, int64_t size, bool is_last,
                     EncodeScratch* scratch) {
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

uint8_t* write_frame(uint8_t* to, const uint8_t* data, int64_t size, int64_t prefix_bytes, int word_bytes,
                     EncodeScratch* scratch) {
  store<uint32_t>(to, 0xFD2FB528);
  const int form = size < 256 ? 0 : size < 65536 + 256 ? 1 : 2;
  to[4] = static_cast<uint8_t>(form << 6 | 1 << 5);
  to = write_little(to + 5, static_cast<uint64_t>(form == 1 ? size - 256 : size), 1 << form);
  int64_t done = 0;
  if (prefix_bytes > 0 && prefix_bytes <= kPartMax) {
    uint8_t* const end = write_prefix(to, data, prefix_bytes, word_bytes, prefix_bytes == size, &scratch->prefix);
    if (end != nullptr) {
      to = end;
      done = prefix_bytes;
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

int64_t zstd_encode_prefixes(ConstBytes source, ConstInts position, ConstInts size, ConstInts prefix_bytes,
                         int64_t word_bytes, int64_t sized, Bytes out, Ints out_size) {
  if (word_bytes != 4 && word_bytes != 8 && word_bytes != 16 && word_bytes != 32)
    return fail(kBadWidth, 0);
  auto* scratch = static_cast<zstd::EncodeScratch*>(malloc(sizeof(zstd::EncodeScratch)));
  if (scratch == nullptr) return fail(kNoMemory, 0);
  int64_t written = 0, status = 0;
  for (int64_t i = 0; i < position.size && status == 0; ++i) {
    const int64_t bytes = size.data[i], head = prefix_bytes.data[i];
    if (!within(position.data[i], bytes, source.size)) {
      status = fail(kOutOfSource, i);
    } else if (head < 0 || head > bytes || head % word_bytes != 0) {
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
          to + (sized ? 8 : 0), source.data + position.data[i], bytes, head,
          static_cast<int>(word_bytes), scratch);
      out_size.data[i] = end - to;
      written += end - to;
    }
  }
  free(scratch);
  return status < 0 ? status : written;
}

}  // namespace LANCELET_NAMESPACE
