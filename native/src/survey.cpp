// How often values of many small groups repeat, such as the columns of a wide table.
//
// Values that differ are counted by a table of places, made anew for each group and given up once
// there are more of them than anybody wants to know. A group of a thousand numbers that all
// differ is left after the few hundred first ones.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint64_t kMix = 0x9e3779b97f4a7c15u;

LANCELET_INLINE uint64_t mix(uint64_t word) {
  word *= kMix;
  return word ^ word >> 32;
}

LANCELET_INLINE uint64_t hash_bytes(const uint8_t* at, int64_t size) {
  uint64_t hash = static_cast<uint64_t>(size);
  for (; size >= 8; at += 8, size -= 8) hash = mix(hash ^ load<uint64_t>(at));
  uint64_t rest = 0;
  for (int64_t k = 0; k < size; ++k) rest |= static_cast<uint64_t>(at[k]) << 8 * k;
  return mix(hash ^ rest);
}

// Values of a width that a register holds.
template <class T>
struct Words {
  const uint8_t* values;
  T at(int64_t row) const { return load<T>(values + row * static_cast<int64_t>(sizeof(T))); }
  uint64_t hash(int64_t row) const { return mix(at(row)); }
  bool equal(int64_t a, int64_t b) const { return at(a) == at(b); }
};

// Values of any other width.
struct Wide {
  const uint8_t* values;
  int64_t bytes;
  uint64_t hash(int64_t row) const { return hash_bytes(values + row * bytes, bytes); }
  bool equal(int64_t a, int64_t b) const {
    return memcmp(values + a * bytes, values + b * bytes, static_cast<size_t>(bytes)) == 0;
  }
};

template <class Offset>
struct Strings {
  const uint8_t* offsets;
  const uint8_t* data;
  int64_t start(int64_t row) const {
    return load<Offset>(offsets + row * static_cast<int64_t>(sizeof(Offset)));
  }
  int64_t size(int64_t row) const { return start(row + 1) - start(row); }
  uint64_t hash(int64_t row) const { return hash_bytes(data + start(row), size(row)); }
  bool equal(int64_t a, int64_t b) const {
    return size(a) == size(b) &&
           memcmp(data + start(a), data + start(b), static_cast<size_t>(size(a))) == 0;
  }
};

// Where the first of equal values is, by their hash, and 0 where there is none: places count
// from 1.
struct Table {
  uint32_t* places;
  uint64_t mask;
};

template <class Values>
int64_t count_distinct(const Values& values, int64_t first, int64_t stop, int64_t most,
                       const Table& table) {
  memset(table.places, 0, (table.mask + 1) * sizeof(uint32_t));
  int64_t distinct = 0;
  for (int64_t row = first; row < stop; ++row) {
    uint64_t slot = values.hash(row) & table.mask;
    while (table.places[slot] != 0 && !values.equal(first + table.places[slot] - 1, row))
      slot = (slot + 1) & table.mask;
    if (table.places[slot] != 0) continue;
    table.places[slot] = static_cast<uint32_t>(row - first + 1);
    if (++distinct > most) break;
  }
  return distinct;
}

template <class Values>
int64_t survey(const Values& values, int64_t count, int64_t rows, int64_t most, Ints runs,
               Ints distinct) {
  const int64_t wanted = smaller(rows, most) + 1;
  uint64_t slots = 16;
  while (slots < static_cast<uint64_t>(2 * wanted)) slots *= 2;
  const Table table = {static_cast<uint32_t*>(malloc(slots * sizeof(uint32_t))), slots - 1};
  if (table.places == nullptr) return fail(kNoMemory, 0);
  for (int64_t group = 0; group < runs.size; ++group) {
    const int64_t first = group * rows, stop = smaller(first + rows, count);
    int64_t changes = 1;
    for (int64_t row = first + 1; row < stop; ++row) changes += !values.equal(row, row - 1);
    runs.data[group] = changes;
    distinct.data[group] = count_distinct(values, first, stop, most, table);
  }
  free(table.places);
  return runs.size;
}

// Whether there is a place for what is found of each group; how large one may be, places say.
LANCELET_INLINE bool fits(int64_t count, int64_t rows, int64_t most, Ints runs, Ints distinct) {
  if (rows <= 0 || rows > INT32_MAX || most < 0) return false;
  const int64_t groups = count / rows + (count % rows > 0);
  return runs.size == groups && distinct.size == groups;
}

template <class Offset>
int64_t survey_texts(ConstBytes offsets, ConstBytes data, int64_t rows, int64_t most, Ints runs,
                     Ints distinct) {
  const int64_t count = offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1;
  if (!fits(larger<int64_t>(count, 0), rows, most, runs, distinct)) return fail(kOutputFull, 0);
  const Strings<Offset> texts = {offsets.data, data.data};
  for (int64_t row = 0; row < count; ++row)
    if (texts.start(row) < 0 || texts.size(row) < 0 || texts.start(row + 1) > data.size)
      return fail(kBadOffsets, row);
  return survey(texts, count, rows, most, runs, distinct);
}

}  // namespace

int64_t survey_words(ConstBytes values, int64_t value_bytes, int64_t rows, int64_t most, Ints runs,
                     Ints distinct) {
  if (value_bytes <= 0) return fail(kBadWidth, 0);
  const int64_t count = values.size / value_bytes;
  if (!fits(count, rows, most, runs, distinct)) return fail(kOutputFull, 0);
  const auto work = [&](const auto& of) { return survey(of, count, rows, most, runs, distinct); };
  switch (value_bytes) {
    case 1: return work(Words<uint8_t>{values.data});
    case 2: return work(Words<uint16_t>{values.data});
    case 4: return work(Words<uint32_t>{values.data});
    case 8: return work(Words<uint64_t>{values.data});
    default: return work(Wide{values.data, value_bytes});
  }
}

int64_t survey_strings(ConstBytes offsets, int64_t offset_bytes, ConstBytes data, int64_t rows,
                       int64_t most, Ints runs, Ints distinct) {
  return offset_bytes == 4 ? survey_texts<int32_t>(offsets, data, rows, most, runs, distinct)
                           : survey_texts<int64_t>(offsets, data, rows, most, runs, distinct);
}

}  // namespace LANCELET_NAMESPACE
