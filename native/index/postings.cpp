// Encoding and decoding of posting lists; postings.hpp defines the layout.
#include "postings.hpp"

namespace LANCELET_NAMESPACE {
namespace {

LANCELET_INLINE int width_of(uint32_t bits) {
  int width = 0;
  for (; bits; bits >>= 1) ++width;
  return width;
}

template <int lanes>
void pack(const uint32_t* values, int width, uint8_t* out) {
  memset(out, 0, static_cast<size_t>(width) * lanes * 4);
  for (int lane = 0; lane < lanes; ++lane) {
    uint64_t held = 0;
    int bits = 0, row = 0;
    for (int k = 0; k < 32; ++k) {
      held |= static_cast<uint64_t>(values[k * lanes + lane]) << bits;
      bits += width;
      if (bits >= 32) {
        store<uint32_t>(out + (row++ * lanes + lane) * 4, static_cast<uint32_t>(held));
        held >>= 32;
        bits -= 32;
      }
    }
  }
}

LANCELET_INLINE uint8_t* put_varint(uint8_t* out, uint32_t value) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<uint8_t>(value | 0x80);
  *out++ = static_cast<uint8_t>(value);
  return out;
}

template <int lanes>
uint8_t* put_packed(const uint32_t* values, uint8_t* out) {
  uint32_t bits = 0;
  for (int k = 0; k < lanes * 32; ++k) bits |= values[k];
  const int width = width_of(bits);
  *out++ = static_cast<uint8_t>(width);
  pack<lanes>(values, width, out);
  return out + static_cast<int64_t>(width) * lanes * 4;
}

// Writes frequencies in blocks of 256: the cheapest width, then the exceptions.
uint8_t* put_patched(const uint32_t* values, uint8_t* out) {
  int64_t needs[33] = {};
  for (int k = 0; k < 256; ++k) ++needs[width_of(values[k])];
  int best = 32;
  int64_t best_bytes = 32 * 32;
  int64_t above = 0;
  for (int width = 31; width >= 0; --width) {
    above += needs[width + 1];
    if (above > 255) break;
    int64_t bytes = 32 * width;
    for (int more = width + 1; more <= 32; ++more) bytes += needs[more] * (1 + (more - width + 6) / 7);
    if (bytes < best_bytes) {
      best = width;
      best_bytes = bytes;
    }
  }
  const uint32_t mask = best == 32 ? 0xffffffffu : (1u << best) - 1;
  uint32_t low[256];
  int exceptions = 0;
  for (int k = 0; k < 256; ++k) {
    low[k] = values[k] & mask;
    exceptions += values[k] > mask;
  }
  *out++ = static_cast<uint8_t>(best);
  *out++ = static_cast<uint8_t>(exceptions);
  pack<8>(low, best, out);
  out += 32 * best;
  for (int k = 0; k < 256; ++k) {
    if (values[k] <= mask) continue;
    *out++ = static_cast<uint8_t>(k);
    out = put_varint(out, values[k] >> best);
  }
  return out;
}

// Writes the tail of a list, a partial block.
uint8_t* put_tail(const uint32_t* docs, const uint32_t* freqs, int64_t count, bool is_varint,
                  uint8_t* out) {
  if (!is_varint) {
    memcpy(out, docs, count * 4);
    memcpy(out + count * 4, freqs, count * 4);
    return out + count * 8;
  }
  for (int64_t k = 0; k < count; ++k) out = put_varint(out, k ? docs[k] - docs[k - 1] : docs[k]);
  for (int64_t k = 0; k < count; ++k) out = put_varint(out, freqs[k]);
  return out;
}

template <int lanes>
uint8_t* put_block(const uint32_t* docs, const uint32_t* freqs, uint8_t* out) {
  constexpr int count = lanes * 32;
  uint32_t deltas[count];
  deltas[0] = 0;
  for (int k = 1; k < count; ++k) deltas[k] = docs[k] - docs[k - 1];
  store<uint32_t>(out, docs[0]);
  out = put_packed<lanes>(deltas, out + 4);
  if constexpr (lanes == 8) return put_patched(freqs, out);
  return put_packed<lanes>(freqs, out);
}

// The impacts of a group of documents: pairs of frequency and length code that no other pair
// dominates.
struct Impacts {
  uint32_t most[256];  // the largest frequency of each code
  int lowest, highest;

  void clear() {
    memset(most, 0, sizeof most);
    lowest = 256;
    highest = -1;
  }

  void add(uint32_t freq, int code) {
    most[code] = larger(most[code], freq);
    lowest = smaller(lowest, code);
    highest = larger(highest, code);
  }

  uint8_t* put(uint32_t last_doc, uint8_t* out) const {
    uint32_t best = 0;
    uint32_t pairs = 0;
    for (int code = lowest; code <= highest; ++code) {
      pairs += most[code] > best;
      best = larger(best, most[code]);
    }
    out = put_varint(put_varint(out, last_doc), pairs);
    best = 0;
    int before = 0;
    for (int code = lowest; code <= highest; ++code) {
      if (most[code] <= best) continue;
      const uint32_t step = most[code] - best - 1;
      const bool is_far = code != before + 1;
      // Valid frequencies are far below 2^31; invalid ones wrap.
      out = put_varint(out, step << 1 | is_far);
      if (is_far) *out++ = static_cast<uint8_t>(code - before);
      best = most[code];
      before = code;
    }
    return out;
  }
};

}  // namespace

// Writes the impacts of each list of `count[i]` documents: an entry per block, then one per 32
// blocks, with the last document and the pairs of frequency and length that may score best. `code`
// is the length code of each document; `end` receives the end of each entry.
int64_t encode_impacts(Span<const uint32_t> docs, Span<const uint32_t> freqs, ConstInts count,
                       ConstBytes code, int64_t block_docs, Bytes out, Ints end) {
  constexpr int64_t kBlocksPerGroup = 32;
  constexpr int64_t kEntryBytes = 10 + 256 * 6;
  int64_t from = 0, entry = 0;
  uint8_t* at = out.data;
  const uint8_t* limit = out.data + out.size;
  Impacts impacts;
  for (int64_t i = 0; i < count.size; ++i) {
    const int64_t own = count.data[i];
    if (own < 0 || own > docs.size - from || own > freqs.size - from) return fail(kBadCount, i);
    for (int64_t step = block_docs; step <= block_docs * kBlocksPerGroup;
         step *= kBlocksPerGroup) {
      for (int64_t start = 0; start < own; start += step) {
        const int64_t stop = smaller(start + step, own);
        if (entry >= end.size || limit - at < kEntryBytes) return fail(kOutputFull, i);
        impacts.clear();
        for (int64_t k = from + start; k < from + stop; ++k) {
          if (docs.data[k] >= code.size) return fail(kBadIndex, i);
          impacts.add(freqs.data[k], code.data[docs.data[k]]);
        }
        at = impacts.put(docs.data[from + stop - 1], at);
        end.data[entry++] = at - out.data;
      }
    }
    from += own;
  }
  return at - out.data;
}

// Writes consecutive lists of `count[i]` documents as blocks; `end` receives the end of each block.
// Blocks of 128 start with their best score.
int64_t encode_postings(Span<const uint32_t> docs, Span<const uint32_t> freqs, ConstInts count,
                        Span<const float> block_score, int64_t block_docs, int64_t is_varint,
                        Bytes out, Ints end) {
  int64_t from = 0, block = 0;
  uint8_t* at = out.data;
  const uint8_t* limit = out.data + out.size;
  for (int64_t i = 0; i < count.size; ++i) {
    if (count.data[i] < 0 || count.data[i] > docs.size - from) return fail(kBadCount, i);
    for (int64_t left = count.data[i]; left > 0; ++block) {
      const int64_t own = smaller(left, block_docs);
      if (block >= end.size || block >= block_score.size || limit - at < 64 + own * 10)
        return fail(kOutputFull, i);
      if (block_docs == 128) {
        store<float>(at, block_score.data[block]);
        at += 4;
      }
      if (own < block_docs) {
        at = put_tail(docs.data + from, freqs.data + from, own, is_varint != 0, at);
      } else if (block_docs == 128) {
        at = put_block<4>(docs.data + from, freqs.data + from, at);
      } else {
        at = put_block<8>(docs.data + from, freqs.data + from, at);
      }
      end.data[block] = at - out.data;
      from += own;
      left -= own;
    }
  }
  return at - out.data;
}

// Reads blocks of `count[i]` documents.
int64_t decode_postings(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                        int64_t block_docs, int64_t is_varint, Span<uint32_t> docs,
                        Span<uint32_t> freqs) {
  int64_t to = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const int64_t own = count.data[i];
    if (own < 0 || own > block_docs || own > docs.size - to) return fail(kBadCount, i);
    const uint8_t* at = source.data + position.data[i];
    const uint8_t* end = at + size.data[i];
    if (block_docs == 128 && end - at < 4) return fail(kTooShort, i);
    at = get_postings(at, end, own, block_docs, is_varint != 0, docs.data + to, freqs.data + to);
    if (!at) return fail(kBadStream, i);
    to += own;
  }
  return to;
}

// Writes streams of `count[i]` values: packed runs of 128, and the rest as varints.
int64_t encode_streams(Span<const uint32_t> values, ConstInts count, Bytes out, Ints end) {
  int64_t from = 0;
  uint8_t* at = out.data;
  const uint8_t* limit = out.data + out.size;
  for (int64_t i = 0; i < count.size; ++i) {
    int64_t left = count.data[i];
    if (left < 0 || left > values.size - from) return fail(kBadCount, i);
    for (; left >= kStreamRun; left -= kStreamRun, from += kStreamRun) {
      if (limit - at < 1 + kStreamRun * 4) return fail(kOutputFull, i);
      at = put_packed<4>(values.data + from, at);
    }
    if (limit - at < left * 5) return fail(kOutputFull, i);
    for (; left > 0; --left) at = put_varint(at, values.data[from++]);
    end.data[i] = at - out.data;
  }
  return at - out.data;
}

int64_t decode_streams(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                       Span<uint32_t> values) {
  int64_t to = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    int64_t left = count.data[i];
    if (left < 0 || left > values.size - to) return fail(kBadCount, i);
    const uint8_t* at = source.data + position.data[i];
    const uint8_t* end = at + size.data[i];
    for (; left >= kStreamRun; left -= kStreamRun, to += kStreamRun)
      if (!(at = get_packed<4>(at, end, values.data + to))) return fail(kBadStream, i);
    for (; left > 0; --left)
      if (!(at = get_varint(at, end, &values.data[to++]))) return fail(kBadStream, i);
  }
  return to;
}

}  // namespace LANCELET_NAMESPACE
