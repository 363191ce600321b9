// Zstandard decompression of many frames (RFC 8878).
//
// For page-sized frames of some kilobytes: without set-up per frame or a window, and directly into
// the output. Features that pages never use (checksums, dictionaries, concatenated frames) are
// rejected as kBadStream, and the caller uses the zstd library.
#include "zstd_sequences.hpp"

namespace LANCELET_NAMESPACE {
namespace zstd {
namespace {

constexpr uint32_t kMagic = 0xFD2FB528;

struct Scratch {
  Literals literals;
  Tables tables;
};

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

}  // namespace LANCELET_NAMESPACE
