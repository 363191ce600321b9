// Encoding of small pages of numbers and strings, from Arrow values to mini-block buffers.
//
//     int64, 1000 values   ->  plain 8.02 B, packed 1.45 B, dictionary 1.95 B  ->  chunk table | chunks
//
// The size of each encoding is computed from block widths, runs and distinct counts, so only the
// cheapest is encoded. `encodings/choice/choose.py` defines the choices; this kernel reproduces them for
// pages that need neither general compression nor a symbol table, and leaves other pages to it.
#include <math.h>

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "bitpack.def"
#include "rle.def"
#include "distinct.def"
#undef KERNEL

namespace {

// `columns` of a page: the bits of a value, or the negated bits of a string offset; position and
// size of the values; first bit; position of the offsets; position of 16-bit levels, or of validity
// bits and their first bit; -1 if absent.
enum Column { kBits, kValues, kBytes, kFirstBit, kOffsets, kLevels, kValidity, kValidFrom, kColumn };

// `found` of a page. Dictionary fields are set if a dictionary was tried. Sizes include chunk
// headers, and are -1 for encodings that were not tried.
enum Found {
  kKind, kEncoding, kLevelEncoding, kHasDictionary, kItems, kItemWidth, kIndexBits, kIndexEncoding,
  kPosition,
  kWordBytes, kChunkBytes, kItemBytes, kPlainBytes, kPackedBytes, kRunBytes,
  kIndexBytes, kFound
};
enum Kind { kLeft, kOneValue, kChunks };
enum Encoding { kPlain, kPacked, kRuns, kNoEncoding };
constexpr int64_t kLevelRuns = 17;  // otherwise the bit width of packed levels, 0 without levels

// Numbers of the format.
constexpr int64_t kBlock = 1024, kRunMax = 255;
constexpr uint8_t kPad = 0xFE, kTextPad = 72;

LANCELET_INLINE int64_t padded(int64_t bytes) { return (bytes + 7) & ~int64_t{7}; }
LANCELET_INLINE int64_t parts(int64_t count, int64_t each) { return (count + each - 1) / each; }

int64_t width_of(uint64_t value) {
  int64_t width = 0;
  for (; value; value >>= 1) ++width;
  return width;
}

// Fixed-width values, or strings with offsets that start anywhere.
struct Values {
  int64_t bits;    // of a value or an offset
  int64_t rows;
  const uint8_t* data;
  const uint8_t* offsets;  // null for numbers
  int64_t width() const { return bits / 8; }
  int64_t end(int64_t row) const {
    return bits == 32 ? load<int32_t>(offsets + row * 4) : load<int64_t>(offsets + row * 8);
  }
  int64_t text_bytes() const { return end(rows) - end(0); }
  int64_t raw_bytes() const {
    return offsets ? text_bytes() + rows * width() : (rows * bits + 7) / 8;
  }
  bool is_word() const { return !offsets && bits >= 8 && bits <= 64; }
};

// An encoding and its cost for readers.
struct Choice {
  Encoding encoding = kNoEncoding;
  int64_t bytes[3] = {-1, -1, -1};
  double total = 0;
  int64_t stored() const { return bytes[encoding]; }
};

struct Dictionary {
  bool was_tried = false;
  int64_t items = 0, item_width = -1, item_bytes = 0;
  Values indices = {};
  Choice choice;
};

double decode_ns(const Values& values, double rate) {
  return rate * (static_cast<double>(values.raw_bytes()) / static_cast<double>(values.rows));
}

// Scratch memory for pages of up to `rows` rows.
struct Scratch {
  uint8_t* memory = nullptr;
  uint8_t *bits, *levels, *indices, *index_values, *items, *part, *widths;
  int64_t* first;
  ~Scratch() { free(memory); }
  bool make(int64_t rows, int64_t raw_max) {
    const int64_t room = padded(rows);
    memory = static_cast<uint8_t*>(malloc(static_cast<size_t>(room * 23 + 7 * raw_max + 8)));
    first = reinterpret_cast<int64_t*>(memory);
    indices = memory + 8 * room;
    index_values = indices + 4 * room;
    levels = index_values + 4 * room;
    part = levels + 2 * room;  // run-length encoded levels of a chunk, or one packed block
    bits = part + 4 * room + 2 * raw_max;
    items = bits + raw_max;
    widths = items + 3 * raw_max;
    return memory != nullptr;
  }
};

class Page {
 public:
  Page(ConstBytes source, const int64_t* column, int64_t rows, const args::PageRules& rules,
       bool has_large_chunks, int64_t constants, Bytes out, const Scratch& scratch, int64_t* found)
      : source_(source), column_(column), rows_(rows), rules_(rules), is_large_(has_large_chunks),
        constants_(constants), out_(out), scratch_(scratch), found_(found) {}

  // Returns the size of the encoded page, 0 if declined, or a fault.
  int64_t encode() {
    for (int64_t k = 0; k < kFound; ++k) found_[k] = 0;
    for (int64_t k = kPlainBytes; k < kFound; ++k) found_[k] = -1;
    if (rows_ < 1 || rows_ > rules_.rows_max) return 0;
    const Fault fault = open();
    if (fault) return fail(fault, 0);
    const int64_t raw = values_.raw_bytes();
    if (raw >= rules_.raw_bytes_max || !read_levels()) return 0;
    if (!has_levels_ && is_one_value()) {
      found_[kKind] = kOneValue;
      return 0;
    }
    if (values_.offsets && is_zipped()) return 0;
    Choice choice;
    Dictionary dictionary;
    bool has_dictionary = false;
    if (is_tiny(raw)) {
      choice.encoding = kPlain;
    } else if (has_sample(raw)) {
      return 0;
    } else if (!choose(raw, &choice, &dictionary, &has_dictionary)) {
      return 0;
    } else {
      for (int64_t k = 0; k < 3; ++k) found_[kPlainBytes + k] = choice.bytes[k];
    }
    if (dictionary.was_tried) {
      found_[kItems] = dictionary.items;
      found_[kItemWidth] = dictionary.item_width;
      found_[kIndexBits] = dictionary.indices.bits;
      found_[kIndexEncoding] = dictionary.choice.encoding;
      found_[kIndexBytes] = dictionary.choice.stored();
      found_[kItemBytes] = dictionary.item_bytes;
    }
    found_[kHasDictionary] = has_dictionary;
    found_[kEncoding] = has_dictionary ? dictionary.choice.encoding : choice.encoding;
    if (!put(has_dictionary ? dictionary.indices : values_, static_cast<Encoding>(found_[kEncoding])))
      return 0;
    if (has_dictionary) {
      if (found_[kItemBytes] > out_.size - at_) return 0;
      memcpy(out_.data + at_, scratch_.items, static_cast<size_t>(found_[kItemBytes]));
      at_ += found_[kItemBytes];
    }
    found_[kKind] = kChunks;
    return at_;
  }

 private:
  Fault open() {
    const bool has_texts = column_[kBits] < 0;
    const int64_t bits = has_texts ? -column_[kBits] : column_[kBits];
    const int64_t bytes = column_[kBytes];
    if (has_texts ? bits != 32 && bits != 64 : bits != 1 && (bits < 8 || bits % 8 || bits > 256))
      return kBadWidth;
    if (!within(column_[kValues], bytes, source_.size)) return kOutOfSource;
    values_ = {bits, rows_, source_.data + column_[kValues], nullptr};
    if (column_[kLevels] >= 0 && !within(column_[kLevels], 2 * rows_, source_.size)) return kOutOfSource;
    if (column_[kValidity] >= 0) {
      if (column_[kValidFrom] < 0 || column_[kValidFrom] > 7) return kBadCount;
      if (!within(column_[kValidity], (column_[kValidFrom] + rows_ + 7) / 8, source_.size))
        return kOutOfSource;
    }
    if (!has_texts) {
      const int64_t first = bits == 1 ? column_[kFirstBit] : 0;
      if (first < 0 || first > 7) return kBadCount;
      if (bytes < (first + rows_ * bits + 7) / 8) return kTooShort;
      if (bits == 1 && rows_ <= 8 * rules_.raw_bytes_max) values_.data = aligned_bits(first);
      return Fault{};
    }
    if (!within(column_[kOffsets], (rows_ + 1) * values_.width(), source_.size)) return kOutOfSource;
    values_.offsets = source_.data + column_[kOffsets];
    int64_t before = values_.end(0);
    if (before < 0) return kBadOffsets;
    for (int64_t row = 1; row <= rows_; ++row) {
      const int64_t end = values_.end(row);
      if (end < before) return kBadOffsets;
      before = end;
    }
    if (values_.text_bytes() > bytes) return kBadOffsets;
    // Offsets are relative to the first string.
    return Fault{};
  }

  const uint8_t* aligned_bits(int64_t first) const {
    const uint8_t* from = values_.data;
    const int64_t bytes = (rows_ + 7) / 8;
    for (int64_t k = 0; k < bytes; ++k) {
      const int high = 8 * (k + 1) < first + rows_ ? from[k + 1] : 0;
      scratch_.bits[k] = static_cast<uint8_t>(from[k] >> first | (first ? high << (8 - first) : 0));
    }
    if (rows_ % 8) scratch_.bits[bytes - 1] &= static_cast<uint8_t>((1 << rows_ % 8) - 1);
    return scratch_.bits;
  }

  // Reads the levels. Returns false for all-null pages, and for null strings with bytes.
  bool read_levels() {
    if (column_[kLevels] < 0 && column_[kValidity] < 0) return true;
    has_levels_ = true;
    uint16_t seen = 0;
    int64_t valid = 0;
    for (int64_t row = 0; row < rows_; ++row) {
      uint16_t level;
      if (column_[kLevels] >= 0) {
        level = load<uint16_t>(source_.data + column_[kLevels] + 2 * row);
      } else {
        const int64_t bit = column_[kValidFrom] + row;
        level = !(source_.data[column_[kValidity] + bit / 8] >> (bit % 8) & 1);
      }
      store<uint16_t>(scratch_.levels + 2 * row, level);
      if (level && values_.offsets && values_.end(row) != values_.end(row + 1)) return false;
      seen |= level;
      valid += level == 0;
    }
    level_width_ = width_of(seen);
    return seen != 0 && valid > 0;
  }

  bool is_one_value() const {
    if (!constants_ || (constants_ == 1 && (values_.offsets || values_.width() > rules_.inline_bytes_max))) return false;
    const auto repeats = [](const uint8_t* data, int64_t width, int64_t count) {
      return memcmp(data, data + width, static_cast<size_t>((count - 1) * width)) == 0;
    };
    if (values_.offsets) {
      const int64_t size = values_.end(1) - values_.end(0);
      for (int64_t row = 1; row < rows_; ++row)
        if (values_.end(row + 1) - values_.end(row) != size) return false;
      return size == 0 || repeats(values_.data, size, rows_);
    }
    if (values_.bits > 1) return repeats(values_.data, values_.width(), rows_);
    const uint8_t first = values_.data[0] & 1 ? 0xFF : 0;
    for (int64_t k = 0; k < rows_ / 8; ++k)
      if (values_.data[k] != first) return false;
    return rows_ % 8 == 0 || values_.data[rows_ / 8] == (first & ((1 << rows_ % 8) - 1));
  }

  // Returns whether full zip is preferable for strings.
  bool is_zipped() const {
    if (values_.text_bytes() >= rules_.wide_bytes * rows_) return true;
    for (int64_t row = 0; !is_large_ && row < rows_; ++row)
      if (values_.end(row + 1) - values_.end(row) > rules_.long_bytes_before_2_2) return true;
    return false;
  }

  bool is_tiny(int64_t raw) const {
    if (rows_ > rules_.few_rows) return raw <= rules_.tiny_bytes;
    return raw <= (values_.offsets ? rules_.few_texts_bytes : rules_.few_numbers_bytes);
  }

  // Returns whether the encoding choice would use a sample instead of the whole page.
  bool has_sample(int64_t raw) const {
    const double each = larger(static_cast<double>(raw) / static_cast<double>(rows_), 1.0);
    const double target = smaller(larger(rules_.sample_bytes / each, rules_.sample_values_min), rules_.sample_values_max);
    return rows_ > int64_t{1} << lround(log2(target));
  }

  // --- choice -------------------------------------------------------------------------------

  // Returns the number of values per chunk; the last chunk may have fewer.
  int64_t chunk_values(const Values& values, Encoding encoding) const {
    int64_t chunk = rules_.chunk_values_max;
    if (encoding == kPacked) return kBlock;
    if (encoding == kRuns) {
      const int64_t most = is_large_ ? rules_.large_chunk_bytes : rules_.small_chunk_bytes;
      while (chunk > 64 && chunk * (values.width() + 1) > most) chunk /= 2;
      return chunk;
    }
    if (!values.offsets) {
      while (chunk > 2 && (chunk / 2 >= values.rows || chunk * values.bits > 8 * rules_.chunk_bytes_aim)) chunk /= 2;
      return chunk;
    }
    const double total = static_cast<double>(values.text_bytes());
    for (; chunk > 2; chunk /= 2) {
      if (chunk / 2 >= values.rows) continue;
      const int64_t head = (smaller(chunk, values.rows) + 1) * values.width();
      if (total / static_cast<double>(parts(values.rows, chunk)) + static_cast<double>(head) > rules_.chunk_bytes_aim)
        continue;
      int64_t longest = 0;
      for (int64_t start = 0; start < values.rows; start += chunk)
        longest = larger(longest, values.end(smaller(start + chunk, values.rows)) - values.end(start));
      if (is_large_ || longest + head <= rules_.small_chunk_bytes) break;
    }
    return chunk;
  }

  static int64_t text_chunk_bytes(const Values& values, int64_t start, int64_t count) {
    const int64_t bytes = values.end(start + count) - values.end(start);
    return (count + 1) * values.width() + parts(bytes, values.width()) * values.width();
  }

  void weigh(const Values& values, Encoding encoding, int64_t bytes, double rate,
             Choice* choice) const {
    choice->bytes[encoding] = bytes;
    const double stored = static_cast<double>(bytes) / static_cast<double>(values.rows);
    const double total = rules_.byte_ns * stored + decode_ns(values, rate);
    if (choice->encoding != kNoEncoding && total >= choice->total) return;
    choice->encoding = encoding;
    choice->total = total;
  }

  // Computes the cost of promising encodings. `runs` is -1 if not counted yet.
  void weigh_all(const Values& values, int64_t runs, Choice* choice) const {
    const int64_t rows = values.rows, chunk = chunk_values(values, kPlain);
    int64_t plain = values.raw_bytes();
    if (values.offsets) {
      plain = 0;
      for (int64_t start = 0; start < rows; start += chunk)
        plain += text_chunk_bytes(values, start, smaller(chunk, rows - start));
    }
    weigh(values, kPlain, plain + rules_.chunk_frame_bytes * parts(rows, chunk), rules_.plain_decode_ns, choice);
    if (!values.is_word()) return;
    const int64_t width = values.width(), blocks = parts(rows, kBlock);
    uint8_t* const widths = scratch_.widths;
    bit_widths({values.data, rows * width}, kBlock, values.bits, {widths, blocks});
    int64_t sum = 0;
    for (int64_t block = 0; block < blocks; ++block) sum += widths[block];
    if (sum <= (values.bits - 1) * blocks)
      weigh(values, kPacked, sum * (kBlock / 8) + blocks * width + rules_.chunk_frame_bytes * blocks, rules_.plain_decode_ns, choice);
    if (runs < 0) {
      int64_t distinct;
      count_distinct_fixed({values.data, rows * width}, width, rows, 0, {&runs, 1}, {&distinct, 1});
    }
    if (runs * 2 > rows) return;
    int64_t each = chunk_values(values, kRuns), stored = 0;
    for (int64_t start = 0; start < rows; start += each) {
      int64_t count = smaller(each, rows - start), found = 0;
      rle_count_chunks({values.data + start * width, count * width}, width, {&count, 1}, {&found, 1});
      stored += found * (width + 1) + rules_.chunk_frame_bytes + rules_.part_frame_bytes;
    }
    weigh(values, kRuns, stored, rules_.run_decode_ns, choice);
  }

  // Estimates the number of equally frequent items from the distinct count of a sample.
  static double items_expected(int64_t distinct, int64_t rows) {
    const double drawn = static_cast<double>(rows);
    double low = static_cast<double>(distinct), high = drawn * drawn;
    while (high - low > 0.01 * low + 0.5) {
      const double middle = (low + high) / 2;
      (middle * -expm1(-drawn / middle) < static_cast<double>(distinct) ? low : high) = middle;
    }
    return low;
  }

  // Chooses an encoding. Returns false to decline the page.
  bool choose(int64_t raw, Choice* choice, Dictionary* dictionary, bool* has_dictionary) {
    const double rows = static_cast<double>(rows_), plain = static_cast<double>(raw) / rows;
    const double most = static_cast<double>(rows_ / 2);
    double items = -1;
    int64_t runs = -1;
    if (rows_ >= rules_.dictionary_rows_min && (values_.offsets || values_.bits > 8)) {
      int64_t distinct = 0;
      const int64_t width = values_.width();
      const int64_t status =
          values_.offsets
              ? count_distinct_strings({values_.offsets, (rows_ + 1) * width}, width, texts(), rows_, rows_,
                               {&runs, 1}, {&distinct, 1})
              : count_distinct_fixed({values_.data, raw}, width, rows_, rows_, {&runs, 1}, {&distinct, 1});
      if (status < 0) return false;
      if (static_cast<double>(distinct) <= floor((1 - rules_.repeated_min) * rows)) {
        items = items_expected(distinct, rows_);
        if (items > most) items = -1;
      }
    }
    if (items >= 0 && values_.offsets) {
      const double indices = log2(larger(items, 2.0)) / 8 + items * plain / rows;
      if (rules_.byte_ns * indices + rules_.lookup_ns < rules_.obvious * rules_.byte_ns * plain) {
        if (!index(rows_ / 2, dictionary)) return false;
        *has_dictionary = is_small(*dictionary, plain);
        if (*has_dictionary) return true;
        *dictionary = {};
        items = -1;
      }
    }
    weigh_all(values_, runs, choice);
    if (items < 0) return true;
    const double to_beat = static_cast<double>(choice->stored()) / rows;
    double pays = smaller(exp2(smaller(8 * rules_.indices_max * to_beat, 62.0)), most);
    if (runs * 2 <= rows_) pays = most;
    if (items > pays) return true;
    if (!index(static_cast<int64_t>(pays), dictionary)) return false;
    if (!is_small(*dictionary, plain)) {
      *dictionary = {};
      return true;
    }
    const Values& own = dictionary->indices;
    const double ns = decode_ns(own, dictionary->choice.encoding == kRuns ? rules_.run_decode_ns : rules_.plain_decode_ns);
    const double total = rules_.byte_ns * bytes_per_value(*dictionary) + (ns + rules_.lookup_ns);
    *has_dictionary = total < choice->total;
    return true;
  }

  static double bytes_per_value(const Dictionary& dictionary) {
    const double rows = static_cast<double>(dictionary.indices.rows);
    return static_cast<double>(dictionary.choice.stored()) / rows +
           static_cast<double>(dictionary.item_bytes) / rows;
  }

  bool is_small(const Dictionary& dictionary, double plain) const {
    return bytes_per_value(dictionary) <= rules_.dictionary_ratio_max * plain;
  }

  // Returns the data that the string offsets refer to. Kernels read from the first string on.
  ConstBytes texts() const {
    return {values_.data - values_.end(0), values_.end(rows_)};
  }

  // Builds a dictionary of at most `most` items and chooses an encoding of its indices.
  bool index(int64_t most, Dictionary* dictionary) const {
    const int64_t width = values_.width();
    const Ints first = {scratch_.first, smaller(rows_, most)};
    const Bytes indices = {scratch_.indices, 4 * rows_};
    const int64_t items =
        values_.offsets
            ? dictionary_encode_strings({values_.offsets, (rows_ + 1) * width}, width, texts(), indices, first)
            : dictionary_encode_fixed({values_.data, rows_ * width}, width, indices, first);
    if (items < 0 || items > first.size) return false;
    dictionary->was_tried = true;
    dictionary->items = items;
    if (!(values_.offsets ? put_texts(dictionary) : put_numbers(dictionary))) return false;
    const int64_t bits = items <= 1 << 8 ? 8 : 16;
    for (int64_t row = 0; row < rows_; ++row) {
      const uint32_t own = load<uint32_t>(scratch_.indices + 4 * row);
      if (bits == 8) scratch_.index_values[row] = static_cast<uint8_t>(own);
      else store<uint16_t>(scratch_.index_values + 2 * row, static_cast<uint16_t>(own));
    }
    dictionary->indices = {bits, rows_, scratch_.index_values, nullptr};
    weigh_all(dictionary->indices, -1, &dictionary->choice);
    return true;
  }

  // Writes items as a string block: offset width and start, offsets, bytes.
  template <class Offset>
  void put_items(int64_t items, int64_t total) const {
    constexpr int64_t width = sizeof(Offset);
    uint8_t* to = scratch_.items;
    const int64_t start = width * (3 + items);
    store<Offset>(to, static_cast<Offset>(8 * width));
    store<Offset>(to + width, static_cast<Offset>(start));
    int64_t at = 0;
    for (int64_t item = 0; item < items; ++item) {
      store<Offset>(to + (2 + item) * width, static_cast<Offset>(at));
      const int64_t row = scratch_.first[item], size = values_.end(row + 1) - values_.end(row);
      if (size) memcpy(to + start + at, values_.data + values_.end(row) - values_.end(0), static_cast<size_t>(size));
      at += size;
    }
    store<Offset>(to + (2 + items) * width, static_cast<Offset>(total));
  }

  bool put_texts(Dictionary* dictionary) const {
    int64_t total = 0;
    for (int64_t item = 0; item < dictionary->items; ++item)
      total += values_.end(scratch_.first[item] + 1) - values_.end(scratch_.first[item]);
    if (total + dictionary->items * values_.width() >= rules_.compress_items_from_bytes) return false;
    dictionary->item_bytes = total + (3 + dictionary->items) * values_.width();
    if (values_.bits == 32) put_items<int32_t>(dictionary->items, total);
    else put_items<int64_t>(dictionary->items, total);
    return true;
  }

  // Writes numeric items, bit-packed if that is smaller.
  bool put_numbers(Dictionary* dictionary) const {
    const int64_t width = values_.width(), items = dictionary->items, plain = items * width;
    if (plain >= rules_.compress_items_from_bytes) return false;
    dictionary->item_bytes = plain;
    for (int64_t item = 0; item < items; ++item)
      memcpy(scratch_.items + item * width, values_.data + scratch_.first[item] * width, static_cast<size_t>(width));
    if (!values_.is_word()) return true;
    uint8_t most = 0;
    uint8_t* const widths = scratch_.widths;
    const int64_t blocks = parts(items, kBlock);
    bit_widths({scratch_.items, plain}, kBlock, values_.bits, {widths, blocks});
    for (int64_t block = 0; block < blocks; ++block) most = larger(most, widths[block]);
    int64_t tail = items % kBlock;
    if (most * kBlock < 8 * width * tail) tail = 0;
    const int64_t packed = parts(items - tail, kBlock) * most * (kBlock / 8);
    if (packed + tail * width >= plain) return true;
    pack_blocks({scratch_.items, (items - tail) * width}, most, values_.bits, {scratch_.part, packed});
    memmove(scratch_.items + packed, scratch_.items + plain - tail * width, static_cast<size_t>(tail * width));
    memcpy(scratch_.items, scratch_.part, static_cast<size_t>(packed));
    dictionary->item_width = most;
    dictionary->item_bytes = packed + tail * width;
    return true;
  }

  // --- chunks -------------------------------------------------------------------------------

  uint16_t level(int64_t row) const { return load<uint16_t>(scratch_.levels + 2 * row); }

  // Returns the number of levels stored unpacked after the packed blocks.
  int64_t plain_levels(int64_t count) const {
    const int64_t tail = count % kBlock;
    return level_width_ * kBlock < 16 * tail ? 0 : tail;
  }

  int64_t packed_levels(int64_t count) const {
    const int64_t tail = plain_levels(count);
    return parts(count - tail, kBlock) * level_width_ * (kBlock / 8) + 2 * tail;
  }

  void choose_levels(int64_t chunk) {
    if (!has_levels_) return;
    found_[kLevelEncoding] = level_width_;
    if (!is_large_) return;
    int64_t changes = 0, packed = 0;
    for (int64_t row = 1; row < rows_; ++row) changes += level(row) != level(row - 1);
    for (int64_t start = 0; start < rows_; start += chunk)
      packed += packed_levels(smaller(chunk, rows_ - start));
    const int64_t runs = 3 * (1 + changes + rows_ / kRunMax) + 8 * parts(rows_, chunk);
    if (runs <= packed) found_[kLevelEncoding] = kLevelRuns;
  }

  // Writes the levels of a chunk and returns their size, or -1 if the output is full.
  int64_t put_levels(int64_t start, int64_t count, uint8_t* to, int64_t room) const {
    if (found_[kLevelEncoding] != kLevelRuns) {
      const int64_t bytes = packed_levels(count), tail = plain_levels(count);
      if (bytes > room) return -1;
      const uint8_t* from = scratch_.levels + 2 * start;
      pack_blocks({from, 2 * (count - tail)}, level_width_, 16, {to, bytes - 2 * tail});
      memcpy(to + bytes - 2 * tail, from + 2 * (count - tail), static_cast<size_t>(2 * tail));
      return bytes;
    }
    int64_t runs = 0;
    rle_count_chunks({scratch_.levels + 2 * start, 2 * count}, 2, {&count, 1}, {&runs, 1});
    if (8 + 3 * runs > room) return -1;
    store<int64_t>(to, 2 * runs);
    rle_encode_chunks({scratch_.levels + 2 * start, 2 * count}, 2, {&count, 1}, {to + 8, 2 * runs},
                      {to + 8 + 2 * runs, runs});
    return 8 + 3 * runs;
  }

  template <class Offset>
  static void put_strings(const Values& values, int64_t start, int64_t count, uint8_t* to) {
    constexpr int64_t width = sizeof(Offset);
    const int64_t first = values.end(start), head = (count + 1) * width;
    for (int64_t k = 0; k <= count; ++k)
      store<Offset>(to + k * width, static_cast<Offset>(head + values.end(start + k) - first));
    const int64_t bytes = values.end(start + count) - first;
    if (bytes) memcpy(to + head, values.data + first - values.end(0), static_cast<size_t>(bytes));
    memset(to + head + bytes, kTextPad, static_cast<size_t>(-bytes & (width - 1)));
  }

  // Writes the chunk table and the chunks. Returns false if the output is full or a chunk too
  // large.
  bool put(const Values& values, Encoding encoding) {
    const int64_t chunk = chunk_values(values, encoding);
    const int64_t count = parts(rows_, chunk), word = is_large_ ? 4 : 2, size_bytes = word;
    const int64_t num_parts = encoding == kRuns ? 2 : 1;
    const int64_t head = padded(2 + 2 * has_levels_ + size_bytes * num_parts);
    choose_levels(chunk);
    found_[kWordBytes] = count * word;
    at_ = count * word;
    if (at_ > out_.size) return false;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t start = i * chunk, own = smaller(chunk, rows_ - start), begin = at_;
      if (head > out_.size - at_) return false;
      uint8_t* const to = out_.data + at_;
      memset(to, kPad, static_cast<size_t>(head));
      store<uint16_t>(to, static_cast<uint16_t>(has_levels_ ? own : 0));
      at_ += head;
      uint8_t* number = to + 2;
      if (has_levels_) {
        const int64_t bytes = put_levels(start, own, out_.data + at_, out_.size - at_);
        if (bytes < 0 || !pad(bytes)) return false;
        store<uint16_t>(number, static_cast<uint16_t>(bytes));
        number += 2;
      }
      int64_t sizes[2] = {};
      if (!put_values(values, encoding, start, own, sizes)) return false;
      for (int64_t part = 0; part < num_parts; ++part, number += size_bytes) {
        if (is_large_) store<uint32_t>(number, static_cast<uint32_t>(sizes[part]));
        else store<uint16_t>(number, static_cast<uint16_t>(sizes[part]));
      }
      const int64_t bytes = at_ - begin;
      if (!is_large_ && bytes > 32768) return false;
      const int64_t text = (bytes / 8 - 1) << 4 | (i + 1 < count ? width_of(static_cast<uint64_t>(own)) - 1 : 0);
      if (is_large_) store<uint32_t>(out_.data + i * 4, static_cast<uint32_t>(text));
      else store<uint16_t>(out_.data + i * 2, static_cast<uint16_t>(text));
    }
    found_[kChunkBytes] = at_ - found_[kWordBytes];
    return true;
  }

  // Appends padding to the last `bytes` written.
  bool pad(int64_t bytes) {
    if (padded(bytes) > out_.size - at_) return false;
    memset(out_.data + at_ + bytes, kPad, static_cast<size_t>(padded(bytes) - bytes));
    at_ += padded(bytes);
    return true;
  }

  bool put_values(const Values& values, Encoding encoding, int64_t start, int64_t count, int64_t* sizes) {
    const int64_t width = values.width(), room = out_.size - at_;
    uint8_t* const to = out_.data + at_;
    if (values.offsets) {
      sizes[0] = text_chunk_bytes(values, start, count);
      if (sizes[0] > room) return false;
      if (width == 4) put_strings<int32_t>(values, start, count, to);
      else put_strings<int64_t>(values, start, count, to);
      return pad(sizes[0]);
    }
    const uint8_t* from = values.data + start * values.bits / 8;
    if (encoding == kPlain) {
      sizes[0] = (count * values.bits + 7) / 8;
      if (sizes[0] > room) return false;
      memcpy(to, from, static_cast<size_t>(sizes[0]));
      return pad(sizes[0]);
    }
    if (encoding == kPacked) {
      uint8_t own;
      sizes[0] = pack_chunks({from, count * width}, kBlock, values.bits, {&own, 1}, {to, room});
      return sizes[0] >= 0 && pad(sizes[0]);
    }
    int64_t runs = 0;
    rle_count_chunks({from, count * width}, width, {&count, 1}, {&runs, 1});
    sizes[0] = runs * width;
    sizes[1] = runs;
    if (padded(sizes[0]) + padded(sizes[1]) > room) return false;
    uint8_t* const lengths = to + padded(sizes[0]);
    rle_encode_chunks({from, count * width}, width, {&count, 1}, {to, sizes[0]}, {lengths, runs});
    return pad(sizes[0]) && pad(sizes[1]);
  }

  const ConstBytes source_;
  const int64_t* const column_;
  const int64_t rows_;
  const args::PageRules& rules_;
  const bool is_large_;
  const int64_t constants_;
  const Bytes out_;
  const Scratch& scratch_;
  int64_t* const found_;
  Values values_ = {};
  bool has_levels_ = false;
  int64_t level_width_ = 0;
  int64_t at_ = 0;
};

}  // namespace

int64_t encode_small_pages(ConstBytes source, ConstInts columns, int64_t rows, args::PageRules rules,
                           int64_t has_large_chunks, int64_t constants, Bytes out, Ints found) {
  const int64_t count = columns.size / kColumn;
  if (rows < 1 || rows > rules.rows_max || rules.raw_bytes_max < 0 || rules.chunk_values_max < 2 || columns.size != count * kColumn || found.size != count * kFound)
    return fail(kBadCount, 0);
  Scratch scratch;
  if (!scratch.make(rows, rules.raw_bytes_max)) return fail(kNoMemory, 0);
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t* const own = found.data + i * kFound;
    Page page(source, columns.data + i * kColumn, rows, rules, has_large_chunks != 0, constants,
              {out.data + at, out.size - at}, scratch, own);
    const int64_t bytes = page.encode();
    if (bytes < 0) return fail(static_cast<Fault>(-bytes % 16), i);
    own[kPosition] = at;
    if (own[kKind] == kChunks) at += bytes;
  }
  return at;
}

}  // namespace LANCELET_NAMESPACE
