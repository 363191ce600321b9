// A few rows of several columns at once, from the map of a file to buffers of Arrow.
//
//     rows 7 90000   ->  where: chunks, items, spans   ->  asked for, verified   ->  decoded
//
// What pages hold is found by the records of few_rows.hpp, and single values are decoded by the
// kernels that decode many. Anything that is not as it should be is a fault: the caller then reads
// the rows in the general way, which says what is wrong, or knows what is not known here.
#include "few_rows.hpp"

#include "search.hpp"

namespace lancelet::once {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "once/read_ahead.def"
#undef KERNEL
}  // namespace lancelet::once

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "bitpack.def"
#include "checksum.def"
#include "fsst.def"
#include "lz4.def"
#include "zstd.def"
#undef KERNEL

namespace {

constexpr int64_t kPlainMax = 1 << 21;  // chunks that are larger are read in the general way
constexpr int64_t kZstdSlack = 64;
constexpr int64_t kZstdRatioMax = 128 * 1024 / 3;
constexpr int64_t kLz4RatioMax = 255;
constexpr int64_t kBlock = 1024;      // values of a packed block
constexpr int64_t kPlaceWords = 5;    // of the result, for each column

LANCELET_INLINE int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

// Where a value is: of a run, the chunk or page, and the place in it.
struct Spot {
  const int64_t* run;
  int64_t part;
  int64_t within;
};

// What is read: a range of the file for each spot, without those that are that of the one before.
struct Wanted {
  Spot* spots;
  int64_t* position;
  int64_t* size;
};

// The map, and what is known of it.
struct File {
  ConstBytes bytes;
  Bytes known;
  ConstInts blocks;
  Span<const uint32_t> sums;
  Bytes verified;

  // Ask for ranges and verify the blocks that they touch; 0 or a fault.
  int64_t prepare(ConstInts position, ConstInts size) const {
    const int64_t asked = lancelet::once::read_ahead(bytes, position, size, known);
    if (asked < 0) return asked;
    if (blocks.size < 3) return 0;
    const int64_t wrong = crc32c_verify(bytes, position, size, blocks.data[0], blocks.data[1],
                                        blocks.data[2], sums, verified);
    return wrong > 0 ? fail(kBadStream, wrong) : wrong;
  }
};

// The output, of which pieces are taken from front to back.
struct Output {
  Bytes bytes;
  int64_t end = 0;

  LANCELET_INLINE int64_t room() const { return bytes.size - end; }

  // Take `size` bytes at a place for words; returns where they are, or -1.
  LANCELET_INLINE int64_t take(int64_t size) {
    const int64_t start = padded(end);
    if (size < 0 || start > bytes.size || size > bytes.size - start) return -1;
    end = start + size;
    return start;
  }
};

// A chunk that was opened: its values, decompressed, and where its nulls are.
struct Chunk {
  const int64_t* run = nullptr;
  int64_t part = -1;
  int64_t count = 0;
  ConstBytes values = {nullptr, 0};
  ConstBytes lengths = {nullptr, 0};
  ConstBytes definition = {nullptr, 0};
};

// Memory for what is decompressed, kept from chunk to chunk.
struct Scratch {
  uint8_t* data = nullptr;
  int64_t size = 0;

  bool reserve(int64_t wanted) {
    if (wanted <= size) return true;
    free(data);
    data = static_cast<uint8_t*>(malloc(static_cast<size_t>(wanted)));
    size = data == nullptr ? 0 : wanted;
    return data != nullptr;
  }
};

LANCELET_INLINE int64_t number_at(const uint8_t* at, int64_t bytes) {
  switch (bytes) {
    case 1: return *at;
    case 2: return load<uint16_t>(at);
    case 4: return load<uint32_t>(at);
    default: return load<int64_t>(at);
  }
}

// --- where ------------------------------------------------------------------------------------

int64_t find_in_chunks(const ChunkRun& run, int64_t row, Spot* spot, int64_t* position,
                       int64_t* size) {
  if (run.chunks < 1) return fail(kBadIndex, 0);
  const ConstInts bounds = {run.first_value.get(), run.chunks + 1};
  const int64_t chunk = part_of(bounds, 0, row);
  // Another thread may be filling in what was not known when the record was made.
  if (chunk >= run.chunks || (run.known && !run.known[chunk])) return fail(kBadIndex, 0);
  spot->part = chunk;
  spot->within = row - bounds.data[chunk];
  if (spot->within < 0 || spot->within >= run.count[chunk]) return fail(kBadIndex, 0);
  *position = run.position[chunk];
  *size = run.size[chunk];
  return 0;
}

int64_t find_item(const ItemRun& run, int64_t row, Spot* spot, int64_t* position, int64_t* size) {
  const ConstInts bounds = {run.first_row.get(), run.pages + 1};
  const int64_t page = part_of(bounds, 0, row);
  if (page >= run.pages || row < bounds.data[page]) return fail(kBadIndex, 0);
  spot->part = page;
  spot->within = row - bounds.data[page];
  *position = run.position[page] + spot->within * run.item_bytes;
  *size = run.item_bytes;
  return 0;
}

int64_t find_zipped(const ZippedRun& run, const File& file, int64_t row, Spot* spot,
                    int64_t* position, int64_t* size) {
  if (row >= run.rows) return fail(kBadIndex, 0);
  const int64_t width = run.index_width;
  int64_t entry = run.index_position + row * width, both = 2 * width;
  const int64_t status = file.prepare({&entry, 1}, {&both, 1});
  if (status < 0) return status;
  const int64_t start = number_at(file.bytes.data + entry, width);
  const int64_t stop = number_at(file.bytes.data + entry + width, width);
  if (start < 0 || stop < start || stop > run.size) return fail(kBadOffsets, 0);
  spot->part = spot->within = row;
  *position = run.position + start;
  *size = stop - start;
  return 0;
}

int64_t find(const Column& column, const File& file, int64_t row, Spot* spot, int64_t* position,
             int64_t* size) {
  const ConstInts bounds = {column.first_row.get(), column.runs + 1};
  if (row < 0 || row >= bounds.data[column.runs]) return fail(kBadIndex, 0);
  const int64_t place = column.runs == 1 ? 0 : part_of(bounds, 0, row);
  spot->run = reinterpret_cast<const int64_t*>(column.run[place]);
  if (spot->run == nullptr) return fail(kBadIndex, 0);
  const int64_t own = row - bounds.data[place];
  switch (spot->run[0]) {
    case kChunks:
      return find_in_chunks(*reinterpret_cast<const ChunkRun*>(spot->run), own, spot, position,
                            size);
    case kItems:
      return find_item(*reinterpret_cast<const ItemRun*>(spot->run), own, spot, position, size);
    case kZippedStrings:
      return find_zipped(*reinterpret_cast<const ZippedRun*>(spot->run), file, own, spot, position,
                         size);
    case kConstant:
      spot->part = spot->within = *position = *size = 0;
      return 0;
    default:
      return fail(kBadWidth, 0);
  }
}

// --- chunks -----------------------------------------------------------------------------------

int64_t decompress(int64_t compression, ConstBytes* values, Scratch* scratch) {
  const int64_t head = compression == kLz4 ? 4 : 8;
  // Empty blocks, and frames without a size in front, are read in the general way.
  if (values->size <= head) return fail(kTooShort, 0);
  int64_t plain = number_at(values->data, head), from = head, size = values->size - head;
  const int64_t ratio = compression == kLz4 ? kLz4RatioMax : kZstdRatioMax;
  if (plain < 0 || plain > kPlainMax || plain / ratio > size) return fail(kBadCount, 0);
  if (!scratch->reserve(plain + kZstdSlack)) return fail(kNoMemory, 0);
  const bool is_lz4 = compression == kLz4;
  const Bytes out = {scratch->data, is_lz4 ? plain : plain + kZstdSlack};
  const int64_t status =
      is_lz4 ? lz4_decompress_chunks(*values, {&from, 1}, {&size, 1}, {&plain, 1}, out)
             : zstd_decompress_chunks(*values, {&from, 1}, {&size, 1}, {&plain, 1}, out);
  if (status < 0) return status;
  *values = {scratch->data, plain};
  return 0;
}

// Find the parts of a chunk, which lies within the file.
int64_t open_chunk(const ChunkRun& run, const Spot& spot, ConstBytes bytes, Scratch* scratch,
                   Chunk* chunk) {
  chunk->run = spot.run;
  chunk->part = spot.part;
  chunk->count = run.count[spot.part];
  chunk->definition = chunk->lengths = {nullptr, 0};
  const int64_t buffers = run.codec == kRuns ? 2 : 1;
  const int64_t head_bytes = padded(2 + 2 * run.has_definition + buffers * run.size_bytes);
  if (bytes.size < head_bytes) return fail(kTooShort, 0);
  const uint8_t* head = bytes.data + 2;
  ConstBytes parts[3];
  int64_t at = head_bytes;
  for (int64_t i = 0; i < run.has_definition + buffers; ++i) {
    const int64_t width = i < run.has_definition ? 2 : run.size_bytes;
    const int64_t size = number_at(head, width);
    head += width;
    parts[i] = {bytes.data + at, size};
    at += padded(size);
    if (at > bytes.size) return fail(kTooShort, 0);
  }
  if (run.has_definition) {
    if (load<uint16_t>(bytes.data) != chunk->count) return fail(kBadCount, 0);
    chunk->definition = parts[0];
  }
  chunk->values = parts[run.has_definition];
  if (buffers == 2) chunk->lengths = parts[run.has_definition + 1];
  return run.compression == kPlain ? 0 : decompress(run.compression, &chunk->values, scratch);
}

// Whether a value is null, by levels of one bit in blocks of 1024; the last block may be plain.
int64_t is_null(const Chunk& chunk, int64_t at) {
  constexpr int64_t block_bytes = kBlock / 8;
  const int64_t full = chunk.count / kBlock, tail = chunk.count % kBlock;
  const int64_t left = chunk.definition.size - full * block_bytes;
  const bool is_plain = left == 2 * tail;
  if (!is_plain && left < (tail > 0 ? block_bytes : 0)) return fail(kTooShort, 0);
  const int64_t block = at / kBlock, place = at % kBlock;
  const uint8_t* from = chunk.definition.data + block * block_bytes;
  if (block == full && is_plain) {
    const int64_t level = load<uint16_t>(from + 2 * place);
    return level > 1 ? fail(kBadLevels, 0) : level;
  }
  // Words of 16 bits: 64 lanes of 16 rows; bitpack.cpp explains the order.
  const int64_t lane = place % 64, row = place % 128 / 64 * 8 + place / 128;
  return load<uint16_t>(from + 2 * lane) >> row & 1;
}

// --- values of fixed width --------------------------------------------------------------------

int64_t find_run(const Chunk& chunk, int64_t width, int64_t at) {
  if (chunk.values.size / width < chunk.lengths.size) return fail(kTooShort, 0);
  int64_t found = -1, end = 0;
  for (int64_t i = 0; i < chunk.lengths.size; ++i) {
    end += chunk.lengths.data[i];
    if (found < 0 && end > at) found = i;
  }
  return end == chunk.count && found >= 0 ? found : fail(kBadLength, 0);
}

// Write the value at a place of a chunk, which has the bits of the run.
int64_t read_value(const ChunkRun& run, const Chunk& chunk, int64_t at, uint8_t* to) {
  const int64_t width = run.bits / 8;
  switch (run.codec) {
    case kFlat:
      if (chunk.values.size != chunk.count * width) return fail(kTooShort, 0);
      memcpy(to, chunk.values.data + at * width, width);
      return 0;
    case kInline: {
      if (chunk.count > kBlock) return fail(kBadCount, 0);
      const int64_t start = 0, size = chunk.values.size;
      const int64_t status =
          pick_packed(chunk.values, {&start, 1}, {&size, 1}, {&at, 1}, run.bits, {to, width});
      return smaller<int64_t>(status, 0);
    }
    case kSplit:
      if (chunk.values.size != chunk.count * width) return fail(kTooShort, 0);
      for (int64_t k = 0; k < width; ++k) to[k] = chunk.values.data[at + k * chunk.count];
      return 0;
    case kRuns: {
      const int64_t found = find_run(chunk, width, at);
      if (found < 0) return found;
      memcpy(to, chunk.values.data + found * width, width);
      return 0;
    }
    default:
      return fail(kBadWidth, 0);
  }
}

// The index of an item of a dictionary.
int64_t read_index(const ChunkRun& run, const Chunk& chunk, int64_t at, int64_t* index) {
  uint8_t word[8] = {};
  const int64_t status = read_value(run, chunk, at, word);
  if (status < 0) return status;
  const uint64_t found = load<uint64_t>(word);
  if (found >= static_cast<uint64_t>(run.items.count)) return fail(kBadIndex, 0);
  *index = static_cast<int64_t>(found);
  return 0;
}

// --- strings ----------------------------------------------------------------------------------

// Where a string, or the codes of one, is in a chunk.
int64_t find_string(const ChunkRun& run, const Chunk& chunk, int64_t at, ConstBytes* found) {
  const int64_t width = run.bits / 8, n = chunk.count;
  if (n >= chunk.values.size / width) return fail(kTooShort, 0);
  const uint8_t* offsets = chunk.values.data;
  const int64_t start = number_at(offsets + at * width, width);
  const int64_t stop = number_at(offsets + (at + 1) * width, width);
  if (start < (n + 1) * width || stop < start || stop > chunk.values.size)
    return fail(kBadOffsets, 0);
  *found = {offsets + start, stop - start};
  return 0;
}

int64_t find_item_string(const Items& items, int64_t index, ConstBytes* found) {
  const int64_t start = number_at(items.values.get() + index * items.width, items.width);
  const int64_t stop = number_at(items.values.get() + (index + 1) * items.width, items.width);
  if (start < 0 || stop < start || stop > items.num_bytes) return fail(kBadOffsets, 0);
  *found = {items.bytes.get() + start, stop - start};
  return 0;
}

// Whether bytes are UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(const uint8_t* at, int64_t size) {
  const uint8_t* const end = at + size;
  while (at < end) {
    if (end - at >= 8 && !(load<uint64_t>(at) & 0x8080808080808080u)) {
      at += 8;
      continue;
    }
    const uint8_t first = *at++;
    if (first < 0x80) continue;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || end - at < more) return false;
    const uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (at[0] < low || at[0] > high) return false;
    for (int k = 1; k < more; ++k)
      if ((at[k] & 0xC0) != 0x80) return false;
    at += more;
  }
  return true;
}

// Append a string, of which there may be codes by one of some tables.
int64_t append(ConstBytes found, const Symbols* symbols, int64_t part, Output* out) {
  if (symbols == nullptr || symbols->tables == 0) {
    if (found.size > out->room()) return fail(kOutputFull, 0);
    if (found.size > 0) memcpy(out->bytes.data + out->end, found.data, found.size);
    out->end += found.size;
    return 0;
  }
  int64_t table = 0;
  if (symbols->tables > 1)
    table = part_of({symbols->first_chunk.get(), symbols->tables + 1}, 0, part);
  if (table >= symbols->tables) return fail(kBadIndex, 0);
  const int64_t start = 0, size = found.size, codes = 256;
  uint8_t ends[16] = {};
  int64_t progress[4] = {};
  const int64_t status = fsst_decode_slices(
      found, {&start, 1}, {&size, 1}, {symbols->symbols.get(), codes * symbols->tables},
      {symbols->lengths.get(), codes * symbols->tables}, {&table, 1}, 8, {ends, 16},
      {out->bytes.data + out->end, out->room()}, {progress, 4});
  if (status > 0) return fail(kOutputFull, 0);
  out->end += progress[3];
  return status;
}

// --- columns ----------------------------------------------------------------------------------

struct Reader {
  const File& file;
  Output* out;
  Scratch* scratch;
  Chunk chunk;

  LANCELET_INLINE ConstBytes range(int64_t position, int64_t size) const {
    return {file.bytes.data + position, size};
  }

  // Open the chunk of a spot unless it is open, and find out whether the value is null.
  int64_t enter(const ChunkRun& run, const Spot& spot, ConstBytes bytes) {
    if (chunk.run != spot.run || chunk.part != spot.part) {
      chunk.run = nullptr;
      const int64_t status = open_chunk(run, spot, bytes, scratch, &chunk);
      if (status < 0) {
        chunk.run = nullptr;
        return status;
      }
    }
    return run.has_definition ? is_null(chunk, spot.within) : 0;
  }

  // Write a value of fixed width; returns 1 if it is null, and then writes nothing.
  int64_t fixed(const Column& column, const Spot& spot, ConstBytes bytes, uint8_t* to) {
    switch (spot.run[0]) {
      case kChunks: {
        const auto& run = *reinterpret_cast<const ChunkRun*>(spot.run);
        const int64_t status = enter(run, spot, bytes);
        if (status != 0) return status;
        if (run.items.count < 0)
          return run.bits == 8 * column.width ? read_value(run, chunk, spot.within, to)
                                              : fail(kBadWidth, 0);
        int64_t index = 0;
        const int64_t found = read_index(run, chunk, spot.within, &index);
        if (found < 0) return found;
        if (run.items.width != column.width) return fail(kBadWidth, 0);
        memcpy(to, run.items.values.get() + index * column.width, column.width);
        return 0;
      }
      case kItems: {
        const auto& run = *reinterpret_cast<const ItemRun*>(spot.run);
        if (run.has_definition && (bytes.data[0] & 1)) return 1;
        if (run.item_bytes != run.has_definition + column.width) return fail(kBadWidth, 0);
        memcpy(to, bytes.data + run.has_definition, column.width);
        return 0;
      }
      case kConstant: {
        const auto& run = *reinterpret_cast<const ConstantRun*>(spot.run);
        if (run.is_null) return 1;
        if (run.size != column.width) return fail(kBadWidth, 0);
        memcpy(to, run.value.get(), column.width);
        return 0;
      }
      default:
        return fail(kBadWidth, 0);
    }
  }

  // Write a bit; returns 1 if it is null.
  int64_t bit(const Spot& spot, ConstBytes bytes, uint8_t* to) {
    if (spot.run[0] == kConstant) {
      const auto& run = *reinterpret_cast<const ConstantRun*>(spot.run);
      return run.is_null ? 1 : fail(kBadWidth, 0);
    }
    if (spot.run[0] != kChunks) return fail(kBadWidth, 0);
    const auto& run = *reinterpret_cast<const ChunkRun*>(spot.run);
    if (run.bits != 1 || run.codec != kFlat || run.items.count >= 0) return fail(kBadWidth, 0);
    const int64_t status = enter(run, spot, bytes);
    if (status != 0) return status;
    if (chunk.values.size != (chunk.count + 7) / 8) return fail(kTooShort, 0);
    *to = chunk.values.data[spot.within / 8] >> (spot.within % 8) & 1;
    return 0;
  }

  // Append a string; returns 1 if it is null.
  int64_t string(const Spot& spot, ConstBytes bytes) {
    ConstBytes found = {nullptr, 0};
    switch (spot.run[0]) {
      case kChunks: {
        const auto& run = *reinterpret_cast<const ChunkRun*>(spot.run);
        int64_t status = enter(run, spot, bytes);
        if (status != 0) return status;
        if (run.items.count >= 0) {
          int64_t index = 0;
          status = read_index(run, chunk, spot.within, &index);
          if (status == 0) status = find_item_string(run.items, index, &found);
          return status < 0 ? status : append(found, nullptr, 0, out);
        }
        if (run.codec != kVariable && run.codec != kFsst) return fail(kBadWidth, 0);
        status = find_string(run, chunk, spot.within, &found);
        if (status < 0) return status;
        return append(found, run.codec == kFsst ? &run.symbols : nullptr, spot.part, out);
      }
      case kZippedStrings: {
        const auto& run = *reinterpret_cast<const ZippedRun*>(spot.run);
        const int64_t head = run.has_definition + run.length_bytes;
        if (run.has_definition && bytes.size > 0 && (bytes.data[0] & 1))
          return bytes.size == 1 ? 1 : fail(kBadLength, 0);
        if (bytes.size < head) return fail(kTooShort, 0);
        const int64_t size = number_at(bytes.data + run.has_definition, run.length_bytes);
        if (size != bytes.size - head) return fail(kBadLength, 0);
        found = {bytes.data + head, size};
        return append(found, run.codec == kFsst ? &run.symbols : nullptr, 0, out);
      }
      case kConstant: {
        const auto& run = *reinterpret_cast<const ConstantRun*>(spot.run);
        if (run.is_null) return 1;
        found = {run.value.get(), run.size};
        return append(found, nullptr, 0, out);
      }
      default:
        return fail(kBadWidth, 0);
    }
  }

  // Decode a column; `place` gets the number of nulls, and where its buffers are.
  int64_t column(const Column& column, int64_t rows, const Wanted& wanted, int64_t* place) {
    const int64_t validity = out->take((rows + 7) / 8);
    const int64_t offset_bytes = column.form == kStrings32 ? 4 : 8;
    const bool is_string = column.form == kStrings32 || column.form == kStrings64;
    const int64_t values = out->take(is_string               ? (rows + 1) * offset_bytes
                                     : column.form == kBits  ? (rows + 7) / 8
                                                             : rows * column.width);
    if (validity < 0 || values < 0) return fail(kOutputFull, 0);
    uint8_t* const valid = out->bytes.data + validity;
    uint8_t* const to = out->bytes.data + values;
    memset(valid, 0, (rows + 7) / 8);
    if (column.form == kBits) memset(to, 0, (rows + 7) / 8);
    const int64_t start = is_string ? out->take(0) : 0;
    if (start < 0) return fail(kOutputFull, 0);
    if (is_string) memset(to, 0, offset_bytes);
    int64_t nulls = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const Spot& spot = wanted.spots[i];
      const ConstBytes bytes = range(wanted.position[i], wanted.size[i]);
      int64_t status = 0;
      if (is_string) {
        const int64_t before = out->end;
        status = string(spot, bytes);
        if (status == 0 && column.is_text &&
            !is_utf8(out->bytes.data + before, out->end - before))
          status = fail(kBadCode, 0);
        if (column.form == kStrings32)
          store<int32_t>(to + (i + 1) * 4, static_cast<int32_t>(out->end - start));
        else
          store<int64_t>(to + (i + 1) * 8, out->end - start);
        if (out->end - start > INT32_MAX) status = fail(kTooLarge, 0);
      } else if (column.form == kBits) {
        uint8_t value = 0;
        status = bit(spot, bytes, &value);
        to[i / 8] |= static_cast<uint8_t>(value << i % 8);
      } else {
        status = fixed(column, spot, bytes, to + i * column.width);
        if (status > 0) memset(to + i * column.width, 0, column.width);
      }
      if (status < 0) return status;
      nulls += status > 0;
      if (status == 0) valid[i / 8] |= static_cast<uint8_t>(1 << i % 8);
    }
    place[0] = nulls;
    place[1] = validity;
    place[2] = values;
    place[3] = start;
    place[4] = is_string ? out->end - start : 0;
    return 0;
  }
};

int64_t take(const File& file, ConstInts rows, ConstInts columns, const Wanted& wanted,
             Output* out, Scratch* scratch, Ints result) {
  int64_t reads = 0, bytes = 0;
  const int64_t count = rows.size, all = count * columns.size;
  for (int64_t c = 0; c < columns.size; ++c) {
    const auto& column = *reinterpret_cast<const Column*>(columns.data[c]);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = c * count + i;
      const int64_t status = find(column, file, rows.data[i], &wanted.spots[at],
                                  &wanted.position[at], &wanted.size[at]);
      if (status < 0) return status;
      const bool is_same = i > 0 && wanted.position[at] == wanted.position[at - 1] &&
                           wanted.size[at] == wanted.size[at - 1];
      if (is_same || wanted.size[at] == 0) continue;
      ++reads;
      bytes += wanted.size[at];
    }
  }
  const int64_t status = file.prepare({wanted.position, all}, {wanted.size, all});
  if (status < 0) return status;
  result.data[0] = reads;
  result.data[1] = bytes;
  Reader reader = {file, out, scratch, {}};
  for (int64_t c = 0; c < columns.size; ++c) {
    const auto& column = *reinterpret_cast<const Column*>(columns.data[c]);
    const Wanted own = {wanted.spots + c * count, wanted.position + c * count,
                        wanted.size + c * count};
    const int64_t decoded = reader.column(column, count, own, &result.data[2 + c * kPlaceWords]);
    if (decoded < 0) return decoded;
  }
  return out->end;
}

}  // namespace

int64_t take_few(ConstBytes file, ConstInts rows, ConstInts columns, Bytes known,
                 ConstInts blocks, Span<const uint32_t> sums, Bytes verified, Bytes out,
                 Ints result) {
  if (result.size < 2 + kPlaceWords * columns.size) return fail(kOutputFull, 0);
  const int64_t all = rows.size * columns.size;
  constexpr int64_t bytes = sizeof(Spot) + 2 * sizeof(int64_t);
  auto* memory = static_cast<uint8_t*>(malloc(static_cast<size_t>((all + 1) * bytes)));
  if (memory == nullptr) return fail(kNoMemory, 0);
  auto* spots = reinterpret_cast<Spot*>(memory);
  auto* position = reinterpret_cast<int64_t*>(memory + all * sizeof(Spot));
  Scratch scratch;
  Output output = {out};
  const int64_t status = take({file, known, blocks, sums, verified}, rows, columns,
                              {spots, position, position + all}, &output, &scratch, result);
  free(scratch.data);
  free(memory);
  return status;
}

}  // namespace LANCELET_NAMESPACE
