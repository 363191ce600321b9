// LZ4 block compression and decompression. lancelet/kernels/reference/lz4.py shows the format.
#include "inflate.hpp"
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kMatchMin = 4;
constexpr int64_t kTailLiterals = 5;   // format rule: the last 5 bytes are literals
constexpr int64_t kNoMatchFrom = 12;   // format rule: no match starts in the last 12 bytes
constexpr int64_t kFar = 65535;
constexpr int64_t kBlockMax = 0x7E000000;

// Adds the extension bytes of a length. Returns false if they are truncated, or the length exceeds
// the maximum.
LANCELET_INLINE bool extend(const uint8_t** at, const uint8_t* end, int64_t* length) {
  uint8_t more;
  do {
    if (*at >= end || *length > kBlockMax) return false;
    more = *(*at)++;
    *length += more;
  } while (more == 255);
  return true;
}

// Copies `length` bytes from `back` bytes before; kAhead more bytes are writable.
constexpr int64_t kAhead = 32;

LANCELET_INLINE void copy_match(uint8_t* to, int64_t back, int64_t length) {
  const uint8_t* from = to - back;
  if (LANCELET_LIKELY(back >= 8)) {
    // Most matches are short: no branch depends on their length or distance.
    memcpy(to, from, 8);
    memcpy(to + 8, from + 8, 8);
    if (LANCELET_LIKELY(length <= 16)) return;
    if (back >= 16) {
      for (int64_t k = 16; k < length; k += 16) memcpy(to + k, from + k, 16);
    } else {
      for (int64_t k = 16; k < length; k += 8) memcpy(to + k, from + k, 8);
    }
  } else if (back == 1) {
    memset(to, *from, size_t(length));  // a run of equal bytes, without store forwarding stalls
  } else {
    // A pattern of period `back` also has any multiple of it as a period.
    const int64_t period = back * (7 / back + 1);
    for (int64_t k = 0; k < 16; ++k) to[k] = from[k];
    for (int64_t k = 16; k < length; k += 8) memcpy(to + k, to + k - period, 8);
  }
}

// Returns whether a block is valid and decompresses to exactly `out_size` bytes. Stops early, without
// reading the rest, once it has written `wanted` bytes.
bool decompress(const uint8_t* at, int64_t size, uint8_t* to, int64_t out_size, int64_t wanted) {
  const uint8_t* const end = at + size;
  const uint8_t* const enough = to + wanted;
  uint8_t* const start = to;
  uint8_t* const out_end = to + out_size;
  while (at < end) {
    const uint8_t token = *at++;
    int64_t literals = token >> 4;
    if (literals == 15 && !extend(&at, end, &literals)) return false;
    if (literals > end - at || literals > out_end - to) return false;
    if (LANCELET_LIKELY(literals <= 16 && end - at >= 16 && out_end - to >= 16)) {
      memcpy(to, at, 16);
    } else {
      memcpy(to, at, literals);
    }
    at += literals;
    to += literals;
    if (at == end) return to == out_end;
    if (to >= enough && to < out_end) return true;
    if (end - at < 2) return false;
    const int64_t back = load<uint16_t>(at);
    at += 2;
    int64_t length = token & 15;
    if (length == 15 && !extend(&at, end, &length)) return false;
    length += kMatchMin;
    if (back == 0 || back > to - start || length > out_end - to) return false;
    // Only a match at the end of the output is copied bytewise.
    const int64_t ahead = smaller(length, out_end - to - kAhead);
    if (LANCELET_LIKELY(ahead > 0)) copy_match(to, back, ahead);
    for (int64_t k = larger<int64_t>(ahead, 0); k < length; ++k) to[k] = to[k - back];
    to += length;
  }
  return false;
}

constexpr int64_t bound(int64_t size) { return size + size / 255 + 16; }

LANCELET_INLINE uint8_t* write_length(uint8_t* to, int64_t rest) {
  for (; rest >= 255; rest -= 255) *to++ = 255;
  *to++ = static_cast<uint8_t>(rest);
  return to;
}

// Writes one sequence; `length` 0 is the last one, without a match. `left` input bytes remain from
// the literals on, and at least this many output bytes.
LANCELET_INLINE uint8_t* write_sequence(uint8_t* to, const uint8_t* literals, int64_t count,
                                        int64_t left, int64_t back, int64_t length) {
  uint8_t* token = to++;
  *token = static_cast<uint8_t>(smaller<int64_t>(count, 15) << 4);
  if (count >= 15) to = write_length(to, count - 15);
  if (LANCELET_LIKELY(count <= 16 && left >= 16)) memcpy(to, literals, 16);
  else memcpy(to, literals, static_cast<size_t>(count));
  to += count;
  if (length == 0) return to;
  store<uint16_t>(to, static_cast<uint16_t>(back));
  to += 2;
  *token |= static_cast<uint8_t>(smaller<int64_t>(length - kMatchMin, 15));
  if (length - kMatchMin >= 15) to = write_length(to, length - kMatchMin - 15);
  return to;
}

// Last position of each 4-byte sequence by hash. Positions continue across blocks, which
// invalidates earlier entries without clearing the table.
struct Seen {
  static constexpr int kBits = 12;
  uint32_t last[1 << kBits];
  uint32_t base;

  static LANCELET_INLINE uint32_t slot(uint32_t word) { return word * 2654435761u >> (32 - kBits); }
};

LANCELET_INLINE int64_t match_length(const uint8_t* a, const uint8_t* b, const uint8_t* end) {
  const uint8_t* start = a;
  while (end - a >= 8) {
    const uint64_t differ = load<uint64_t>(a) ^ load<uint64_t>(b);
    if (differ) return a - start + trailing_zeros(differ) / 8;
    a += 8;
    b += 8;
  }
  while (a < end && *a == *b) ++a, ++b;
  return a - start;
}

// Compresses to `to`, which has room for `bound(size)`; returns the end of the block.
uint8_t* compress(const uint8_t* data, int64_t size, uint8_t* to, Seen* seen) {
  if (seen->base > UINT32_MAX - static_cast<uint32_t>(size) - 1) {
    memset(seen->last, 0, sizeof seen->last);
    seen->base = 1;
  }
  const uint32_t base = seen->base;
  seen->base += static_cast<uint32_t>(size) + 1;
  const uint8_t* const match_end = data + size - kTailLiterals;
  int64_t anchor = 0;
  int64_t at = 0;
  while (at + kNoMatchFrom < size) {
    // The step grows with the number of misses, to skip incompressible data.
    int64_t match = -1;
    for (int64_t tries = 1 << 6; at + kNoMatchFrom < size; at += tries++ >> 6) {
      const uint32_t word = load<uint32_t>(data + at);
      uint32_t* last = &seen->last[Seen::slot(word)];
      const int64_t candidate = static_cast<int64_t>(*last) - base;
      *last = base + static_cast<uint32_t>(at);
      if (candidate >= 0 && at - candidate <= kFar && load<uint32_t>(data + candidate) == word) {
        match = candidate;
        break;
      }
    }
    if (match < 0) break;
    while (at > anchor && match > 0 && data[at - 1] == data[match - 1]) --at, --match;
    const int64_t length =
        kMatchMin + match_length(data + at + kMatchMin, data + match + kMatchMin, match_end);
    to = write_sequence(to, data + anchor, at - anchor, size - anchor, at - match, length);
    at += length;
    anchor = at;
    if (at + kNoMatchFrom < size)
      seen->last[Seen::slot(load<uint32_t>(data + at - 2))] = base + static_cast<uint32_t>(at - 2);
  }
  return write_sequence(to, data + anchor, size - anchor, size - anchor, 0, 0);
}

}  // namespace

int64_t lz4_decompress_chunks(ConstBytes source, ConstInts position, ConstInts size,
                              ConstInts out_size, Bytes out) {
  int64_t written = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const int64_t bytes = out_size.data[i];
    if (bytes < 0 || bytes > out.size - written) return fail(kOutputFull, i);
    const bool is_empty = bytes == 0 && size.data[i] == 0;
    if (!is_empty && !decompress(source.data + position.data[i], size.data[i], out.data + written,
                                bytes, bytes))
      return fail(kBadStream, i);
    written += bytes;
  }
  return written;
}

int64_t lz4_decompress_start(ConstBytes block, Bytes out, int64_t wanted) {
  return decompress(block.data, block.size, out.data, out.size, wanted) ? 0 : fail(kBadStream, 0);
}

int64_t lz4_compress_chunks(ConstBytes source, ConstInts position, ConstInts size, int64_t sized,
                            Bytes out, Ints out_size) {
  Seen* seen = static_cast<Seen*>(calloc(1, sizeof(Seen)));
  if (seen == nullptr) return fail(kNoMemory, 0);
  seen->base = 1;
  int64_t written = 0, status = 0;
  for (int64_t i = 0; i < position.size && status == 0; ++i) {
    const int64_t bytes = size.data[i];
    if (!within(position.data[i], bytes, source.size)) {
      status = fail(kOutOfSource, i);
    } else if (bytes > kBlockMax) {
      status = fail(kTooLarge, i);
    } else if (bound(bytes) + 4 > out.size - written) {
      status = fail(kOutputFull, i);
    } else {
      uint8_t* const to = out.data + written;
      if (sized) store<uint32_t>(to, static_cast<uint32_t>(bytes));
      const uint8_t* end =
          compress(source.data + position.data[i], bytes, to + (sized ? 4 : 0), seen);
      out_size.data[i] = end - to;
      written += end - to;
    }
  }
  free(seen);
  return status < 0 ? status : written;
}

}  // namespace LANCELET_NAMESPACE
