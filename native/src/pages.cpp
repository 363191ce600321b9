// Encoding of pages of numbers and strings, from Arrow values to mini-block buffers.
//
//     int64, 1000 values   ->  plain 8.02 B, packed 1.45 B, dictionary 1.95 B  ->  chunk table | chunks
//
// The sizes of plain, packed and repeated values are computed from block widths and runs of a sample,
// compressed values are tried on it, and only the cheapest encoding is applied to the page.
// `encodings/choice/choose.py` defines the choices; this kernel reproduces them, and leaves pages to it
// that may need a symbol table or a compression of the Zstandard library.
#include <math.h>

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "bitpack.def"
#include "rle.def"
#include "distinct.def"
#include "lz4.def"
#include "split_bytes.def"
#include "zstd.def"
#undef KERNEL

namespace {

// `columns` of a page: the bits of a value, or the negated bits of a string offset; position and
// size of the values; first bit; position of the offsets; position of 16-bit levels, or of validity
// bits and their first bit; -1 if absent. Positions are those within `values`, `offsets` and `nulls`.
enum Column { kBits, kValues, kBytes, kFirstBit, kOffsets, kLevels, kValidity, kValidFrom, kColumn };

// `found` of a page. Dictionary fields are set if a dictionary was tried.
enum Found {
  kKind, kEncoding, kLevelEncoding, kHasDictionary, kItems, kItemWidth, kIndexBits, kIndexEncoding,
  kPosition, kWordBytes, kChunkBytes, kItemBytes, kFound
};
enum Kind { kLeft, kOneValue, kChunks, kMeasured };
enum Encoding { kPlain, kPacked, kRuns, kLz4, kSplitLz4, kCoded, kNoEncoding };
constexpr int64_t kLevelRuns = 17;  // otherwise the bit width of packed levels, 0 without levels

// `costs` of a page: stored bytes and decoding time per value of each encoding and of the
// dictionary; -1 for those that were not tried.
constexpr int64_t kCosts = 2 * (kNoEncoding + 1);

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

// Stored bytes and decoding time per value.
struct Cost {
  double bytes = -1, decode_ns = -1;
};

// The cheapest encoding, and the cost of each.
struct Choice {
  Encoding encoding = kNoEncoding;
  Cost costs[kNoEncoding];
  double total = 0;
  const Cost& best() const { return costs[encoding]; }
};

struct Dictionary {
  enum State { kNone, kLeave, kBuilt };  // too many items, items that may be compressed
  int64_t items = 0, item_width = -1, item_bytes = 0;
  Values indices = {};
  Choice choice;
};

// Memory that grows on demand; null if there is none.
struct Memory {
  uint8_t* data = nullptr;
  int64_t size = 0;
  ~Memory() { free(data); }
  uint8_t* of(int64_t bytes) {
    if (bytes <= size && data != nullptr) return data;
    free(data);
    data = static_cast<uint8_t*>(malloc(static_cast<size_t>(bytes + 8)));
    size = data == nullptr ? 0 : bytes;
    return data;
  }
};

// Memory that the pages of a call share.
struct Scratch {
  Memory bits, levels, indices, index_values, items, first, part, widths, sample, ends, logs, tried, planes;
};

class Page {
 public:
  Page(const args::PageSource& source, const int64_t* column, const args::PageShape& shape, const args::PageRules& rules,
       Bytes out, Scratch& scratch, int64_t* found, double* costs)
      : source_(source), column_(column), rows_(shape.rows), rules_(rules), is_large_(shape.has_large_chunks != 0),
        constants_(shape.constants), out_(out), scratch_(scratch), found_(found), costs_(costs) {}

  // Returns the size of the encoded page, 0 if declined, or a fault.
  int64_t encode() {
    for (int64_t k = 0; k < kFound; ++k) found_[k] = 0;
    for (int64_t k = 0; k < kCosts; ++k) costs_[k] = -1;
    if (rows_ < 1) return 0;
    const Fault fault = open();
    if (fault) return fail(fault, 0);
    const int64_t raw = values_.raw_bytes();
    if (!read_levels()) return 0;
    if (!has_levels_ && is_one_value()) {
      found_[kKind] = kOneValue;
      return 0;
    }
    if (values_.offsets && is_zipped()) return 0;
    Choice choice;
    Dictionary dictionary;
    bool has_dictionary = false;
    if (is_tiny(raw)) choice.encoding = kPlain;
    else if (!choose(raw, &choice, &dictionary, &has_dictionary)) {
      if (is_measured_) {
        found_[kKind] = kMeasured;
        put_costs(choice);
      }
      return 0;
    }
    put_costs(choice);
    if (dictionary.items) {
      found_[kItems] = dictionary.items;
      found_[kItemWidth] = dictionary.item_width;
      found_[kIndexBits] = dictionary.indices.bits;
      found_[kIndexEncoding] = dictionary.choice.encoding;
      found_[kItemBytes] = dictionary.item_bytes;
      const Cost cost = cost_of(dictionary);
      costs_[2 * kNoEncoding] = cost.bytes;
      costs_[2 * kNoEncoding + 1] = cost.decode_ns;
    }
    found_[kHasDictionary] = has_dictionary;
    found_[kEncoding] = has_dictionary ? dictionary.choice.encoding : choice.encoding;
    if (!put(has_dictionary ? dictionary.indices : values_, static_cast<Encoding>(found_[kEncoding])))
      return 0;
    if (has_dictionary) {
      if (found_[kItemBytes] > out_.size - at_) return 0;
      memcpy(out_.data + at_, scratch_.items.data, static_cast<size_t>(found_[kItemBytes]));
      at_ += found_[kItemBytes];
    }
    found_[kKind] = kChunks;
    return at_;
  }

 private:
  void put_costs(const Choice& choice) {
    for (int64_t k = 0; k < kNoEncoding; ++k) {
      costs_[2 * k] = choice.costs[k].bytes;
      costs_[2 * k + 1] = choice.costs[k].decode_ns;
    }
  }

  Fault open() {
    const bool has_texts = column_[kBits] < 0;
    const int64_t bits = has_texts ? -column_[kBits] : column_[kBits];
    const int64_t bytes = column_[kBytes];
    if (has_texts ? bits != 32 && bits != 64 : bits != 1 && (bits < 8 || bits % 8 || bits > 256))
      return kBadWidth;
    if (!within(column_[kValues], bytes, source_.values.size)) return kOutOfSource;
    values_ = {bits, rows_, source_.values.data + column_[kValues], nullptr};
    if (column_[kLevels] >= 0 && !within(column_[kLevels], 2 * rows_, source_.nulls.size)) return kOutOfSource;
    if (column_[kValidity] >= 0) {
      if (column_[kValidFrom] < 0 || column_[kValidFrom] > 7) return kBadCount;
      if (!within(column_[kValidity], (column_[kValidFrom] + rows_ + 7) / 8, source_.nulls.size))
        return kOutOfSource;
    }
    if (!has_texts) {
      const int64_t first = bits == 1 ? column_[kFirstBit] : 0;
      if (first < 0 || first > 7) return kBadCount;
      if (bytes < (first + rows_ * bits + 7) / 8) return kTooShort;
      if (bits == 1) values_.data = aligned_bits(first);
      return values_.data == nullptr ? kNoMemory : Fault{};
    }
    if (!within(column_[kOffsets], (rows_ + 1) * values_.width(), source_.offsets.size)) return kOutOfSource;
    values_.offsets = source_.offsets.data + column_[kOffsets];
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
    uint8_t* const to = scratch_.bits.of(bytes);
    if (to == nullptr) return nullptr;
    for (int64_t k = 0; k < bytes; ++k) {
      const int high = 8 * (k + 1) < first + rows_ ? from[k + 1] : 0;
      to[k] = static_cast<uint8_t>(from[k] >> first | (first ? high << (8 - first) : 0));
    }
    if (rows_ % 8) to[bytes - 1] &= static_cast<uint8_t>((1 << rows_ % 8) - 1);
    return to;
  }

  // Reads the levels. Returns false for all-null pages, and for null strings with bytes.
  bool read_levels() {
    if (column_[kLevels] < 0 && column_[kValidity] < 0) return true;
    has_levels_ = true;
    uint16_t seen = 0;
    int64_t valid = 0;
    levels_ = scratch_.levels.of(2 * rows_);
    if (levels_ == nullptr) return false;
    for (int64_t row = 0; row < rows_; ++row) {
      uint16_t level;
      if (column_[kLevels] >= 0) {
        level = load<uint16_t>(source_.nulls.data + column_[kLevels] + 2 * row);
      } else {
        const int64_t bit = column_[kValidFrom] + row;
        level = !(source_.nulls.data[column_[kValidity] + bit / 8] >> (bit % 8) & 1);
      }
      store<uint16_t>(levels_ + 2 * row, level);
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
    const int64_t most = is_large_ ? rules_.long_bytes : rules_.long_bytes_before_2_2;
    for (int64_t row = 0; values_.text_bytes() > most && row < rows_; ++row)
      if (values_.end(row + 1) - values_.end(row) > most) return true;
    return false;
  }

  bool is_tiny(int64_t raw) const {
    if (rows_ > rules_.few_rows) return raw <= rules_.tiny_bytes;
    return raw <= (values_.offsets ? rules_.few_texts_bytes : rules_.few_numbers_bytes);
  }

  // --- sample -------------------------------------------------------------------------------

  // Returns the number of values of a page to sample, or all.
  int64_t sample_rows(const Values& values) const {
    const double each = larger(static_cast<double>(values.raw_bytes()) / static_cast<double>(values.rows), 1.0);
    const double aim = smaller(larger(rules_.sample_bytes / each, rules_.sample_values_few), rules_.sample_values_max);
    const double target = larger(smaller(aim, rules_.sample_bytes_max / each), rules_.sample_values_min);
    return smaller(values.rows, int64_t{1} << lround(log2(target)));
  }

  // Copies a few runs of values to memory, unless the sample has all. Returns whether there is
  // memory.
  bool sample(const Values& values, Memory* memory, Values* taken) const {
    const int64_t rows = sample_rows(values);
    *taken = values;
    if (rows == values.rows) return true;
    const int64_t runs = rules_.sample_runs, each = rows / runs / 8 * 8;
    const auto start = [&](int64_t run) { return (values.rows - each) * run / (runs - 1) / 8 * 8; };
    taken->rows = each * runs;
    int64_t bytes = (taken->rows * values.bits + 7) / 8;
    if (values.offsets) {
      bytes = 0;
      for (int64_t run = 0; run < runs; ++run) bytes += values.end(start(run) + each) - values.end(start(run));
    }
    uint8_t* to = memory->of(bytes);
    taken->data = to;
    if (to == nullptr) return false;
    if (!values.offsets) {
      for (int64_t run = 0; run < runs; ++run)
        memcpy(to + run * each * values.bits / 8, values.data + start(run) * values.bits / 8,
               static_cast<size_t>(each * values.bits / 8));
      return true;
    }
    uint8_t* ends = scratch_.ends.of((taken->rows + 1) * values.width());
    taken->offsets = ends;
    if (ends == nullptr) return false;
    int64_t at = 0;
    const auto put_end = [&](int64_t end) {
      if (values.bits == 32) store<int32_t>(ends, static_cast<int32_t>(end));
      else store<int64_t>(ends, end);
      ends += values.width();
    };
    put_end(0);
    for (int64_t run = 0; run < runs; ++run) {
      const int64_t first = values.end(start(run)), size = values.end(start(run) + each) - first;
      memcpy(to + at, values.data + first - values.end(0), static_cast<size_t>(size));
      for (int64_t row = 1; row <= each; ++row) put_end(at + values.end(start(run) + row) - first);
      at += size;
    }
    return true;
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
      const int64_t aim = encoding == kPlain ? rules_.chunk_bytes_aim : encoding == kCoded ? rules_.coded_bytes_aim : rules_.lz4_bytes_aim;
      const int64_t bits = 8 * (is_large_ ? aim : smaller(aim, rules_.small_chunk_bytes));
      while (chunk > 2 && (chunk / 2 >= values.rows || chunk * values.bits > bits)) chunk /= 2;
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

  double decode_ns(const Values& values, double rate) const {
    return rate * (static_cast<double>(values.raw_bytes()) / static_cast<double>(values.rows));
  }

  void weigh(const Values& values, Encoding encoding, int64_t bytes, double decode_ns, Choice* choice) const {
    const Cost cost = {static_cast<double>(bytes) / static_cast<double>(values.rows), decode_ns};
    choice->costs[encoding] = cost;
    const double total = rules_.byte_ns * cost.bytes + decode_ns;
    if (choice->encoding != kNoEncoding && total >= choice->total) return;
    choice->encoding = encoding;
    choice->total = total;
  }

  // Computes the cost of promising encodings of sampled values. `runs` is -1 if not counted yet.
  // Returns false if there are other candidates, or without memory. Sets `is_left` if all of them
  // are compressions of the library.
  bool weigh_all(const Values& values, int64_t runs, bool may_compress, Choice* choice, bool* is_left) const {
    const int64_t rows = values.rows, chunk = chunk_values(values, kPlain);
    const double plain_ns = decode_ns(values, rules_.plain_decode_ns);
    int64_t plain = values.raw_bytes();
    if (values.offsets) {
      if (may_compress) return false;
      plain = 0;
      for (int64_t start = 0; start < rows; start += chunk)
        plain += text_chunk_bytes(values, start, smaller(chunk, rows - start));
    }
    weigh(values, kPlain, plain + rules_.chunk_frame_bytes * parts(rows, chunk), plain_ns, choice);
    if (values.is_word()) {
      const int64_t width = values.width(), blocks = parts(rows, kBlock);
      uint8_t* const widths = scratch_.widths.of(blocks);
      if (widths == nullptr) return false;
      bit_widths({values.data, rows * width}, kBlock, values.bits, {widths, blocks});
      int64_t sum = 0;
      for (int64_t block = 0; block < blocks; ++block) sum += widths[block];
      if (sum <= (values.bits - 1) * blocks)
        weigh(values, kPacked, sum * (kBlock / 8) + blocks * width + rules_.chunk_frame_bytes * blocks, plain_ns, choice);
      if (runs < 0) {
        int64_t counts[2];
        count_distinct_fixed({values.data, rows * width}, width, 0, {counts, 2});
        runs = counts[0];
      }
      if (runs * 2 <= rows) {
        const int64_t each = chunk_values(values, kRuns);
        int64_t stored = 0;
        for (int64_t start = 0; start < rows; start += each) {
          int64_t count = smaller(each, rows - start), found = 0;
          rle_count_chunks({values.data + start * width, count * width}, width, {&count, 1}, {&found, 1});
          stored += found * (width + 1) + rules_.chunk_frame_bytes + rules_.part_frame_bytes;
        }
        weigh(values, kRuns, stored, decode_ns(values, rules_.run_decode_ns), choice);
      }
    }
    return !may_compress || weigh_compressed(values, choice, is_left);
  }

  // Returns the bytes per value under entropy coding of byte planes, or -1 without memory.
  double entropy(const Values& values) const {
    const int64_t step = larger<int64_t>(1, values.rows / rules_.entropy_values);
    const int64_t count = (values.rows - 1) / step + 1, width = values.width();
    // The logarithms of earlier pages remain valid.
    const int64_t made = scratch_.logs.data == nullptr ? 0 : scratch_.logs.size / 8;
    uint8_t* const logs = scratch_.logs.of(8 * (count + 2));
    if (logs == nullptr) return -1;
    if (made < count + 2)
      for (int64_t n = 0; n < count + 2; ++n)
        store<double>(logs + 8 * n, n ? static_cast<double>(n) * log2(static_cast<double>(n)) : 0.0);
    double sums[2];
    byte_entropy_sums({values.data, values.rows * width}, width, step, {logs, 8 * (count + 2)}, {sums, 2});
    const double n = static_cast<double>(count);
    return (static_cast<double>(width) * log2(n) - larger(sums[0], sums[1]) / n) / 8;
  }

  bool values_repeat(const Values& values) const {
    if (!values.is_word()) return true;
    const int64_t rows = smaller(values.rows, rules_.entropy_values);
    int64_t counts[2];
    count_distinct_fixed({values.data, rows * values.width()}, values.width(), rows, {counts, 2});
    return static_cast<double>(counts[1]) < rules_.repetition * static_cast<double>(rows);
  }

  double total_of(double bytes, double ns) const { return rules_.byte_ns * bytes + ns; }

  double coded_ns(double plain, double packed) const {
    if (!(plain > 1)) return rules_.coded_table_ns * plain;
    return rules_.coded_byte_ns * plain + rules_.coded_saved_ns * larger(plain - packed, 0.0);
  }

  // Tries general compression where it is promising.
  bool weigh_compressed(const Values& values, Choice* choice, bool* is_left) const {
    const double plain = static_cast<double>(values.raw_bytes()) / static_cast<double>(values.rows);
    double least = choice->costs[kPlain].bytes, lz4_least = INFINITY;
    for (int k = kPacked; k <= kRuns; ++k)
      if (choice->costs[k].bytes >= 0) least = smaller(least, choice->costs[k].bytes);
    const double plain_ns = decode_ns(values, rules_.plain_decode_ns);
    if (values.bits == 1) return false;  // bits are always worth a try
    const double planes = entropy(values);
    if (planes < 0) return false;
    const bool is_split = values.bits == 32 || values.bits == 64;
    const bool is_coded = values.bits == 8 || values.bits >= 64;
    const double lz4_most = (1 - rules_.lz4_saving_min) * least, coded_most = (1 - rules_.coded_saving_min) * least;
    for (int k = kLz4; k <= kCoded; ++k) {
      const Encoding encoding = static_cast<Encoding>(k);
      bool may = planes < (encoding == kCoded ? coded_most : lz4_most);
      if (encoding == kLz4) may = may || least > rules_.lz4_copy_bytes || values_repeat(values);
      if (encoding == kSplitLz4) may = may && is_split && values.rows != 0;
      if (encoding == kCoded) {
        const double each = smaller(planes, rules_.zstd_per_lz4_min * lz4_least);
        may = is_coded && each < coded_most && total_of(each, plain_ns + coded_ns(plain, each)) < choice->total;
      }
      if (!may) continue;
      const int64_t chunk = chunk_values(values, encoding), count = parts(values.rows, chunk);
      int64_t stored = 0;
      for (int64_t start = 0; start < values.rows; start += chunk) {
        const int64_t rows = smaller(chunk, values.rows - start);
        uint8_t* const tried = scratch_.tried.of(compressed_max(rows * values.width()));
        if (tried == nullptr) return false;
        const int64_t bytes = compress(values, encoding, start, rows, {tried, scratch_.tried.size});
        if (bytes < 0) return false;
        stored += bytes;
      }
      const double packed = static_cast<double>(stored) / static_cast<double>(values.rows);
      const double saved = larger(plain - packed, 0.0);
      double ns = encoding == kSplitLz4 ? rules_.lz4_split_ns * plain : rules_.lz4_byte_ns * plain + rules_.lz4_saved_ns * saved;
      if (encoding == kCoded) ns = coded_ns(plain, packed);
      const Choice before = *choice;
      weigh(values, encoding, stored + rules_.chunk_frame_bytes * count, plain_ns + ns, choice);
      const double bytes = choice->costs[k].bytes;
      if (!(bytes < (encoding == kCoded ? coded_most : lz4_most))) {
        choice->encoding = before.encoding;
        choice->total = before.total;
      }
      if (encoding == kLz4 && bytes < rules_.repetition * plain) lz4_least = bytes;
    }
    const double library_most = (1 - rules_.library_saving_min) * least;
    const double each = smaller(planes, rules_.zstd_per_lz4_min * lz4_least);
    *is_left = each < library_most &&
               total_of(each, plain_ns + (rules_.zstd_byte_ns * plain + rules_.zstd_stored_ns * each)) < choice->total;
    if (is_split && planes < library_most &&
        total_of(planes, plain_ns + (rules_.zstd_split_byte_ns * plain + rules_.zstd_split_stored_ns * planes)) < choice->total)
      *is_left = true;
    return true;
  }

  static int64_t compressed_max(int64_t bytes) { return bytes + bytes / 64 + 640; }

  // Compresses the values of a chunk. Returns the size, or a fault.
  int64_t compress(const Values& values, Encoding encoding, int64_t start, int64_t rows, Bytes out) const {
    const int64_t width = values.width(), bytes = rows * width, zero = 0;
    if (compressed_max(bytes) > out.size) return fail(kOutputFull, 0);
    ConstBytes plain = {values.data + start * width, bytes};
    if (encoding == kSplitLz4) {
      uint8_t* const planes = scratch_.planes.of(bytes);
      if (planes == nullptr) return fail(kNoMemory, 0);
      split_bytes_chunks(plain, width, {&rows, 1}, {planes, bytes});
      plain.data = planes;
    }
    int64_t size = 0;
    if (encoding != kCoded) return lz4_compress_chunks(plain, {&zero, 1}, {&bytes, 1}, 1, out, {&size, 1});
    const int64_t prefix = width == 1 ? 0 : bytes;
    return zstd_encode_prefixes(plain, {&zero, 1}, {&bytes, 1}, {&prefix, 1}, width == 1 ? 4 : width, 1, out, {&size, 1});
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
    Values taken;
    if (!sample(values_, &scratch_.sample, &taken)) return false;
    const double rows = static_cast<double>(rows_), plain = static_cast<double>(raw) / rows;
    const double most = static_cast<double>(smaller(rows_ / 2, rules_.dictionary_items_max));
    const bool may_compress = raw >= rules_.compress_from_bytes;
    double items = -1;
    int64_t runs = -1;
    if (rows_ >= rules_.dictionary_rows_min && (values_.offsets || values_.bits > 8)) {
      int64_t counts[2] = {};
      const int64_t width = values_.width();
      const int64_t status =
          values_.offsets
              ? count_distinct_strings({taken.offsets, (taken.rows + 1) * width}, width, texts(taken), taken.rows, {counts, 2})
              : count_distinct_fixed({taken.data, taken.rows * width}, width, taken.rows, {counts, 2});
      if (status < 0) return false;
      runs = counts[0];
      if (static_cast<double>(counts[1]) <= floor((1 - rules_.repeated_min) * static_cast<double>(taken.rows))) {
        items = items_expected(counts[1], taken.rows);
        if (items > most) items = -1;
      }
    }
    if (items >= 0 && values_.offsets) {
      const double indices = log2(larger(items, 2.0)) / 8 + items * plain / rows;
      if (rules_.byte_ns * indices + rules_.lookup_ns < rules_.obvious * rules_.byte_ns * plain) {
        const Dictionary::State state = index(static_cast<int64_t>(most), dictionary);
        if (state == Dictionary::kLeave) return false;
        *has_dictionary = state == Dictionary::kBuilt && is_small(*dictionary, plain);
        if (*has_dictionary) return true;
        *dictionary = {};
        items = -1;
      }
    }
    bool is_left = false;
    if (!weigh_all(taken, runs, may_compress, choice, &is_left)) return false;
    is_measured_ = may_compress;
    if (is_left) return false;
    if (items < 0) return true;
    double pays = smaller(exp2(smaller(8 * rules_.indices_max * choice->best().bytes, 62.0)), most);
    if (runs * 2 <= taken.rows) pays = most;
    if (items > pays) return true;
    const Dictionary::State state = index(static_cast<int64_t>(pays), dictionary);
    if (state == Dictionary::kLeave) return false;
    if (state == Dictionary::kNone || !is_small(*dictionary, plain)) {
      *dictionary = {};
      return true;
    }
    const Cost cost = cost_of(*dictionary);
    *has_dictionary = rules_.byte_ns * cost.bytes + cost.decode_ns < choice->total;
    return true;
  }

  Cost cost_of(const Dictionary& dictionary) const {
    const Cost& own = dictionary.choice.best();
    const double rows = static_cast<double>(rows_);
    return {own.bytes + static_cast<double>(dictionary.item_bytes) / rows, own.decode_ns + rules_.lookup_ns};
  }

  bool is_small(const Dictionary& dictionary, double plain) const {
    return cost_of(dictionary).bytes <= rules_.dictionary_ratio_max * plain;
  }

  // Returns the data that string offsets refer to. Kernels read from the first string on.
  static ConstBytes texts(const Values& values) {
    return {values.data - values.end(0), values.end(values.rows)};
  }

  // Builds a dictionary of at most `most` items and chooses an encoding of its indices.
  Dictionary::State index(int64_t most, Dictionary* dictionary) const {
    const int64_t width = values_.width();
    const Ints first = {nullptr, smaller(smaller(rows_, most), rules_.compress_items_from_bytes / width)};
    const Bytes indices = {scratch_.indices.of(4 * rows_), 4 * rows_};
    const Ints rows = {reinterpret_cast<int64_t*>(scratch_.first.of(8 * first.size)), first.size};
    if (indices.data == nullptr || rows.data == nullptr) return Dictionary::kLeave;
    const int64_t items =
        values_.offsets
            ? dictionary_encode_strings({values_.offsets, (rows_ + 1) * width}, width, texts(values_), indices, rows)
            : dictionary_encode_fixed({values_.data, rows_ * width}, width, indices, rows);
    if (items < 0) return Dictionary::kLeave;
    if (items > rows.size) return rows.size < smaller(rows_, most) ? Dictionary::kLeave : Dictionary::kNone;
    dictionary->items = items;
    if (!(values_.offsets ? put_texts(dictionary) : put_numbers(dictionary))) return Dictionary::kLeave;
    const int64_t bits = items <= 1 << 8 ? 8 : 16;
    uint8_t* const to = scratch_.index_values.of(rows_ * bits / 8);
    if (to == nullptr) return Dictionary::kLeave;
    for (int64_t row = 0; row < rows_; ++row) {
      const uint32_t own = load<uint32_t>(indices.data + 4 * row);
      if (bits == 8) to[row] = static_cast<uint8_t>(own);
      else store<uint16_t>(to + 2 * row, static_cast<uint16_t>(own));
    }
    dictionary->indices = {bits, rows_, to, nullptr};
    Values taken;
    if (!sample(dictionary->indices, &scratch_.part, &taken)) return Dictionary::kLeave;
    const bool may_compress = rows_ * bits / 8 >= rules_.compress_from_bytes;
    bool is_left = false;
    const bool is_done = weigh_all(taken, -1, may_compress, &dictionary->choice, &is_left);
    return is_done && !is_left ? Dictionary::kBuilt : Dictionary::kLeave;
  }

  int64_t first_row(int64_t item) const { return load<int64_t>(scratch_.first.data + 8 * item); }

  // Writes items as a string block: offset width and start, offsets, bytes.
  template <class Offset>
  void put_items(int64_t items, int64_t total) const {
    constexpr int64_t width = sizeof(Offset);
    uint8_t* to = scratch_.items.data;
    const int64_t start = width * (3 + items);
    store<Offset>(to, static_cast<Offset>(8 * width));
    store<Offset>(to + width, static_cast<Offset>(start));
    int64_t at = 0;
    for (int64_t item = 0; item < items; ++item) {
      store<Offset>(to + (2 + item) * width, static_cast<Offset>(at));
      const int64_t row = first_row(item), size = values_.end(row + 1) - values_.end(row);
      if (size) memcpy(to + start + at, values_.data + values_.end(row) - values_.end(0), static_cast<size_t>(size));
      at += size;
    }
    store<Offset>(to + (2 + items) * width, static_cast<Offset>(total));
  }

  bool put_texts(Dictionary* dictionary) const {
    int64_t total = 0;
    for (int64_t item = 0; item < dictionary->items; ++item)
      total += values_.end(first_row(item) + 1) - values_.end(first_row(item));
    if (total + dictionary->items * values_.width() >= rules_.compress_items_from_bytes) return false;
    dictionary->item_bytes = total + (3 + dictionary->items) * values_.width();
    if (scratch_.items.of(dictionary->item_bytes) == nullptr) return false;
    if (values_.bits == 32) put_items<int32_t>(dictionary->items, total);
    else put_items<int64_t>(dictionary->items, total);
    return true;
  }

  // Writes numeric items, bit-packed if that is smaller.
  bool put_numbers(Dictionary* dictionary) const {
    const int64_t width = values_.width(), items = dictionary->items, plain = items * width;
    if (plain >= rules_.compress_items_from_bytes) return false;
    dictionary->item_bytes = plain;
    uint8_t* const to = scratch_.items.of(plain);
    uint8_t* const part = scratch_.part.of(plain);
    const int64_t blocks = parts(items, kBlock);
    uint8_t* const widths = scratch_.widths.of(blocks);
    if (to == nullptr || part == nullptr || widths == nullptr) return false;
    for (int64_t item = 0; item < items; ++item)
      memcpy(to + item * width, values_.data + first_row(item) * width, static_cast<size_t>(width));
    if (!values_.is_word()) return true;
    uint8_t most = 0;
    bit_widths({to, plain}, kBlock, values_.bits, {widths, blocks});
    for (int64_t block = 0; block < blocks; ++block) most = larger(most, widths[block]);
    int64_t tail = items % kBlock;
    if (most * kBlock < 8 * width * tail) tail = 0;
    const int64_t packed = parts(items - tail, kBlock) * most * (kBlock / 8);
    if (packed + tail * width >= plain) return true;
    pack_blocks({to, (items - tail) * width}, most, values_.bits, {part, packed});
    memmove(to + packed, to + plain - tail * width, static_cast<size_t>(tail * width));
    memcpy(to, part, static_cast<size_t>(packed));
    dictionary->item_width = most;
    dictionary->item_bytes = packed + tail * width;
    return true;
  }

  // --- chunks -------------------------------------------------------------------------------

  uint16_t level(int64_t row) const { return load<uint16_t>(levels_ + 2 * row); }

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
      const uint8_t* from = levels_ + 2 * start;
      pack_blocks({from, 2 * (count - tail)}, level_width_, 16, {to, bytes - 2 * tail});
      memcpy(to + bytes - 2 * tail, from + 2 * (count - tail), static_cast<size_t>(2 * tail));
      return bytes;
    }
    int64_t runs = 0;
    rle_count_chunks({levels_ + 2 * start, 2 * count}, 2, {&count, 1}, {&runs, 1});
    if (8 + 3 * runs > room) return -1;
    store<int64_t>(to, 2 * runs);
    rle_encode_chunks({levels_ + 2 * start, 2 * count}, 2, {&count, 1}, {to + 8, 2 * runs},
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
    if (encoding >= kLz4) {
      sizes[0] = compress(values, encoding, start, count, {to, room});
      return sizes[0] >= 0 && pad(sizes[0]);
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

  const args::PageSource& source_;
  const int64_t* const column_;
  const int64_t rows_;
  const args::PageRules& rules_;
  const bool is_large_;
  const int64_t constants_;
  const Bytes out_;
  Scratch& scratch_;
  int64_t* const found_;
  double* const costs_;
  Values values_ = {};
  bool has_levels_ = false;
  bool is_measured_ = false;
  uint8_t* levels_ = nullptr;
  int64_t level_width_ = 0;
  int64_t at_ = 0;
};

}  // namespace

int64_t encode_pages(args::PageSource source, args::PageShape shape, args::PageRules rules, Bytes out, Ints found,
                     Span<double> costs) {
  const int64_t count = source.columns.size / kColumn;
  if (shape.rows < 1 || shape.rows > INT32_MAX || rules.chunk_values_max < 2 || rules.sample_runs < 2 ||
      source.columns.size != count * kColumn || found.size != count * kFound || costs.size != count * kCosts)
    return fail(kBadCount, 0);
  Scratch scratch;
  int64_t at = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t* const own = found.data + i * kFound;
    Page page(source, source.columns.data + i * kColumn, shape, rules, {out.data + at, out.size - at}, scratch, own,
              costs.data + i * kCosts);
    const int64_t bytes = page.encode();
    if (bytes < 0) return fail(static_cast<Fault>(-bytes % 16), i);
    own[kPosition] = at;
    if (own[kKind] == kChunks) at += bytes;
  }
  return at;
}

}  // namespace LANCELET_NAMESPACE
