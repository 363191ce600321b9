// Point reads of several columns from a mapped file into Arrow buffers.
//
//     rows 7 90000   ->  locate chunks, items, byte ranges   ->  prefetch, verify   ->  decode
//
// Pages are located by their plans, and single values are decoded by the bulk kernels. On any
// irregularity the column reports a fault, and the caller uses the generic reader, which raises the
// error or supports the feature.
#include "plan_levels.hpp"

namespace lancelet::baseline {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "baseline/read_ahead.def"
#undef KERNEL
}  // namespace lancelet::baseline

namespace LANCELET_NAMESPACE {
#define KERNEL(name, ...) int64_t name(__VA_ARGS__);
#include "checksum.def"
#undef KERNEL

namespace planned {
namespace {

constexpr int64_t kDense = 32;  // from this number of values on, packed chunks are unpacked as a whole
constexpr int64_t kInflated = 64;             // decompressed chunks cached for unordered rows,
constexpr int64_t kInflatedBytes = 16 << 20;  // and their size limit

// A byte range of the file per row of a column.
struct Ranges {
  ValueLocation* locations;
  int64_t* position;
  int64_t* size;
};

// A decompressed chunk.
struct Inflated {
  const Page* page = nullptr;
  int64_t part = -1;
  ConstBytes values = {nullptr, 0};
  Scratch memory;
};

struct Reader {
  const File& file;
  Output* out;
  Inflated inflated[kInflated];
  int64_t next = 0, used = 1;  // cache entry to replace, and number of entries
  int64_t inflated_bytes = 0;
  Scratch unpacked;
  Chunk chunk;
  bool is_dense = false;
  bool is_ordered = true;

  Reader(const File& file, Output* out) : file(file), out(out) {}
  ~Reader() {
    for (Inflated& each : inflated) free(each.memory.data);
    free(unpacked.data);
  }

  LANCELET_INLINE ConstBytes range(int64_t position, int64_t size) const {
    return {file.bytes.data + position, size};
  }

  // Opens the chunk of a value unless it is open. Returns whether the value is null, or a fault.
  int64_t enter(const ValueLocation& location, ConstBytes bytes) {
    if (location.is_null > 0) return 1;
    if (chunk.page != location.page || chunk.part != location.part) {
      const int64_t status = open(*location.page, location.part, bytes);
      if (status < 0) {
        chunk.page = nullptr;
        return status;
      }
    }
    return location.page->has_definition ? is_null(chunk, location.within) : 0;
  }

  int64_t open(const Page& page, int64_t part, ConstBytes bytes) {
    int64_t status = open_chunk(page, part, bytes, &chunk);
    if (status == 0 && page.compression != kPlain) status = inflate(page, part);
    if (status < 0 || !is_dense || chunk.codec != kInline || chunk.count > kBlock) return status;
    // For many values, the whole block is unpacked.
    const int64_t start = 0, size = chunk.values.size, bytes_of = chunk.count * page.bits / 8;
    if (!unpacked.reserve(kBlock * 8)) return fail(kNoMemory, 0);
    status = unpack_chunks(chunk.values, {&start, 1}, {&size, 1}, {&chunk.count, 1}, page.bits,
                           {unpacked.data, bytes_of});
    if (status < 0) return status;
    chunk.values = {unpacked.data, bytes_of};
    chunk.codec = kFlat;
    return 0;
  }

  // Decompresses the values of the open chunk. For unordered rows, several chunks are cached.
  int64_t inflate(const Page& page, int64_t part) {
    for (int64_t i = 0; i < used; ++i)
      if (inflated[i].page == &page && inflated[i].part == part) {
        chunk.values = inflated[i].values;
        return 0;
      }
    Inflated& own = inflated[next];
    own.page = nullptr;
    inflated_bytes -= own.memory.size;
    const int64_t status = decompress(page.compression, &chunk.values, &own.memory);
    inflated_bytes += own.memory.size;
    if (status < 0) return status;
    own.page = &page;
    own.part = part;
    own.values = chunk.values;
    const bool is_more = !is_ordered && used < kInflated && inflated_bytes < kInflatedBytes;
    if (is_more && next + 1 == used) ++used;
    next = is_ordered ? next : (next + 1) % used;
    return 0;
  }

  // Writes a fixed-width value. Returns 1 and writes nothing if it is null.
  int64_t fixed(const Column& column, const ValueLocation& location, ConstBytes bytes, uint8_t* to) {
    const Page& page = *location.page;
    switch (page.layout) {
      case kChunks: {
        const int64_t status = enter(location, bytes);
        if (status != 0) return status;
        if (page.items.count < 0)
          return page.bits == 8 * column.width ? read_value(page, chunk, location.within, to)
                                               : fail(kBadWidth, 0);
        int64_t index = 0;
        const int64_t found = read_index(page, chunk, location.within, &index);
        if (found < 0) return found;
        if (page.items.width != column.width) return fail(kBadWidth, 0);
        memcpy(to, page.items.values + index * column.width, column.width);
        return 0;
      }
      case kItems: {
        if (page.has_definition && (bytes.data[0] & 1)) return 1;
        if (page.item_bytes != page.has_definition + column.width) return fail(kBadWidth, 0);
        memcpy(to, bytes.data + page.has_definition, column.width);
        return 0;
      }
      case kConstant: {
        if (page.value == nullptr) return 1;
        if (page.size != column.width) return fail(kBadWidth, 0);
        memcpy(to, page.value, column.width);
        return 0;
      }
      default:
        return fail(kBadWidth, 0);
    }
  }

  // Writes a bit. Returns 1 if it is null.
  int64_t bit(const ValueLocation& location, ConstBytes bytes, uint8_t* to) {
    const Page& page = *location.page;
    if (page.layout == kConstant) {
      if (page.value == nullptr) return 1;
      *to = page.value[0] != 0;
      return 0;
    }
    if (page.layout != kChunks || page.bits != 1 || page.codec != kFlat || page.items.count >= 0)
      return fail(kBadWidth, 0);
    const int64_t status = enter(location, bytes);
    if (status != 0) return status;
    if (chunk.values.size != (chunk.count + 7) / 8) return fail(kTooShort, 0);
    *to = chunk.values.data[location.within / 8] >> (location.within % 8) & 1;
    return 0;
  }

  // Appends a string. Returns 1 if it is null.
  int64_t string(const ValueLocation& location, ConstBytes bytes) {
    const Page& page = *location.page;
    ConstBytes found = {nullptr, 0};
    switch (page.layout) {
      case kChunks: {
        int64_t status = enter(location, bytes);
        if (status != 0) return status;
        if (page.items.count >= 0) {
          int64_t index = 0;
          status = read_index(page, chunk, location.within, &index);
          if (status == 0) status = find_item_string(page.items, index, &found);
          return status < 0 ? status : append(found, {}, out);
        }
        if (page.codec != kVariable && page.codec != kFsst) return fail(kBadWidth, 0);
        status = find_string(page, chunk, location.within, &found);
        return status < 0 ? status : append(found, page.symbols, out);
      }
      case kZippedStrings: {
        const int64_t head = page.has_definition + page.length_bytes;
        if (page.has_definition && bytes.size > 0 && (bytes.data[0] & 1))
          return bytes.size == 1 ? 1 : fail(kBadLength, 0);
        if (bytes.size < head) return fail(kTooShort, 0);
        const int64_t size = number_at(bytes.data + page.has_definition, page.length_bytes);
        if (size != bytes.size - head) return fail(kBadLength, 0);
        return append({bytes.data + head, size}, page.symbols, out);
      }
      case kConstant:
        return page.value == nullptr ? 1 : append({page.value, page.size}, {}, out);
      default:
        return fail(kBadWidth, 0);
    }
  }

  // Decodes a column; `output` receives the null count and buffer positions.
  int64_t column(const Column& column, int64_t rows, const Ranges& ranges, ColumnOutput* output) {
    const int64_t validity = out->take((rows + 7) / 8);
    const int64_t offset_bytes = column.form == kStrings32 ? 4 : 8;
    is_dense = rows >= kDense;
    is_ordered = true;
    for (int64_t i = 1; i < rows; ++i) is_ordered &= ranges.position[i - 1] <= ranges.position[i];
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
      const ValueLocation& location = ranges.locations[i];
      const ConstBytes bytes = range(ranges.position[i], ranges.size[i]);
      int64_t status = 0;
      if (is_string) {
        const int64_t before = out->end;
        status = string(location, bytes);
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
        status = bit(location, bytes, &value);
        to[i / 8] |= static_cast<uint8_t>(value << i % 8);
      } else {
        status = fixed(column, location, bytes, to + i * column.width);
        if (status > 0) memset(to + i * column.width, 0, column.width);
      }
      if (status < 0) return status;
      nulls += status > 0;
      if (status == 0) valid[i / 8] |= static_cast<uint8_t>(1 << i % 8);
    }
    *output = {0, nulls, validity, values, start, is_string ? out->end - start : 0, rows, -1};
    return 0;
  }

  // Decodes a nested column: values and enclosing layers.
  int64_t nested(const Column& column, int64_t rows, const Ranges& ranges, ColumnOutput* output) {
    Entries entries;
    LevelReader levels(file, &entries);
    const Nesting* nesting = nullptr;
    for (int64_t i = 0; i < rows; ++i) {
      const Nesting* const own = ranges.locations[i].page->nesting;
      // Pages with different level definitions are left to the generic reader.
      if (own == nullptr || (nesting != nullptr && !is_same(*own, *nesting)))
        return fail(kBadLevels, i);
      nesting = own;
      const int64_t status = levels.row(ranges.locations[i]);
      if (status < 0) return status;
    }
    const Ranges slots = {entries.locations.data, entries.position.data, entries.size.data};
    const int64_t status = this->column(column, entries.locations.count, slots, output);
    return status < 0 ? status : put_layers(column, *nesting, rows, entries, out, output);
  }
};

// Locates the rows of a column. Returns 0 or a fault.
int64_t find_rows(const File& file, const ColumnRows& requests, int64_t rows, const Ranges& ranges,
                  Taken* taken) {
  for (int64_t i = 0; i < rows; ++i) {
    int64_t* const position = ranges.position + i;
    int64_t* const size = ranges.size + i;
    const int64_t status =
        find(*requests.pages[i], file, requests.rows[i], ranges.locations + i, position, size);
    if (status < 0) return status;
    if (!within(*position, *size, file.bytes.size)) return fail(kOutOfSource, i);
    const bool is_same = i > 0 && position[0] == position[-1] && size[0] == size[-1];
    if (is_same || *size == 0) continue;
    ++taken->ranges;
    taken->bytes += *size;
  }
  return 0;
}

int64_t take(const File& file, int64_t rows, Span<const ColumnRows> requests, const Ranges& all,
             Output* out, ColumnOutput* outputs, Taken* taken) {
  for (int64_t c = 0; c < requests.size; ++c) {
    const Ranges own = {all.locations + c * rows, all.position + c * rows, all.size + c * rows};
    outputs[c] = {find_rows(file, requests.data[c], rows, own, taken), 0, 0, 0, 0, 0, 0, -1};
    if (outputs[c].fault < 0) memset(own.size, 0, rows * sizeof(int64_t));
    if (outputs[c].fault < 0) memset(own.position, 0, rows * sizeof(int64_t));
  }
  const int64_t count = rows * requests.size;
  const int64_t status = prepare_ranges(file, {all.position, count}, {all.size, count});
  if (status < 0) return status;
  Reader reader(file, out);
  for (int64_t c = 0; c < requests.size; ++c) {
    if (outputs[c].fault < 0) continue;
    const Ranges own = {all.locations + c * rows, all.position + c * rows, all.size + c * rows};
    const int64_t before = out->end;
    const Column& column = *requests.data[c].column;
    const int64_t decoded = column.layers > 1 ? reader.nested(column, rows, own, &outputs[c])
                                              : reader.column(column, rows, own, &outputs[c]);
    if (decoded >= 0) continue;
    // If the output is full, the caller retries with a larger one; other faults affect the column
    // only.
    if (-decoded % 16 == kOutputFull) return decoded;
    out->end = before;
    outputs[c].fault = decoded;
  }
  taken->used = out->end;
  return 0;
}

}  // namespace
}  // namespace planned

int64_t prepare_ranges(const plan::File& file, ConstInts position, ConstInts size) {
  const int64_t requested = lancelet::baseline::read_ahead(file.bytes, position, size, file.prefetched);
  if (requested < 0) return requested;
  if (file.blocks.size < 3) return 0;
  const int64_t* blocks = file.blocks.data;
  const int64_t wrong = crc32c_verify(file.bytes, position, size, blocks[0], blocks[1], blocks[2],
                                      file.sums, file.verified);
  return wrong > 0 ? fail(kBadStream, wrong) : wrong;
}

int64_t take_planned(const plan::File& file, int64_t rows, Span<const plan::ColumnRows> requests,
                     Bytes out, Span<plan::ColumnOutput> outputs, plan::Taken* taken) {
  using namespace planned;
  if (outputs.size < requests.size) return fail(kBadCount, 0);
  const int64_t all = rows * requests.size;
  constexpr int64_t bytes = sizeof(ValueLocation) + 2 * sizeof(int64_t);
  auto* memory = static_cast<uint8_t*>(malloc(static_cast<size_t>((all + 1) * bytes)));
  if (memory == nullptr) return fail(kNoMemory, 0);
  auto* locations = reinterpret_cast<ValueLocation*>(memory);
  auto* position = reinterpret_cast<int64_t*>(memory + all * sizeof(ValueLocation));
  Output output = {out};
  const int64_t status = take(file, rows, requests, {locations, position, position + all}, &output,
                              outputs.data, taken);
  free(memory);
  return status;
}

}  // namespace LANCELET_NAMESPACE
