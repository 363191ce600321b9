// FastLanes bit packing: 1024 values interleaved over 1024/T lanes of T-bit words.
//
// Value r of lane l has bits [r*W, r*W + W) of its lane's stream, and consecutive words of a lane
// are `lanes` words apart. A loop iteration over r therefore reads one or two rows of `lanes`
// adjacent words and writes `lanes` adjacent values, which compilers vectorize for any width W.
//
// Rows are not in value order, so a block is written in runs of 128 bytes at a stride of 1 KiB. For
// uncached output, each run waits for a cache line that is then overwritten. Large results are
// therefore unpacked to a block in the L1 cache and copied sequentially. The largest bypass the
// cache, which could not hold them until they are used.
#include "bitpack.hpp"
#include "kernel.hpp"

#if defined(__SSE2__) || defined(_M_X64)
#include <immintrin.h>
#define LANCELET_STREAMS 1
#endif

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__GNUC__)
#define LANCELET_COMPRESSES 1
#else
#define LANCELET_COMPRESSES 0
#endif

namespace LANCELET_NAMESPACE {
namespace {

using Ranges = Span<const uint64_t>;

constexpr int64_t kBlock = 1024;
constexpr int64_t kLanes = 16;  // rows that are selected at once
constexpr int64_t kStagedFrom = 1 << 20;    // results copied from a staging block
constexpr int64_t kStreamedFrom = 4 << 20;  // results that bypass the cache

// Returns the first value of row r. The order of the eight groups makes transposes cheap.
template <class T>
LANCELET_INLINE int64_t row_start(int64_t row) {
  constexpr int64_t order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
  return order[row / 8] * 16 + row % 8 * 128;
}

// Returns the row of a value, the inverse of `row_start`. The order reverses three bits, so it is
// its own inverse.
template <class T>
LANCELET_INLINE int64_t row_of(int64_t value) {
  constexpr int64_t lanes = kBlock / (8 * sizeof(T));
  const int64_t order = value % 128 / lanes * lanes / 16;
  const int64_t group = (order & 1) << 2 | (order & 2) | order >> 2;
  return group * 8 + value / 128;
}

template <class T>
void unpack_block(const uint8_t* LANCELET_RESTRICT packed, int64_t width,
                  uint8_t* LANCELET_RESTRICT out) {
  constexpr int64_t bits = 8 * sizeof(T);
  constexpr int64_t lanes = kBlock / bits;
  constexpr int64_t row_bytes = lanes * sizeof(T);
  if (width == 0) {
    memset(out, 0, kBlock * sizeof(T));
    return;
  }
  const T mask = static_cast<T>(static_cast<T>(~T{0}) >> (bits - width));
  for (int64_t row = 0; row < bits; ++row) {
    const int64_t bit = row * width;
    const int shift = static_cast<int>(bit % bits);
    const uint8_t* low = packed + bit / bits * row_bytes;
    uint8_t* to = out + row_start<T>(row) * sizeof(T);
    if (shift + width <= bits) {
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const T word = load<T>(low + lane * sizeof(T));
        store<T>(to + lane * sizeof(T), static_cast<T>(word >> shift) & mask);
      }
    } else {
      const int up = static_cast<int>(bits) - shift;
      const uint8_t* high = low + row_bytes;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        const T word = static_cast<T>(load<T>(low + lane * sizeof(T)) >> shift);
        const T rest = static_cast<T>(load<T>(high + lane * sizeof(T)) << up);
        store<T>(to + lane * sizeof(T), static_cast<T>((word | rest) & mask));
      }
    }
  }
}

template <class T>
void pack_block(const uint8_t* LANCELET_RESTRICT values, int64_t width,
                uint8_t* LANCELET_RESTRICT packed) {
  constexpr int64_t bits = 8 * sizeof(T);
  constexpr int64_t lanes = kBlock / bits;
  constexpr int64_t row_bytes = lanes * sizeof(T);
  for (int64_t row = 0; row < bits && width > 0; ++row) {
    const int64_t bit = row * width;
    const int shift = static_cast<int>(bit % bits);
    const uint8_t* from = values + row_start<T>(row) * sizeof(T);
    uint8_t* low = packed + bit / bits * row_bytes;
    if (shift == 0) {
      memcpy(low, from, row_bytes);
      continue;
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const T value = static_cast<T>(load<T>(from + lane * sizeof(T)) << shift);
      store<T>(low + lane * sizeof(T), load<T>(low + lane * sizeof(T)) | value);
    }
    if (shift + width > bits) {
      uint8_t* high = low + row_bytes;
      const int down = static_cast<int>(bits) - shift;
      for (int64_t lane = 0; lane < lanes; ++lane)
        store<T>(high + lane * sizeof(T),
                 static_cast<T>(load<T>(from + lane * sizeof(T)) >> down));
    }
  }
}

constexpr int64_t block_bytes(int64_t width) { return width * (kBlock / 8); }

// Copies a block to a result of `out_bytes`.
template <int64_t kBytes>
LANCELET_INLINE void copy_block(const uint8_t* from, uint8_t* to, int64_t out_bytes) {
#if defined(LANCELET_STREAMS)
  if (out_bytes >= kStreamedFrom && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    for (int64_t k = 0; k < kBytes; k += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + k)));
    return;
  }
#endif
  (void)out_bytes;
  memcpy(to, from, kBytes);
}

// Makes streaming stores visible to other threads.
LANCELET_INLINE void finish_streams() {
#if defined(LANCELET_STREAMS)
  _mm_sfence();
#endif
}

// Unpacks a block directly, or through a staging block for large results.
template <class T>
LANCELET_INLINE void unpack_to(const uint8_t* packed, int64_t width, uint8_t* whole, uint8_t* to,
                               int64_t out_bytes) {
  if (out_bytes < kStagedFrom) {
    unpack_block<T>(packed, width, to);
  } else {
    unpack_block<T>(packed, width, whole);
    copy_block<kBlock * sizeof(T)>(whole, to, out_bytes);
  }
}

// An inline block: its width and its packed words.
struct Inline {
  int64_t width;
  const uint8_t* packed;
};

template <class T>
LANCELET_INLINE int64_t read_inline(ConstBytes source, int64_t position, int64_t size,
                                    int64_t index, Inline* block) {
  if (!within(position, size, source.size)) return fail(kOutOfSource, index);
  if (size < static_cast<int64_t>(sizeof(T))) return fail(kTooShort, index);
  const T width = load<T>(source.data + position);
  if (width > 8 * sizeof(T)) return fail(kBadWidth, index);
  *block = {static_cast<int64_t>(width), source.data + position + sizeof(T)};
  if (size - static_cast<int64_t>(sizeof(T)) < block_bytes(block->width))
    return fail(kTooShort, index);
  return 0;
}

template <class T>
struct Kernels {
  static constexpr int64_t bytes = sizeof(T);

  static int64_t unpack_chunks(ConstBytes source, ConstInts position, ConstInts size,
                               ConstInts count, Bytes out) {
    alignas(64) uint8_t whole[kBlock * sizeof(T)];
    int64_t written = 0;
    for (int64_t i = 0; i < position.size; ++i) {
      Inline block = {};
      const int64_t status = read_inline<T>(source, position.data[i], size.data[i], i, &block);
      if (status < 0) return status;
      const int64_t values = count.data[i];
      if (values < 0 || values > kBlock) return fail(kBadCount, i);
      if (values > (out.size - written) / bytes) return fail(kOutputFull, i);
      if (values == kBlock) {
        unpack_to<T>(block.packed, block.width, whole, out.data + written, out.size);
      } else if (values > 0) {
        unpack_block<T>(block.packed, block.width, whole);
        memcpy(out.data + written, whole, values * bytes);
      }
      written += values * bytes;
    }
    finish_streams();
    return written;
  }

  // Returns an integer with the order of the floating point numbers; NaN is first or last.
  static LANCELET_INLINE T float_order(T value) {
    constexpr T sign = static_cast<T>(T{1} << (8 * sizeof(T) - 1));
    return value ^ static_cast<T>(static_cast<T>(T{0} - (value >> (8 * sizeof(T) - 1))) | sign);
  }

  template <bool kFloat, bool kAdds>
  static LANCELET_INLINE void match_range(const uint8_t* LANCELET_RESTRICT whole, int64_t count,
                                          T first, T most, uint8_t* LANCELET_RESTRICT to) {
    for (int64_t k = 0; k < count; ++k) {
      const T value = load<T>(whole + k * bytes);
      const uint8_t found = static_cast<T>((kFloat ? float_order(value) : value) - first) <= most;
      to[k] = kAdds ? to[k] | found : found;
    }
  }

  // Writes 1 for each value in one of the ranges, of which there is at least one.
  template <bool kFloat>
  static LANCELET_INLINE void match_block(const uint8_t* LANCELET_RESTRICT whole, int64_t count,
                                          Ranges ranges, uint8_t* LANCELET_RESTRICT to) {
    for (int64_t i = 0; i + 1 < ranges.size; i += 2) {
      const T first = static_cast<T>(ranges.data[i]), most = static_cast<T>(ranges.data[i + 1]);
      if (i == 0) {
        match_range<kFloat, false>(whole, count, first, most, to);
      } else {
        match_range<kFloat, true>(whole, count, first, most, to);
      }
    }
  }

  // Writes 1 for each value, or its order as a float, in one of the ranges, else 0. Each range has a
  // number and the distance to the last one, modulo 2^bits.
  static int64_t match_packed(ConstBytes source, ConstInts position, ConstInts size,
                              ConstInts count, int64_t is_float, Ranges ranges, Bytes out) {
    alignas(64) uint8_t whole[kBlock * sizeof(T)];
    if (ranges.size < 2 || ranges.size % 2 != 0) return fail(kBadCount, 0);
    int64_t written = 0;
    for (int64_t i = 0; i < position.size; ++i) {
      Inline block = {};
      const int64_t status = read_inline<T>(source, position.data[i], size.data[i], i, &block);
      if (status < 0) return status;
      const int64_t values = count.data[i];
      if (values < 0 || values > kBlock) return fail(kBadCount, i);
      if (values > out.size - written) return fail(kOutputFull, i);
      unpack_block<T>(block.packed, block.width, whole);
      if (is_float) {
        match_block<true>(whole, values, ranges, out.data + written);
      } else {
        match_block<false>(whole, values, ranges, out.data + written);
      }
      written += values;
    }
    return written;
  }

  // The rows and values of a block that pass, followed by unused lanes.
  struct Selected {
    alignas(64) int32_t rows[kBlock + kLanes];
    alignas(64) uint8_t values[(kBlock + kLanes) * sizeof(T)];

    // Selects the values with a flag of 1, and returns their number.
    LANCELET_INLINE int64_t of(const uint8_t* flags, const uint8_t* whole, int32_t before) {
      int64_t found = 0;
#if LANCELET_COMPRESSES
      const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      for (int64_t k = 0; k < kBlock; k += 64) {
        const __m512i flag = _mm512_load_si512(flags + k);
        uint64_t left = _mm512_test_epi8_mask(flag, flag);
        for (int64_t at = k; left; at += kLanes, left >>= kLanes) {
          const __mmask16 mask = static_cast<__mmask16>(left);
          if (!mask) continue;
          const __m512i row =
              _mm512_add_epi32(lanes, _mm512_set1_epi32(before + static_cast<int32_t>(at)));
          _mm512_storeu_si512(rows + found, _mm512_maskz_compress_epi32(mask, row));
          compress(mask, whole + at * bytes, values + found * bytes);
          found += __builtin_popcount(mask);
        }
      }
#else
      for (int64_t k = 0; k < kBlock; k += 8) {
        for (uint64_t left = load<uint64_t>(flags + k); left; left &= left - 1) {
          const int64_t at = k + trailing_zeros(left) / 8;
          rows[found] = before + static_cast<int32_t>(at);
          memcpy(values + found * bytes, whole + at * bytes, bytes);
          ++found;
        }
      }
#endif
      return found;
    }

#if LANCELET_COMPRESSES
    // Writes the values of a mask of 16 values.
    static LANCELET_INLINE void compress(__mmask16 mask, const uint8_t* from, uint8_t* to) {
      if constexpr (bytes == 8) {
        const __mmask8 first = static_cast<__mmask8>(mask);
        const __mmask8 second = static_cast<__mmask8>(mask >> 8);
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi64(first, _mm512_loadu_si512(from)));
        _mm512_storeu_si512(to + 8 * __builtin_popcount(first),
                            _mm512_maskz_compress_epi64(second, _mm512_loadu_si512(from + 64)));
      } else if constexpr (bytes == 4) {
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(mask, _mm512_loadu_si512(from)));
      } else if constexpr (bytes == 2) {
        const __m512i wide =
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                            _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(mask, wide)));
      } else {
        const __m512i wide =
            _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                         _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32(mask, wide)));
      }
    }
#endif
  };

  // Writes the positions and values of the numbers that `match_packed` flags; returns their number.
  static int64_t select_packed(args::Slices chunks, ConstInts count, int64_t is_float,
                               Ranges ranges, Span<int32_t> rows, Bytes out) {
    alignas(64) uint8_t whole[kBlock * sizeof(T)];
    alignas(64) uint8_t flags[kBlock];
    Selected selected;
    if (ranges.size < 2 || ranges.size % 2 != 0) return fail(kBadCount, 0);
    int64_t before = 0;
    int64_t found = 0;
    for (int64_t i = 0; i < chunks.position.size; ++i) {
      Inline block = {};
      const int64_t status =
          read_inline<T>(chunks.source, chunks.position.data[i], chunks.size.data[i], i, &block);
      if (status < 0) return status;
      const int64_t values = count.data[i];
      if (values < 0 || values > kBlock) return fail(kBadCount, i);
      if (values > rows.size - found || values > out.size / bytes - found)
        return fail(kOutputFull, i);
      unpack_block<T>(block.packed, block.width, whole);
      if (is_float) {
        match_block<true>(whole, kBlock, ranges, flags);
      } else {
        match_block<false>(whole, kBlock, ranges, flags);
      }
      memset(flags + values, 0, kBlock - values);
      const int64_t passed = selected.of(flags, whole, static_cast<int32_t>(before));
      memcpy(rows.data + found, selected.rows, passed * sizeof(int32_t));
      memcpy(out.data + found * bytes, selected.values, passed * bytes);
      found += passed;
      before += values;
    }
    return found;
  }

  static int64_t unpack_blocks(ConstBytes data, int64_t width, int64_t blocks, Bytes out) {
    alignas(64) uint8_t whole[kBlock * sizeof(T)];
    if (width < 0 || width > 8 * bytes) return fail(kBadWidth, 0);
    if (blocks < 0 || (width > 0 && blocks > data.size / block_bytes(width)))
      return fail(kTooShort, 0);
    for (int64_t i = 0; i < blocks; ++i) {
      const uint8_t* packed = data.data + i * block_bytes(width);
      const int64_t start = i * kBlock * bytes;
      if (start >= out.size) return fail(kOutputFull, i);
      if (out.size - start >= kBlock * bytes) {
        unpack_to<T>(packed, width, whole, out.data + start, out.size);
      } else {
        unpack_block<T>(packed, width, whole);
        memcpy(out.data + start, whole, out.size - start);
      }
    }
    finish_streams();
    return out.size;
  }

  static LANCELET_INLINE int64_t width_of(const uint8_t* from, int64_t count) {
    T seen = 0;
    for (int64_t k = 0; k < count; ++k) seen |= load<T>(from + k * bytes);
    int64_t width = 0;
    for (uint64_t rest = seen; rest; rest >>= 1) ++width;
    return width;
  }

  static int64_t bit_widths(ConstBytes values, int64_t chunk, Bytes widths) {
    const int64_t count = values.size / bytes;
    for (int64_t i = 0; i < widths.size; ++i)
      widths.data[i] = static_cast<uint8_t>(
          width_of(values.data + i * chunk * bytes, smaller(chunk, count - i * chunk)));
    return widths.size;
  }

  static int64_t pack_chunks(ConstBytes values, int64_t chunk, Bytes widths, Bytes out) {
    alignas(64) uint8_t padded[kBlock * sizeof(T)];
    const int64_t count = values.size / bytes;
    int64_t written = 0;
    for (int64_t i = 0; i < widths.size; ++i) {
      const int64_t n = smaller(chunk, count - i * chunk);
      if (n < 0 || n > kBlock) return fail(kBadWidth, i);
      const uint8_t* from = values.data + i * chunk * bytes;
      // The width is computed and used while the block is in the cache.
      const int64_t width = width_of(from, n);
      const int64_t size = bytes + block_bytes(width);
      if (size > out.size - written) return fail(kOutputFull, i);
      if (n < kBlock) {
        memcpy(padded, from, n * bytes);
        memset(padded + n * bytes, 0, (kBlock - n) * bytes);
        from = padded;
      }
      widths.data[i] = static_cast<uint8_t>(width);
      store<T>(out.data + written, static_cast<T>(width));
      pack_block<T>(from, width, out.data + written + bytes);
      written += size;
    }
    return written;
  }

  static int64_t pack_blocks(ConstBytes values, int64_t width, Bytes out) {
    alignas(64) uint8_t padded[kBlock * sizeof(T)];
    if (width < 0 || width > 8 * bytes) return fail(kBadWidth, 0);
    const int64_t blocks = (values.size / bytes + kBlock - 1) / kBlock;
    if (blocks * block_bytes(width) > out.size) return fail(kOutputFull, 0);
    for (int64_t i = 0; i < blocks; ++i) {
      const uint8_t* from = values.data + i * kBlock * bytes;
      const int64_t left = values.size - i * kBlock * bytes;
      if (left < kBlock * bytes) {
        memcpy(padded, from, left);
        memset(padded + left, 0, kBlock * bytes - left);
        from = padded;
      }
      pack_block<T>(from, width, out.data + i * block_bytes(width));
    }
    return blocks * block_bytes(width);
  }

  static int64_t pick_packed(ConstBytes source, ConstInts position, ConstInts size,
                             ConstInts index, Bytes out) {
    if (out.size < position.size * bytes) return fail(kOutputFull, 0);
    for (int64_t i = 0; i < position.size; ++i) {
      Inline block = {};
      const int64_t status = read_inline<T>(source, position.data[i], size.data[i], i, &block);
      if (status < 0) return status;
      const int64_t at = index.data[i];
      if (at < 0 || at >= kBlock) return fail(kBadIndex, i);
      store<T>(out.data + i * bytes, value_at(block, at));
    }
    return position.size * bytes;
  }

  static int64_t pick_from_block(ConstBytes source, ConstInts indices, int64_t shift, Bytes out) {
    Inline block = {};
    const int64_t status = read_inline<T>(source, 0, source.size, 0, &block);
    if (status < 0) return status;
    if (out.size / bytes < indices.size) return fail(kOutputFull, 0);
    for (int64_t i = 0; i < indices.size; ++i) {
      const int64_t at = indices.data[i] - shift;
      if (at < 0 || at >= kBlock) return fail(kBadIndex, i);
      store<T>(out.data + i * bytes, value_at(block, at));
    }
    return 0;
  }

  // Returns one value of a block.
  static LANCELET_INLINE T value_at(const Inline& block, int64_t at) {
    constexpr int64_t bits = 8 * sizeof(T);
    constexpr int64_t lanes = kBlock / bits;
    if (block.width == 0) return 0;
    const int64_t row = row_of<T>(at);
    const int64_t lane = at - row_start<T>(row);
    const int64_t bit = row * block.width;
    const int shift = static_cast<int>(bit % bits);
    const uint8_t* word = block.packed + (bit / bits * lanes + lane) * bytes;
    T value = static_cast<T>(load<T>(word) >> shift);
    if (shift + block.width > bits)
      value |= static_cast<T>(load<T>(word + lanes * bytes) << (bits - shift));
    return value & static_cast<T>(static_cast<T>(~T{0}) >> (bits - block.width));
  }
};

}  // namespace

// Calls a kernel for words of `word_bits`.
#define FOR_WORD(word_bits, call)                   \
  switch (word_bits) {                              \
    case 8: return Kernels<uint8_t>::call;          \
    case 16: return Kernels<uint16_t>::call;        \
    case 32: return Kernels<uint32_t>::call;        \
    case 64: return Kernels<uint64_t>::call;        \
    default: return fail(kBadWidth, 0);             \
  }

int64_t unpack_chunks(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                      int64_t word_bits, Bytes out) {
  FOR_WORD(word_bits, unpack_chunks(source, position, size, count, out))
}

int64_t match_packed(args::Slices chunks, ConstInts count, int64_t word_bits, int64_t is_float,
                     Span<const uint64_t> ranges, Bytes out) {
  const ConstBytes source = chunks.source;
  const ConstInts position = chunks.position;
  const ConstInts size = chunks.size;
  FOR_WORD(word_bits, match_packed(source, position, size, count, is_float, ranges, out))
}

int64_t select_packed(args::Slices chunks, ConstInts count, int64_t word_bits, int64_t is_float,
                      Span<const uint64_t> ranges, Span<int32_t> rows, Bytes out) {
  FOR_WORD(word_bits, select_packed(chunks, count, is_float, ranges, rows, out))
}

int64_t unpack_blocks(ConstBytes data, int64_t width, int64_t blocks, int64_t word_bits,
                      Bytes out) {
  FOR_WORD(word_bits, unpack_blocks(data, width, blocks, out))
}

int64_t bit_widths(ConstBytes values, int64_t chunk, int64_t word_bits, Bytes widths) {
  FOR_WORD(word_bits, bit_widths(values, chunk, widths))
}

int64_t pack_chunks(ConstBytes values, int64_t chunk, int64_t word_bits, Bytes widths,
                    Bytes out) {
  FOR_WORD(word_bits, pack_chunks(values, chunk, widths, out))
}

int64_t pack_blocks(ConstBytes values, int64_t width, int64_t word_bits, Bytes out) {
  FOR_WORD(word_bits, pack_blocks(values, width, out))
}

int64_t pick_packed(ConstBytes source, ConstInts position, ConstInts size, ConstInts index,
                    int64_t word_bits, Bytes out) {
  FOR_WORD(word_bits, pick_packed(source, position, size, index, out))
}

int64_t pick_from_block(ConstBytes block, int64_t word_bits, ConstInts indices, int64_t shift,
                        Bytes out) {
  FOR_WORD(word_bits, pick_from_block(block, indices, shift, out))
}

#undef FOR_WORD

}  // namespace LANCELET_NAMESPACE
