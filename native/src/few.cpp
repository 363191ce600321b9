// Pages of a few values that are stored as they are, each of them one mini-block chunk.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

enum Kind : uint8_t { kValues = 0, kOneValue = 1, kMore = 2 };

constexpr uint8_t kPad = 0xFE;      // of parts of a chunk
constexpr uint8_t kTextPad = 72;     // of texts, up to whole offsets
constexpr int64_t kRowsMax = 255;  // a run of levels is counted with a byte

int64_t padded(int64_t bytes) { return (bytes + 7) & ~int64_t{7}; }

bool is_one_value(const uint8_t* values, int64_t width, int64_t rows) {
  return rows == 1 || memcmp(values, values + width, static_cast<size_t>((rows - 1) * width)) == 0;
}

// Copies bits to the start of a byte; the rest of the last one is zero. Returns whether all are one.
bool copy_bits(const uint8_t* from, int64_t first, int64_t rows, uint8_t* to) {
  memset(to, 0, static_cast<size_t>((rows + 7) / 8));
  int64_t set = 0;
  for (int64_t k = 0; k < rows; ++k) {
    const int64_t at = first + k;
    const uint8_t bit = (from[at / 8] >> (at % 8)) & 1;
    to[k / 8] = static_cast<uint8_t>(to[k / 8] | bit << (k % 8));
    set += bit;
  }
  return set == 0 || set == rows;
}

// The bytes of levels as runs: a length, the levels, how often each. 0 if they are shorter packed.
int64_t bytes_of_runs(const uint8_t* levels, int64_t rows) {
  int64_t runs = 1;
  uint16_t highest = load<uint16_t>(levels);
  for (int64_t k = 1; k < rows; ++k) {
    const uint16_t level = load<uint16_t>(levels + 2 * k);
    runs += level != load<uint16_t>(levels + 2 * (k - 1));
    highest = larger(highest, level);
  }
  int64_t width = 0;
  while (highest >> width) ++width;
  const int64_t packed = width * 1024 < 16 * rows ? width * 128 : 2 * rows;
  const int64_t bytes = 8 + 3 * runs;
  return bytes <= packed ? bytes : 0;
}

void store_runs(const uint8_t* levels, int64_t rows, int64_t bytes, uint8_t* to) {
  const int64_t runs = (bytes - 8) / 3;
  store<uint64_t>(to, static_cast<uint64_t>(2 * runs));
  uint8_t* level = to + 8;
  uint8_t* length = level + 2 * runs;
  int64_t start = 0;
  for (int64_t k = 1; k <= rows; ++k) {
    if (k < rows && load<uint16_t>(levels + 2 * k) == load<uint16_t>(levels + 2 * start)) continue;
    memcpy(level, levels + 2 * start, 2);
    *length = static_cast<uint8_t>(k - start);
    level += 2, ++length;
    start = k;
  }
}

// Stores the offsets of texts from the start of the values, and the texts. Returns whether all
// texts are the same.
template <class Offset>
bool store_texts(const uint8_t* offsets, const uint8_t* data, int64_t rows, uint8_t* to) {
  constexpr int64_t width = sizeof(Offset);
  const uint64_t head = static_cast<uint64_t>((rows + 1) * width);
  const uint64_t first = static_cast<uint64_t>(load<Offset>(offsets));
  const uint64_t one = static_cast<uint64_t>(load<Offset>(offsets + width)) - first;
  bool is_one = true;
  for (int64_t k = 0; k <= rows; ++k) {
    const uint64_t own = static_cast<uint64_t>(load<Offset>(offsets + k * width)) - first;
    store<Offset>(to + k * width, static_cast<Offset>(head + own));
    is_one &= own == one * static_cast<uint64_t>(k);
  }
  const uint64_t bytes =
      static_cast<uint64_t>(load<Offset>(offsets + rows * width)) - first;
  if (bytes) memcpy(to + head, data + first, bytes);
  memset(to + head + bytes, kTextPad, static_cast<size_t>((0 - bytes) % sizeof(Offset)));
  return is_one && (one == 0 || is_one_value(data + first, static_cast<int64_t>(one), rows));
}

template <class Offset>
int64_t text_bytes(const uint8_t* offsets, int64_t rows, int64_t data_bytes) {
  int64_t before = load<Offset>(offsets);
  const int64_t first = before;
  if (first < 0) return -1;
  for (int64_t k = 1; k <= rows; ++k) {
    const int64_t end = load<Offset>(offsets + k * sizeof(Offset));
    if (end < before) return -1;
    before = end;
  }
  return before > data_bytes ? -1 : before - first;
}

}  // namespace

int64_t frame_few(ConstBytes values, ConstBytes offsets, ConstBytes levels, int64_t bits,
                  int64_t rows, int64_t size_bytes, int64_t most, Bytes out, Ints position,
                  Ints size, Bytes kind) {
  const int64_t count = kind.size;
  const bool has_texts = offsets.size > 0, has_levels = levels.size > 0;
  const int64_t width = bits / 8;
  if (rows < 1 || rows > kRowsMax || position.size != count || size.size != count)
    return fail(kBadCount, 0);
  if (bits != 1 && (bits < 8 || bits % 8 != 0 || bits > 1 << 16)) return fail(kBadWidth, 0);
  if (has_texts ? (width != 4 && width != 8) : values.size < (count * rows * bits + 7) / 8)
    return fail(kTooShort, 0);
  if (has_texts && offsets.size != (count * rows + 1) * width) return fail(kBadCount, 0);
  if (has_levels && levels.size != count * rows * 2) return fail(kBadCount, 0);
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t* ends = offsets.data + i * rows * width;
    int64_t value_bytes = (rows * bits + 7) / 8, texts = 0;
    if (has_texts) {
      texts = width == 4 ? text_bytes<int32_t>(ends, rows, values.size)
                         : text_bytes<int64_t>(ends, rows, values.size);
      if (texts < 0) return fail(kBadOffsets, i);
      value_bytes = (rows + 1 + (texts + width - 1) / width) * width;
    }
    const uint8_t* own_levels = levels.data + i * rows * 2;
    const int64_t level_bytes = has_levels ? bytes_of_runs(own_levels, rows) : 0;
    position.data[i] = at;
    size.data[i] = 0;
    kind.data[i] = kMore;
    if ((has_texts && texts > most) || (has_levels && level_bytes == 0)) continue;
    if (size_bytes == 2 && value_bytes > UINT16_MAX) return fail(kTooLarge, i);
    const int64_t chunk = 8 + padded(level_bytes) + padded(value_bytes);
    if (chunk > out.size - at) return fail(kOutputFull, i);
    uint8_t* to = out.data + at;
    memset(to, kPad, static_cast<size_t>(chunk));
    store<uint16_t>(to, static_cast<uint16_t>(has_levels ? rows : 0));
    uint8_t* number = to + 2;
    if (has_levels) {
      store<uint16_t>(number, static_cast<uint16_t>(level_bytes));
      number += 2;
      store_runs(own_levels, rows, level_bytes, to + 8);
    }
    if (size_bytes == 4)
      store<uint32_t>(number, static_cast<uint32_t>(value_bytes));
    else
      store<uint16_t>(number, static_cast<uint16_t>(value_bytes));
    to += 8 + padded(level_bytes);
    bool is_one;
    if (has_texts) {
      is_one = width == 4 ? store_texts<int32_t>(ends, values.data, rows, to)
                          : store_texts<int64_t>(ends, values.data, rows, to);
    } else if (bits == 1) {
      is_one = copy_bits(values.data, i * rows, rows, to);
    } else {
      const uint8_t* from = values.data + i * rows * width;
      memcpy(to, from, static_cast<size_t>(value_bytes));
      is_one = is_one_value(from, width, rows);
    }
    kind.data[i] = is_one && !has_levels ? kOneValue : kValues;
    size.data[i] = chunk;
    at += chunk;
  }
  return at;
}

}  // namespace LANCELET_NAMESPACE
