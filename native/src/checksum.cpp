// CRC-32C. The instruction has a latency of three cycles and a throughput of one, so three streams
// are interleaved; their checksums are combined by a carry-less product with x^(8 * following
// bytes).
//
// In the reflected representation of the instruction, the product of two 32-bit polynomials is one
// bit too low in 64 bits, and the checksum of 64 bits multiplies by x^32. The factor that shifts a
// checksum by n bytes is therefore x^(8 n - 33).
//
// With VPCLMULQDQ, which computes four such products, 256 bytes at a time are folded onto the next
// 256. Sequential access has twice the memory bandwidth of three interleaved streams.
#include "kernel.hpp"

#if defined(__SSE4_2__) && defined(__x86_64__)
#include <nmmintrin.h>
#include <wmmintrin.h>
#define LANCELET_CRC_X86 1
#if defined(__AVX512F__) && defined(__AVX512DQ__) && !defined(_MSC_VER)
#include <immintrin.h>
#define LANCELET_CRC_FOLDS 1
#endif
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;

struct Tables {
  uint32_t of[8][256];
};

constexpr Tables make_tables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? kPolynomial : 0);
    tables.of[0][byte] = sum;
  }
  for (uint32_t byte = 0; byte < 256; ++byte)
    for (int k = 1; k < 8; ++k) {
      const uint32_t before = tables.of[k - 1][byte];
      tables.of[k][byte] = before >> 8 ^ tables.of[0][before & 0xff];
    }
  return tables;
}

[[maybe_unused]] constexpr Tables kTables = make_tables();

LANCELET_INLINE uint32_t add_byte(uint32_t sum, uint8_t byte) {
  return sum >> 8 ^ kTables.of[0][(sum ^ byte) & 0xff];
}

LANCELET_INLINE uint32_t add_word(uint32_t sum, uint64_t word) {
#if LANCELET_CRC_X86
  return static_cast<uint32_t>(_mm_crc32_u64(sum, word));
#elif defined(__ARM_FEATURE_CRC32)
  return __crc32cd(sum, word);
#else
  word ^= sum;
  uint32_t out = 0;
  for (int k = 0; k < 8; ++k) out ^= kTables.of[7 - k][word >> (8 * k) & 0xff];
  return out;
#endif
}

#if LANCELET_CRC_X86

// x^n modulo the polynomial, reflected: bit 31 is x^0.
constexpr uint32_t power_of_x(int64_t n) {
  uint32_t result = 0x80000000u;
  for (int64_t k = 0; k < n; ++k) result = result >> 1 ^ (result & 1 ? kPolynomial : 0);
  return result;
}

template <int64_t kBytes>
LANCELET_INLINE uint32_t move_over(uint32_t sum) {
  constexpr uint32_t factor = power_of_x(8 * kBytes - 33);
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(sum)),
                                               _mm_cvtsi32_si128(static_cast<int>(factor)), 0);
  return static_cast<uint32_t>(
      _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
}

// Consumes blocks of 3 * kBytes.
template <int64_t kBytes>
LANCELET_INLINE uint32_t add_interleaved(uint32_t sum, const uint8_t** data, int64_t* size) {
  while (*size >= 3 * kBytes) {
    const uint8_t* at = *data;
    uint64_t a = sum, b = 0, c = 0;
    for (int64_t k = 0; k < kBytes; k += 8) {
      a = _mm_crc32_u64(a, load<uint64_t>(at + k));
      b = _mm_crc32_u64(b, load<uint64_t>(at + kBytes + k));
      c = _mm_crc32_u64(c, load<uint64_t>(at + 2 * kBytes + k));
    }
    sum = move_over<2 * kBytes>(static_cast<uint32_t>(a)) ^
          move_over<kBytes>(static_cast<uint32_t>(b)) ^ static_cast<uint32_t>(c);
    *data += 3 * kBytes;
    *size -= 3 * kBytes;
  }
  return sum;
}

#endif

#if LANCELET_CRC_FOLDS
#define LANCELET_FOLDING __attribute__((target("avx512f,avx512dq,vpclmulqdq,pclmul,sse4.2")))

constexpr int64_t kFoldedFrom = 1024;  // shorter inputs do not amortize the final reduction

// Shifts words by `kBits` and adds them to `onto`. The first word of each pair has the higher
// powers; the product is one power too high, see above.
template <int64_t kBits>
LANCELET_FOLDING inline __m512i fold(__m512i words, __m512i onto) {
  constexpr int64_t first = static_cast<int64_t>(uint64_t{power_of_x(kBits + 63)} << 32);
  constexpr int64_t second = static_cast<int64_t>(uint64_t{power_of_x(kBits - 1)} << 32);
  const __m512i factors =
      _mm512_set_epi64(second, first, second, first, second, first, second, first);
  const __m512i firsts = _mm512_clmulepi64_epi128(words, factors, 0x00);
  const __m512i seconds = _mm512_clmulepi64_epi128(words, factors, 0x11);
  return _mm512_xor_si512(_mm512_xor_si512(firsts, seconds), onto);
}

// Consumes a multiple of 256 bytes, at least 256.
LANCELET_FOLDING inline uint32_t add_folded(uint32_t sum, const uint8_t** data, int64_t* size) {
  const uint8_t* at = *data;
  const uint8_t* const stop = at + *size / 256 * 256;
  __m512i part[4];
  for (int k = 0; k < 4; ++k) part[k] = _mm512_loadu_si512(at + 64 * k);
  const __m128i begun = _mm_cvtsi32_si128(static_cast<int>(sum));
  part[0] = _mm512_xor_si512(part[0], _mm512_zextsi128_si512(begun));
  for (at += 256; at < stop; at += 256)
    for (int k = 0; k < 4; ++k)
      part[k] = fold<8 * 256>(part[k], _mm512_loadu_si512(at + 64 * k));
  for (int k = 0; k < 3; ++k) part[k + 1] = fold<8 * 64>(part[k], part[k + 1]);
  uint64_t words[8], rest = 0;
  _mm512_storeu_si512(words, part[3]);
  for (const uint64_t word : words) rest = _mm_crc32_u64(rest, word);
  *size -= stop - *data;
  *data = stop;
  return static_cast<uint32_t>(rest);
}

#endif

uint32_t checksum(uint32_t sum, const uint8_t* data, int64_t size) {
  sum = ~sum;
#if LANCELET_CRC_FOLDS
  if (size >= kFoldedFrom && __builtin_cpu_supports("vpclmulqdq"))
    sum = add_folded(sum, &data, &size);
#endif
#if LANCELET_CRC_X86
  sum = add_interleaved<4096>(sum, &data, &size);
  sum = add_interleaved<512>(sum, &data, &size);
  sum = add_interleaved<64>(sum, &data, &size);
#endif
  for (; size >= 8; data += 8, size -= 8) sum = add_word(sum, load<uint64_t>(data));
  for (; size > 0; ++data, --size) sum = add_byte(sum, *data);
  return ~sum;
}

// Continues `sum` over zero bytes.
uint32_t checksum_zeros(uint32_t sum, int64_t size) {
  static const uint8_t kZeros[512] = {};
  for (; size > 0; size -= sizeof kZeros)
    sum = checksum(sum, kZeros, smaller<int64_t>(size, sizeof kZeros));
  return sum;
}

// Returns the checksum of file[start, stop) with [own_start, own_stop) read as zeros.
uint32_t checksum_without(const uint8_t* file, int64_t start, int64_t stop, int64_t own_start,
                          int64_t own_stop) {
  own_start = smaller(larger(own_start, start), stop);
  own_stop = smaller(larger(own_stop, own_start), stop);
  uint32_t sum = checksum(0, file + start, own_start - start);
  sum = checksum_zeros(sum, own_stop - own_start);
  return checksum(sum, file + own_stop, stop - own_stop);
}

}  // namespace

int64_t crc32c(ConstBytes data, int64_t seed) {
  return checksum(static_cast<uint32_t>(seed), data.data, data.size);
}

int64_t crc32c_blocks(ConstBytes data, int64_t block_bytes, Span<uint32_t> sums) {
  if (block_bytes <= 0) return fail(kBadWidth, 0);
  int64_t block = 0;
  for (int64_t at = 0; at < data.size; at += block_bytes, ++block) {
    if (block >= sums.size) return fail(kOutputFull, block);
    sums.data[block] = checksum(0, data.data + at, smaller(block_bytes, data.size - at));
  }
  return block;
}

int64_t crc32c_slices(ConstBytes source, ConstInts position, ConstInts size,
                      Span<uint32_t> sums) {
  if (size.size != position.size || sums.size != position.size) return fail(kBadCount, 0);
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    sums.data[i] = checksum(0, source.data + position.data[i], size.data[i]);
  }
  return position.size;
}


int64_t crc32c_verify(ConstBytes file, ConstInts position, ConstInts size, int64_t block_bytes,
                      int64_t own_position, int64_t own_size, Span<const uint32_t> sums,
                      Bytes verified) {
  if (block_bytes <= 0) return fail(kBadWidth, 0);
  const int64_t blocks = (file.size + block_bytes - 1) / block_bytes;
  if (sums.size != blocks || verified.size != blocks) return fail(kBadCount, 0);
  for (int64_t i = 0; i < position.size; ++i) {
    const int64_t from = position.data[i];
    if (!within(from, size.data[i], file.size)) return fail(kOutOfSource, i);
    if (size.data[i] == 0) continue;
    const int64_t last = (from + size.data[i] - 1) / block_bytes;
    for (int64_t block = from / block_bytes; block <= last; ++block) {
      if (verified.data[block]) continue;
      const int64_t start = block * block_bytes;
      const uint32_t sum =
          checksum_without(file.data, start, smaller(start + block_bytes, file.size), own_position,
                           own_position + own_size);
      if (sum != sums.data[block]) return block + 1;
      verified.data[block] = 1;
    }
  }
  return 0;
}

}  // namespace LANCELET_NAMESPACE
