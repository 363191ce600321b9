// A few rows of several columns at once, from the map of a file to buffers of Arrow.
//
//     rows 7 90000   ->  where: chunks, items, spans   ->  asked for, verified   ->  decoded
//
// What pages hold is found by the records of few_rows.hpp, and single values are decoded by the
// kernels that decode many. Anything that is not as it should be is a fault: the caller then reads
// the rows in the general way, which says what is wrong, or knows what is not known here.
#include "few_rows_values.hpp"

namespace LANCELET_NAMESPACE {
namespace few {
namespace {

constexpr int64_t kPlaceWords = 5;  // of the result, for each column

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

int64_t take(const File& file, ConstInts rows, KnownColumns columns, const Wanted& wanted,
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
      if (!within(wanted.position[at], wanted.size[at], file.bytes.size))
        return fail(kOutOfSource, at);
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
}  // namespace few

int64_t take_few(ConstBytes file, ConstInts rows, KnownColumns columns, Bytes known,
                 ConstInts blocks, Span<const uint32_t> sums, Bytes verified, Bytes out,
                 Ints result) {
  using namespace few;
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
