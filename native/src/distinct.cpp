// Run and distinct counts, byte entropy, and dictionary encoding.
//
// Distinct values are counted by a hash table until the limit is exceeded.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;

// Spreads differences to the low bits. Integers stored as floats, and strings such as "item 1" and
// "item 2", differ in high bits only.
LANCELET_INLINE uint64_t mix(uint64_t word) {
  word = (word ^ word >> 32) * kMix;
  return word ^ word >> 32;
}

// Packs up to 8 bytes into an integer, in an order that depends on their number.
LANCELET_INLINE uint64_t few_bytes(const uint8_t* at, int64_t size) {
  if (size >= 4)
    return load<uint32_t>(at) | static_cast<uint64_t>(load<uint32_t>(at + size - 4)) << 32;
  if (size == 0) return 0;
  return at[0] | static_cast<uint64_t>(at[size / 2]) << 8 |
         static_cast<uint64_t>(at[size - 1]) << 16;
}

LANCELET_INLINE uint64_t hash_bytes(const uint8_t* at, int64_t size) {
  uint64_t hash = static_cast<uint64_t>(size);
  for (; size > 8; at += 8, size -= 8) hash = mix(hash ^ load<uint64_t>(at));
  return mix(hash ^ few_bytes(at, size));
}

// Returns whether two strings of equal size are equal.
LANCELET_INLINE bool equal_bytes(const uint8_t* a, const uint8_t* b, int64_t size) {
  if (size <= 8) return few_bytes(a, size) == few_bytes(b, size);
  if (size > 16) return memcmp(a, b, static_cast<size_t>(size)) == 0;
  return load<uint64_t>(a) == load<uint64_t>(b) &&
         load<uint64_t>(a + size - 8) == load<uint64_t>(b + size - 8);
}

// Values that fit a register. Their hashes are unique.
template <class T>
struct FixedValues {
  static constexpr bool kHashIsUnique = true;
  const uint8_t* values;
  T at(int64_t row) const { return load<T>(values + row * static_cast<int64_t>(sizeof(T))); }
  uint64_t hash(int64_t row) const { return mix(at(row)); }
  bool equal(int64_t a, int64_t b) const { return at(a) == at(b); }
};

// Values of two registers.
struct Pairs {
  static constexpr bool kHashIsUnique = false;
  const uint8_t* values;
  uint64_t low(int64_t row) const { return load<uint64_t>(values + row * 16); }
  uint64_t high(int64_t row) const { return load<uint64_t>(values + row * 16 + 8); }
  uint64_t hash(int64_t row) const { return mix(mix(low(row)) ^ high(row)); }
  bool equal(int64_t a, int64_t b) const { return low(a) == low(b) && high(a) == high(b); }
};

// Values of other widths.
struct Wide {
  static constexpr bool kHashIsUnique = false;
  const uint8_t* values;
  int64_t bytes;
  uint64_t hash(int64_t row) const { return hash_bytes(values + row * bytes, bytes); }
  bool equal(int64_t a, int64_t b) const {
    return equal_bytes(values + a * bytes, values + b * bytes, bytes);
  }
};

template <class Offset>
struct Strings {
  static constexpr bool kHashIsUnique = false;
  const uint8_t* offsets;
  const uint8_t* data;
  int64_t start(int64_t row) const {
    return load<Offset>(offsets + row * static_cast<int64_t>(sizeof(Offset)));
  }
  int64_t size(int64_t row) const { return start(row + 1) - start(row); }
  uint64_t hash(int64_t row) const { return hash_bytes(data + start(row), size(row)); }
  bool equal(int64_t a, int64_t b) const {
    return size(a) == size(b) && equal_bytes(data + start(a), data + start(b), size(a));
  }
};

// First row of each value by hash, plus 1; 0 is an empty slot.
struct Table {
  uint32_t* first_rows;
  uint64_t mask;
};

template <class Values>
int64_t count_distinct(const Values& values, int64_t count, int64_t most, const Table& table) {
  memset(table.first_rows, 0, (table.mask + 1) * sizeof(uint32_t));
  int64_t distinct = 0;
  for (int64_t row = 0; row < count; ++row) {
    uint64_t slot = values.hash(row) & table.mask;
    while (table.first_rows[slot] != 0 && !values.equal(table.first_rows[slot] - 1, row))
      slot = (slot + 1) & table.mask;
    if (table.first_rows[slot] != 0) continue;
    table.first_rows[slot] = static_cast<uint32_t>(row + 1);
    if (++distinct > most) break;
  }
  return distinct;
}

// Writes the number of runs and of distinct values.
template <class Values>
int64_t count_values(const Values& values, int64_t count, int64_t most, Ints counts) {
  if (count > INT32_MAX || most < 0 || counts.size != 2) return fail(kOutputFull, 0);
  const int64_t limit = smaller(count, most) + 1;
  uint64_t slots = 16;
  while (slots < static_cast<uint64_t>(2 * limit)) slots *= 2;
  const Table table = {static_cast<uint32_t*>(malloc(slots * sizeof(uint32_t))), slots - 1};
  if (table.first_rows == nullptr) return fail(kNoMemory, 0);
  int64_t changes = count > 0;
  for (int64_t row = 1; row < count; ++row) changes += !values.equal(row, row - 1);
  counts.data[0] = changes;
  counts.data[1] = count_distinct(values, count, most, table);
  free(table.first_rows);
  return 0;
}

// Encodes values by a direct lookup table over all possible values.
template <class T>
int64_t encode_small(const uint8_t* values, int64_t count, Bytes indices, Ints first) {
  auto* numbers = static_cast<uint32_t*>(calloc(size_t{1} << 8 * sizeof(T), sizeof(uint32_t)));
  if (numbers == nullptr) return fail(kNoMemory, 0);
  int64_t found = 0;
  for (int64_t row = 0; row < count; ++row) {
    uint32_t* const number = numbers + load<T>(values + row * static_cast<int64_t>(sizeof(T)));
    if (LANCELET_UNLIKELY(*number == 0)) {
      if (found == first.size) {
        ++found;
        break;
      }
      first.data[found++] = row;
      *number = static_cast<uint32_t>(found);
    }
    store<uint32_t>(indices.data + row * 4, *number - 1);
  }
  free(numbers);
  return found;
}

// First row of each distinct value by hash. Numbers start at 1; 0 is an empty slot. The table grows
// on demand, so that few values stay in the cache.
struct Numbers {
  struct Slot {
    uint64_t hash;
    uint32_t number;
  };
  Slot* slots;
  uint64_t mask;

  bool make(uint64_t count) {
    slots = static_cast<Slot*>(calloc(count, sizeof(Slot)));
    mask = count - 1;
    return slots != nullptr;
  }

  bool grow() {
    Numbers larger;
    if (!larger.make(4 * (mask + 1))) return false;
    for (uint64_t old = 0; old <= mask; ++old) {
      if (slots[old].number == 0) continue;
      uint64_t slot = slots[old].hash & larger.mask;
      while (larger.slots[slot].number != 0) slot = (slot + 1) & larger.mask;
      larger.slots[slot] = slots[old];
    }
    free(slots);
    *this = larger;
    return true;
  }
};

// Dictionary-encodes values.
template <class Values>
int64_t encode_values(const Values& values, int64_t count, Bytes indices, Ints first) {
  Numbers numbers;
  if (!numbers.make(1024)) return fail(kNoMemory, 0);
  int64_t found = 0;
  uint32_t number = 0;
  for (int64_t row = 0; row < count; ++row) {
    if (row == 0 || !values.equal(row, row - 1)) {
      const uint64_t hash = values.hash(row);
      Numbers::Slot* slot = numbers.slots + (hash & numbers.mask);
      while (slot->number != 0 &&
             (slot->hash != hash ||
              (!Values::kHashIsUnique && !values.equal(first.data[slot->number - 1], row))))
        slot = numbers.slots + ((slot - numbers.slots + 1) & numbers.mask);
      number = slot->number;
      if (LANCELET_UNLIKELY(number == 0)) {
        if (found == first.size) {
          ++found;
          break;
        }
        first.data[found++] = row;
        number = static_cast<uint32_t>(found);
        *slot = {hash, number};
        if (2 * static_cast<uint64_t>(found) > numbers.mask && !numbers.grow()) {
          free(numbers.slots);
          return fail(kNoMemory, row);
        }
      }
    }
    store<uint32_t>(indices.data + row * 4, number - 1);
  }
  free(numbers.slots);
  return found;
}

// Returns 0, or a fault for strings outside of their data.
template <class Offset>
int64_t check(const Strings<Offset>& texts, int64_t count, int64_t bytes) {
  for (int64_t row = 0; row < count; ++row)
    if (texts.start(row) < 0 || texts.size(row) < 0 || texts.start(row + 1) > bytes)
      return fail(kBadOffsets, row);
  return 0;
}

template <class Offset>
int64_t count_string_values(ConstBytes offsets, ConstBytes data, int64_t most, Ints counts) {
  const int64_t count = larger<int64_t>(offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1, 0);
  const Strings<Offset> texts = {offsets.data, data.data};
  const int64_t fault = check(texts, count, data.size);
  return fault != 0 ? fault : count_values(texts, count, most, counts);
}

template <class Offset>
int64_t encode_string_values(ConstBytes offsets, ConstBytes data, Bytes indices, Ints first) {
  const int64_t count =
      larger<int64_t>(offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1, 0);
  if (count > INT32_MAX || indices.size / 4 < count) return fail(kOutputFull, 0);
  const Strings<Offset> texts = {offsets.data, data.data};
  const int64_t fault = check(texts, count, data.size);
  return fault != 0 ? fault : encode_values(texts, count, indices, first);
}

}  // namespace

int64_t count_distinct_fixed(ConstBytes values, int64_t value_bytes, int64_t most, Ints counts) {
  if (value_bytes <= 0) return fail(kBadWidth, 0);
  const int64_t count = values.size / value_bytes;
  const auto work = [&](const auto& of) { return count_values(of, count, most, counts); };
  switch (value_bytes) {
    case 1: return work(FixedValues<uint8_t>{values.data});
    case 2: return work(FixedValues<uint16_t>{values.data});
    case 4: return work(FixedValues<uint32_t>{values.data});
    case 8: return work(FixedValues<uint64_t>{values.data});
    case 16: return work(Pairs{values.data});
    default: return work(Wide{values.data, value_bytes});
  }
}

int64_t byte_entropy_sums(ConstBytes values, int64_t value_bytes, int64_t step, ConstBytes logs, Span<double> sums) {
  if (value_bytes <= 0 || step <= 0) return fail(kBadWidth, 0);
  const int64_t rows = values.size / value_bytes;
  const auto log_of = [&](uint32_t count) { return load<double>(logs.data + count * sizeof(double)); };
  if (rows < 1 || sums.size != 2 || logs.size / 8 <= (rows - 1) / step + 1) return fail(kOutputFull, 0);
  double of_bytes = 0, of_changes = 0;
  for (int64_t byte_index = 0; byte_index < value_bytes; ++byte_index) {
    const uint8_t* const first = values.data + byte_index;
    uint32_t bytes[256] = {}, changes[256] = {};
    uint8_t before = *first;
    for (int64_t row = 0; row < rows; row += step) {
      const uint8_t byte = first[row * value_bytes];
      ++bytes[byte];
      ++changes[static_cast<uint8_t>(byte - before)];
      before = byte;
    }
    for (int k = 0; k < 256; ++k) of_bytes += log_of(bytes[k]), of_changes += log_of(changes[k]);
  }
  sums.data[0] = of_bytes;
  sums.data[1] = of_changes;
  return 0;
}

int64_t dictionary_encode_fixed(ConstBytes values, int64_t value_bytes, Bytes indices, Ints first) {
  if (value_bytes <= 0) return fail(kBadWidth, 0);
  const int64_t count = values.size / value_bytes;
  if (count > INT32_MAX || indices.size / 4 < count) return fail(kOutputFull, 0);
  const auto work = [&](const auto& of) { return encode_values(of, count, indices, first); };
  switch (value_bytes) {
    case 1: return encode_small<uint8_t>(values.data, count, indices, first);
    case 2: return encode_small<uint16_t>(values.data, count, indices, first);
    case 4: return work(FixedValues<uint32_t>{values.data});
    case 8: return work(FixedValues<uint64_t>{values.data});
    case 16: return work(Pairs{values.data});
    default: return work(Wide{values.data, value_bytes});
  }
}

int64_t count_distinct_strings(ConstBytes offsets, int64_t offset_bytes, ConstBytes data, int64_t most, Ints counts) {
  return offset_bytes == 4 ? count_string_values<int32_t>(offsets, data, most, counts)
                           : count_string_values<int64_t>(offsets, data, most, counts);
}

int64_t dictionary_encode_strings(ConstBytes offsets, int64_t offset_bytes, ConstBytes data, Bytes indices,
                      Ints first) {
  return offset_bytes == 4 ? encode_string_values<int32_t>(offsets, data, indices, first)
                           : encode_string_values<int64_t>(offsets, data, indices, first);
}

}  // namespace LANCELET_NAMESPACE
