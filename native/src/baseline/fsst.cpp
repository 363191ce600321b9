// FSST training; lancelet/kernels/reference/fsst.py explains the algorithm.
//
// Codes below 256 are bytes; code 256 + i is symbol i of the table, if longer than one byte.
#include "kernel.hpp"

#include <algorithm>

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kSampleBytesTotal = 32 * 1024;
constexpr int64_t kSliceBytes = 512;
constexpr int kPassShares[] = {8, 38, 68, 98, 128};
constexpr int kFullShare = 128;
constexpr uint32_t kSingleBonus = 8;
constexpr int kSymbols = 255;
constexpr int kCodes = 512;
constexpr uint32_t kCandidates = 1u << 17;  // a power of two, twice the number of possible candidates

struct SampleSlice {
  const uint8_t* start;
  int64_t size;
};

struct Symbol {
  uint64_t word;  // little-endian, zero-padded
  int length;
};

struct Candidate {
  uint64_t word;
  uint32_t gain, length;  // length 0: an empty entry
};

struct Scratch {
  SampleSlice slices[kSampleBytesTotal];
  int num_slices;
  Symbol table[kSymbols];
  int num_symbols;
  // Symbols of more than one byte by their first byte, longest first.
  uint8_t chain[kSymbols];
  uint16_t chain_start[257];
  uint32_t single[kCodes];
  uint16_t pair[kCodes * kCodes];  // the sample is too small to overflow a count
  int used[kCodes];
  int num_used;
  // A hash table sized for the candidates of a pass.
  Candidate candidates[kCandidates];
  uint32_t num_slots;
};

uint64_t scattered(uint64_t number) {
  uint64_t z = (number + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

uint64_t load_up_to_8(const uint8_t* from, int64_t left) {
  uint64_t word = 0;
  memcpy(&word, from, left < 8 ? left : 8);
  return word;
}

uint64_t low_bytes(int length) { return ~uint64_t{0} >> (64 - 8 * length); }

// Returns a number that sorts like the bytes.
uint64_t big_endian(uint64_t word) {
  uint64_t out = 0;
  for (int k = 0; k < 8; ++k, word >>= 8) out = out << 8 | (word & 0xff);
  return out;
}

template <class Offset>
void choose_slices(const uint8_t* offsets, int64_t rows, const uint8_t* data, Scratch* s) {
  const auto offset = [offsets](int64_t row) {
    return static_cast<int64_t>(load<Offset>(offsets + row * sizeof(Offset)));
  };
  s->num_slices = 0;
  const int64_t first = offset(0), total = offset(rows) - first;
  if (total <= kSampleBytesTotal) {
    for (int64_t row = 0; row < rows; ++row)
      if (offset(row + 1) > offset(row))
        s->slices[s->num_slices++] = {data + offset(row), offset(row + 1) - offset(row)};
    return;
  }
  for (int64_t sampled = 0; sampled < kSampleBytesTotal;) {
    const int64_t target =
        first + static_cast<int64_t>(scattered(s->num_slices) % static_cast<uint64_t>(total));
    int64_t low = 0, high = rows + 1;  // binary search for the first offset above the target
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (offset(middle) > target) high = middle;
      else low = middle + 1;
    }
    const int64_t row = low - 1, stop = offset(row + 1);
    const int64_t start = larger(offset(row), smaller(target, stop - kSliceBytes));
    const int64_t size = smaller(stop - start, kSliceBytes);
    s->slices[s->num_slices++] = {data + start, size};
    sampled += size;
  }
}

void build_chains(Scratch* s) {
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    s->chain_start[byte] = static_cast<uint16_t>(next);
    for (int length = 8; length > 1; --length)
      for (int i = 0; i < s->num_symbols; ++i)
        if (s->table[i].length == length && (s->table[i].word & 0xff) == static_cast<uint64_t>(byte))
          s->chain[next++] = static_cast<uint8_t>(i);
  }
  s->chain_start[256] = static_cast<uint16_t>(next);
}

int longest_code(const Scratch& s, uint64_t word, int64_t left) {
  const int byte = static_cast<int>(word & 0xff);
  for (int k = s.chain_start[byte]; k < s.chain_start[byte + 1]; ++k) {
    const Symbol& symbol = s.table[s.chain[k]];
    if (symbol.length <= left && (word & low_bytes(symbol.length)) == symbol.word)
      return 256 + s.chain[k];
  }
  return byte;
}

void count_codes(Scratch* s, int part) {
  memset(s->single, 0, sizeof s->single);
  memset(s->pair, 0, sizeof s->pair);
  for (int p = 0; p < s->num_slices; ++p) {
    if (static_cast<int64_t>(p) * 37 % kFullShare >= part) continue;
    const SampleSlice slice = s->slices[p];
    int before = -1;
    for (int64_t at = 0; at < slice.size;) {
      const uint64_t word = load_up_to_8(slice.start + at, slice.size - at);
      const int code = longest_code(*s, word, slice.size - at);
      const int byte = static_cast<int>(word & 0xff);
      ++s->single[code];
      if (before >= 0) ++s->pair[before * kCodes + code];
      if (code >= 256) {
        ++s->single[byte];
        if (before >= 0) ++s->pair[before * kCodes + byte];
      }
      before = code;
      at += code < 256 ? 1 : s->table[code - 256].length;
    }
  }
}

void add_gain(Scratch* s, Symbol symbol, uint32_t gain) {
  const uint32_t length = static_cast<uint32_t>(symbol.length);
  const uint64_t hash = (symbol.word * 0x9E3779B97F4A7C15u) ^ length * 0xBF58476D1CE4E5B9u;
  for (uint32_t at = static_cast<uint32_t>(hash >> 40);; ++at) {
    Candidate& entry = s->candidates[at & (s->num_slots - 1)];
    if (entry.length == 0) entry = {symbol.word, 0, length};
    if (entry.length == length && entry.word == symbol.word) {
      entry.gain += gain;
      return;
    }
  }
}

Symbol symbol_of(const Scratch& s, int code) {
  return code < 256 ? Symbol{static_cast<uint64_t>(code), 1} : s.table[code - 256];
}

Symbol join(const Symbol& a, const Symbol& b) {
  return {a.word | b.word << (8 * a.length), smaller(a.length + b.length, 8)};
}

// Unused codes have no neighbours, and a symbol of 8 bytes cannot grow.
template <class Visit>
void for_pairs(const Scratch& s, uint32_t least, Visit visit) {
  for (int i = 0; i < s.num_used; ++i) {
    const int a = s.used[i];
    if (symbol_of(s, a).length == 8) continue;
    for (int j = 0; j < s.num_used; ++j) {
      const uint32_t count = s.pair[a * kCodes + s.used[j]];
      if (count != 0 && count >= least) visit(a, s.used[j], count);
    }
  }
}

void collect_candidates(Scratch* s, int part) {
  const uint32_t least = 5 * part / kFullShare;
  const bool joins = part != kFullShare;
  s->num_used = 0;
  for (int code = 0; code < kCodes; ++code)
    if (s->single[code] != 0) s->used[s->num_used++] = code;
  uint32_t most = static_cast<uint32_t>(s->num_used);
  if (joins) for_pairs(*s, least, [&](int, int, uint32_t) { ++most; });
  s->num_slots = 1024;
  while (s->num_slots < 2 * most && s->num_slots < kCandidates) s->num_slots *= 2;
  memset(s->candidates, 0, s->num_slots * sizeof(Candidate));
  for (int i = 0; i < s->num_used; ++i) {
    const uint32_t count = s->single[s->used[i]];
    if (count < least) continue;
    const Symbol symbol = symbol_of(*s, s->used[i]);
    add_gain(s, symbol, count * symbol.length * (symbol.length == 1 ? kSingleBonus : 1));
  }
  if (!joins) return;
  for_pairs(*s, least, [&](int a, int b, uint32_t count) {
    const Symbol joined = join(symbol_of(*s, a), symbol_of(*s, b));
    add_gain(s, joined, count * joined.length);
  });
}

bool better(const Candidate& a, const Candidate& b) {
  if (a.gain != b.gain) return a.gain > b.gain;
  if (a.length != b.length) return a.length > b.length;
  return big_endian(a.word) < big_endian(b.word);
}

void select_best(Scratch* s) {
  Candidate* const first = s->candidates;
  Candidate* const last = std::remove_if(first, first + s->num_slots,
                                         [](const Candidate& c) { return c.length == 0; });
  const int count = static_cast<int>(smaller<int64_t>(last - first, kSymbols));
  std::partial_sort(first, first + count, last, better);
  for (int k = 0; k < count; ++k) s->table[k] = {first[k].word, static_cast<int>(first[k].length)};
  s->num_symbols = count;
}

}  // namespace

int64_t fsst_train(ConstBytes offsets, int64_t offset_bytes, ConstBytes data,
                   Span<uint64_t> symbols, Bytes lengths) {
  const int64_t rows = offsets.size / offset_bytes - 1;
  if (rows < 0 || symbols.size < kSymbols || lengths.size < kSymbols) return fail(kOutputFull, 0);
  Scratch* s = static_cast<Scratch*>(malloc(sizeof(Scratch)));
  if (s == nullptr) return fail(kNoMemory, 0);
  if (offset_bytes == 4) choose_slices<int32_t>(offsets.data, rows, data.data, s);
  else choose_slices<int64_t>(offsets.data, rows, data.data, s);
  s->num_symbols = 0;
  for (const int part : kPassShares) {
    build_chains(s);
    count_codes(s, part);
    collect_candidates(s, part);
    select_best(s);
  }
  const int64_t count = s->num_symbols;
  for (int64_t k = 0; k < count; ++k) {
    symbols.data[k] = s->table[k].word;
    lengths.data[k] = static_cast<uint8_t>(s->table[k].length);
  }
  free(s);
  return count;
}

}  // namespace LANCELET_NAMESPACE
