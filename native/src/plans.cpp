// Reads of several columns from a mapped file into Arrow buffers.
//
//     rows 7 90000   ->  pieces: chunks, items   ->  prefetch, verify   ->  decode each piece once
//
// Pages are located by their plans. On any irregularity the column reports a fault, and the caller
// uses the generic reader, which raises the error or supports the feature.
#include "bitpack.hpp"
#include "plan_levels.hpp"
#include "variable.hpp"

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

constexpr int64_t kDense = 64;  // chunks are decoded as a whole for one of this many values
constexpr int64_t kAhead = 8;   // pieces whose first bytes are loaded ahead
constexpr int64_t kInflated = 64;             // decompressed chunks cached for unordered rows,
constexpr int64_t kInflatedBytes = 16 << 20;  // and their size limit

// A decompressed chunk.
struct Inflated {
  const Page* page = nullptr;
  int64_t part = -1;
  ConstBytes values = {nullptr, 0};
  Scratch memory;
};

// The column that is decoded, and where to.
struct Target {
  const Column& column;
  int64_t count;   // of values
  uint8_t* valid;  // a bit per value, 1 unless cleared
  uint8_t* to;     // values or offsets
  int64_t start;   // position of the bytes of strings in the output
  int64_t nulls;

  bool is_long() const { return column.form == kStrings64; }
  LANCELET_INLINE int is_valid(int64_t i) const { return valid[i / 8] >> i % 8 & 1; }
};

struct Reader {
  const File& file;
  const Rows& rows;
  Output* out;
  Inflated inflated[kInflated];
  int64_t next = 0, used = 1;  // cache entry to replace, and number of entries
  int64_t cached_bytes = 0;
  Scratch decoded, levels, indices;
  Chunk chunk;
  bool has_levels = false;  // whether the levels of the open chunk are unpacked
  bool is_plain = true;     // whether its values are decompressed
  bool is_ordered = true;

  Reader(const File& file, const Rows& rows, Output* out) : file(file), rows(rows), out(out) {}
  Reader(const Reader&) = delete;

  LANCELET_INLINE ConstBytes range(int64_t position, int64_t size) const {
    return {file.bytes.data + position, size};
  }

  // --- chunks ---------------------------------------------------------------------------------

  // Opens the chunk of a piece unless it is open.
  int64_t enter(const Piece& piece) {
    if (chunk.page == piece.page && chunk.part == piece.part) return 0;
    has_levels = false;
    is_plain = piece.page->compression == kPlain;
    const int64_t status =
        open_chunk(*piece.page, piece.part, range(piece.position, piece.size), &chunk);
    if (status < 0) chunk.page = nullptr;
    return status;
  }

  // Decompresses the first `wanted` bytes of the values of the open chunk, or all of them. For
  // unordered rows, several chunks are cached.
  int64_t inflate(const Page& page, int64_t part, int64_t wanted) {
    is_plain = true;
    if (is_ordered) {
      // Its other values are not needed, unless it is opened again.
      chunk.page = nullptr;
      return decompress(page.compression, &chunk.values, &inflated[0].memory, wanted);
    }
    for (int64_t i = 0; i < used; ++i)
      if (inflated[i].page == &page && inflated[i].part == part) {
        chunk.values = inflated[i].values;
        return 0;
      }
    Inflated& own = inflated[next];
    own.page = nullptr;
    cached_bytes -= own.memory.size;
    const int64_t status =
        decompress(page.compression, &chunk.values, &own.memory, INT64_MAX);
    cached_bytes += own.memory.size;
    if (status < 0) return status;
    own.page = &page;
    own.part = part;
    own.values = chunk.values;
    const bool is_more = used < kInflated && cached_bytes < kInflatedBytes;
    if (is_more && next + 1 == used) ++used;
    next = (next + 1) % used;
    return 0;
  }

  // Decodes all fixed-width values of the open chunk.
  int64_t decode(const Page& page, Bytes to) {
    const int64_t start = 0, size = chunk.values.size, width = page.bits / 8;
    const ConstInts first = {&start, 1}, sizes = {&size, 1}, count = {&chunk.count, 1};
    switch (chunk.codec) {
      case kInline:
        return unpack_chunks(chunk.values, first, sizes, count, page.bits, to);
      case kSplit:
        if (size != chunk.count * width) return fail(kTooShort, 0);
        return join_bytes_chunks(chunk.values, first, sizes, count, width, to);
      case kRuns:
        return rle_decode_chunks({chunk.values, first, sizes},
                                 {chunk.lengths, first, {&chunk.lengths.size, 1}}, count, width, 1,
                                 to);
      default:
        return fail(kBadWidth, 0);
    }
  }

  // Writes fixed-width values of the open chunk to the start of `to`, which may be larger.
  int64_t fixed_values(const Page& page, const Selected& wanted, Bytes to) {
    const int64_t width = page.bits / 8;
    if (wanted.count > to.size / width) return fail(kOutputFull, 0);
    if (chunk.codec != kFlat) {
      if (wanted.is_all_of(chunk.count)) return smaller<int64_t>(decode(page, to), 0);
      if (chunk.codec == kInline && wanted.count * kDense < chunk.count)
        return pick(page, wanted, to);
      const int64_t bytes = chunk.count * width;
      if (!decoded.reserve(bytes)) return fail(kNoMemory, 0);
      const int64_t status = decode(page, {decoded.data, bytes});
      if (status < 0) return status;
      chunk.values = {decoded.data, bytes};
      chunk.codec = kFlat;
    }
    if (chunk.values.size != chunk.count * width) return fail(kTooShort, 0);
    gather_values(chunk.values.data, wanted, width, to.data);
    return 0;
  }

  // Unpacks a few values.
  int64_t pick(const Page& page, const Selected& wanted, Bytes to) const {
    if (wanted.numbers != nullptr)
      return pick_from_block(chunk.values, page.bits, {wanted.numbers, wanted.count}, wanted.shift,
                             to);
    const int64_t width = page.bits / 8;
    return each_run(wanted, [&](int64_t first, int64_t count) {
      for (int64_t at = first; at < first + count; ++at, to.data += width, to.size -= width) {
        const int64_t status = pick_from_block(chunk.values, page.bits, {&at, 1}, 0, to);
        if (status < 0) return status;
      }
      return int64_t{0};
    });
  }

  // Clears the bits of nulls, by the definition levels of the open chunk.
  int64_t nulls(const Page& page, const Selected& wanted, int64_t at, Target* target) {
    if (chunk.count > kChunkLevelsMax) return fail(kBadCount, 0);
    if (!has_levels) {
      if (!levels.reserve(kChunkLevelsMax * 2)) return fail(kNoMemory, 0);
      auto* const to = reinterpret_cast<uint16_t*>(levels.data);
      const int64_t status = unpack_chunk_levels(chunk.definition, chunk.count, page.def_bits, to);
      if (status < 0) return status;
      int64_t wrong = 0;
      for (int64_t i = 0; i < chunk.count; ++i) wrong += to[i] > 1;
      if (wrong > 0) return fail(kBadLevels, 0);
      has_levels = true;
    }
    const auto* const definition = reinterpret_cast<const uint16_t*>(levels.data);
    return each_run(wanted, [&](int64_t start, int64_t count) {
      for (int64_t i = 0; i < count; i += kGroup) {
        const int64_t group = smaller(kGroup, count - i);
        const uint64_t nulls = count == 1 ? definition[start]
                                          : ~at_most(definition + start + i, group, 0) &
                                                low_bits(group);
        if (nulls != 0) clear_bits(target->valid, at + i, nulls);
        target->nulls += count_bits(nulls);
      }
      at += count;
      return int64_t{0};
    });
  }

  // --- pieces ---------------------------------------------------------------------------------

  // Decodes a piece of chunks. Nulls of nested values are known.
  int64_t values(const Piece& piece, const Run* runs, Target* target) {
    const Page& page = *piece.page;
    int64_t status = enter(piece);
    if (status < 0) return status;
    Selected wanted = {piece.count, 0, nullptr, piece.base, nullptr, 0};
    if (piece.num_runs == 1) {
      wanted.start = runs[piece.first_run].start;
    } else if (piece.num_runs > 0) {
      wanted.runs = runs + piece.first_run;
      wanted.num_runs = piece.num_runs;
    } else if (rows.numbers == nullptr || piece.count == 1) {
      wanted.start = row_at(rows, piece.start) - piece.base;
    } else {
      wanted.numbers = rows.numbers + piece.start;
    }
    if (page.has_definition) status = nulls(page, wanted, piece.start, target);
    if (status < 0) return status;
    const Column& column = target->column;
    if (!is_plain) {
      const Bytes room = room_at(*target, piece.start);
      const int64_t size = chunk.count * column.width;
      const bool is_flat = page.codec == kFlat && page.items.count < 0 && column.form == kFixed;
      if (is_flat && wanted.is_all_of(chunk.count) && size <= room.size - kInflateSlack &&
          inflated_bytes(page.compression, chunk.values) == size)
        return smaller<int64_t>(decompress_to(page.compression, chunk.values, room), 0);
      status = inflate(page, piece.part, is_flat ? wanted.stop() * column.width : INT64_MAX);
      if (status < 0) {
        chunk.page = nullptr;
        return status;
      }
    }
    if (column.form == kBits) return bits(page, wanted, piece.start, target);
    if (page.items.count < 0) {
      if (column.form != kFixed) return strings(page, wanted, piece.start, target);
      if (page.bits != 8 * column.width) return fail(kBadWidth, 0);
      return fixed_values(page, wanted, room_at(*target, piece.start));
    }
    const int64_t width = page.bits / 8;
    if (page.bits < 8 || page.bits > 64) return fail(kBadWidth, 0);
    if (!indices.reserve(wanted.count * width)) return fail(kNoMemory, 0);
    status = fixed_values(page, wanted, {indices.data, wanted.count * width});
    if (status < 0) return status;
    if (column.form != kFixed) return item_strings(page.items, wanted.count, width, piece.start, target);
    if (page.items.width != column.width) return fail(kBadWidth, 0);
    const ConstBytes items = {page.items.values, page.items.count * column.width};
    const ConstBytes found = {indices.data, wanted.count * width};
    status = lookup_fixed(items, column.width, found, width, room_at(*target, piece.start));
    if (status >= 0 || target->nulls == 0) return smaller<int64_t>(status, 0);
    // Indices under nulls are arbitrary.
    for (int64_t i = 0; i < wanted.count; ++i)
      if (!target->is_valid(piece.start + i))
        memset(indices.data + i * width, 0, static_cast<size_t>(width));
    status = lookup_fixed(items, column.width, found, width, room_at(*target, piece.start));
    return smaller<int64_t>(status, 0);
  }

  // Returns the rest of the output from value `at` on. Kernels write large outputs differently from
  // small ones, so it includes the room for other columns.
  Bytes room_at(const Target& target, int64_t at) const {
    uint8_t* const to = target.to + at * target.column.width;
    return {to, out->bytes.data + out->bytes.size - to};
  }

  int64_t bits(const Page& page, const Selected& wanted, int64_t at, Target* target) {
    if (page.bits != 1 || page.codec != kFlat || page.items.count >= 0) return fail(kBadWidth, 0);
    if (chunk.values.size != (chunk.count + 7) / 8) return fail(kTooShort, 0);
    return each_run(wanted, [&](int64_t start, int64_t count) {
      copy_bits(chunk.values.data, start, count, target->to, at);
      at += count;
      return int64_t{0};
    });
  }

  // --- strings --------------------------------------------------------------------------------

  LANCELET_INLINE void put_offset(const Target& target, int64_t i, int64_t offset) const {
    if (target.is_long()) store<int64_t>(target.to + 8 * i, offset);
    else store<int32_t>(target.to + 4 * i, static_cast<int32_t>(offset));
  }

  // Appends bytes, of which `readable` can be read, and the end of value `at`.
  LANCELET_INLINE int64_t append(ConstBytes found, int64_t readable, int64_t at,
                                 const Target& target) {
    if (found.size > out->room()) return fail(kOutputFull, 0);
    copy_ahead(out->bytes.data + out->end, out->room(), found.data, readable, found.size);
    out->end += found.size;
    put_offset(target, at + 1, out->end - target.start);
    return 0;
  }

  // Validates the end of the strings so far, and the characters of the last `count` values.
  int64_t check_strings(int64_t at, int64_t count, bool is_checked, const Target& target) const {
    const int64_t end = out->end - target.start;
    if (!target.is_long() && end > INT32_MAX) return fail(kTooLarge, 0);
    if (is_checked || !target.column.is_text) return 0;
    const int64_t width = target.is_long() ? 8 : 4;
    const uint8_t* const own = target.to + at * width;
    const int64_t first = number_at(own, width);
    const uint8_t* const bytes = out->bytes.data + target.start + first;
    const bool is_text = target.is_long() ? are_utf8<int64_t>(bytes, end - first, own, count)
                                          : are_utf8<int32_t>(bytes, end - first, own, count);
    return is_text ? 0 : fail(kBadCode, 0);
  }

  int64_t strings(const Page& page, const Selected& wanted, int64_t at, Target* target) {
    if (page.codec != kVariable && page.codec != kFsst) return fail(kBadWidth, 0);
    const int64_t status = page.bits == 32 ? strings_of<uint32_t>(page, wanted, at, target)
                                           : strings_of<uint64_t>(page, wanted, at, target);
    return status < 0 ? status : check_strings(at, wanted.count, false, *target);
  }

  template <class Stored>
  int64_t strings_of(const Page& page, const Selected& wanted, int64_t at, Target* target) {
    constexpr int64_t width = sizeof(Stored);
    const ConstBytes data = chunk.values;
    if (chunk.count >= data.size / width) return fail(kTooShort, 0);
    const auto low = static_cast<uint64_t>((chunk.count + 1) * width);
    const auto high = static_cast<uint64_t>(data.size);
    return each_run(wanted, [&](int64_t start, int64_t count) {
      const uint8_t* const own = data.data + start * width;
      const uint64_t from = load<Stored>(own), to = load<Stored>(own + count * width);
      if (from < low || to < from || to > high) return fail(kBadOffsets, 0);
      if (page.codec == kFsst) return decode_codes<Stored>(page, own, data, at, count, &at, *target);
      if (count == 1)
        return append({data.data + from, static_cast<int64_t>(to - from)},
                      data.size - static_cast<int64_t>(from), at++, *target);
      if (!in_order<Stored>(own, count)) return fail(kBadOffsets, 0);
      const int64_t size = static_cast<int64_t>(to - from);
      if (size > out->room()) return fail(kOutputFull, 0);
      const int64_t shift = out->end - target->start - static_cast<int64_t>(from);
      memcpy(out->bytes.data + out->end, data.data + from, static_cast<size_t>(size));
      out->end += size;
      if (target->is_long())
        for (int64_t i = 1; i <= count; ++i)
          store<int64_t>(target->to + 8 * (at + i),
                         static_cast<int64_t>(load<Stored>(own + i * width)) + shift);
      else
        for (int64_t i = 1; i <= count; ++i)
          store<int32_t>(target->to + 4 * (at + i),
                         static_cast<int32_t>(static_cast<int64_t>(load<Stored>(own + i * width)) +
                                              shift));
      at += count;
      return int64_t{0};
    });
  }

  // Decodes consecutive strings of symbols.
  template <class Stored>
  int64_t decode_codes(const Page& page, const uint8_t* own, ConstBytes data, int64_t at,
                       int64_t count, int64_t* next_value, const Target& target) {
    const int64_t width = target.is_long() ? 8 : 4;
    int64_t progress[4] = {0, 0, at, out->end - target.start};
    const int64_t status = fsst_decode_rows(
        {{own, (count + 1) * static_cast<int64_t>(sizeof(Stored))}, sizeof(Stored), data},
        {page.symbols.symbols, kCodes}, {page.symbols.lengths, kCodes}, width,
        {target.to, (target.count + 1) * width},
        {out->bytes.data + target.start, out->bytes.size - target.start}, {progress, 4});
    if (status > 0) return fail(kOutputFull, 0);
    if (status < 0) return status;
    out->end = target.start + progress[3];
    *next_value = at + count;
    return 0;
  }

  // Appends items of a dictionary, whose offsets and characters are valid.
  int64_t item_strings(const Items& items, int64_t count, int64_t width, int64_t at,
                       Target* target) {
    if (items.offsets == nullptr) return fail(kBadWidth, 0);
    int64_t status = 0;
    switch (width) {
      case 1: status = append_items<uint8_t>(items, count, at, *target); break;
      case 2: status = append_items<uint16_t>(items, count, at, *target); break;
      case 4: status = append_items<uint32_t>(items, count, at, *target); break;
      default: status = append_items<uint64_t>(items, count, at, *target);
    }
    return status < 0 ? status : check_strings(at, count, true, *target);
  }

  // Copies whole slots, without a check per value. Returns false if an index is out of bounds.
  template <class Index, class Offset, int64_t kWidth>
  bool copy_slots(const Items& items, int64_t count, int64_t at, const Target& target) {
    Index most = 0;
    for (int64_t i = 0; i < count; ++i)
      most = larger(most, load<Index>(indices.data + i * sizeof(Index)));
    if (static_cast<uint64_t>(most) >= static_cast<uint64_t>(items.count)) return false;
    const bool has_nulls = target.nulls > 0;
    uint8_t* const to = out->bytes.data + target.start;
    int64_t end = out->end - target.start;
    for (int64_t i = 0; i < count; ++i) {
      const auto index = static_cast<int64_t>(load<Index>(indices.data + i * sizeof(Index)));
      memcpy(to + end, items.slots + index * kSlot, kWidth);
      end += has_nulls ? items.sizes[index] & -target.is_valid(at + i) : items.sizes[index];
      store(target.to + (at + i + 1) * static_cast<int64_t>(sizeof(Offset)),
            static_cast<Offset>(end));
    }
    out->end = end + target.start;
    return true;
  }

  template <class Index>
  bool copy_slots(const Items& items, int64_t count, int64_t at, const Target& target) {
    if (items.slots == nullptr || count * items.longest + kSlot > out->room()) return false;
    if (target.is_long()) return copy_slots<Index, int64_t, kSlot>(items, count, at, target);
    return items.longest <= kSlot / 2
               ? copy_slots<Index, int32_t, kSlot / 2>(items, count, at, target)
               : copy_slots<Index, int32_t, kSlot>(items, count, at, target);
  }

  template <class Index>
  int64_t append_items(const Items& items, int64_t count, int64_t at, const Target& target) {
    if (copy_slots<Index>(items, count, at, target)) return 0;
    const bool has_nulls = target.nulls > 0;
    int64_t end = out->end;
    for (int64_t i = 0; i < count; ++i) {
      if (!has_nulls || target.is_valid(at + i)) {
        const uint64_t index = load<Index>(indices.data + i * sizeof(Index));
        if (index >= static_cast<uint64_t>(items.count)) return fail(kBadIndex, i);
        const int64_t start = items.offsets[index], size = items.offsets[index + 1] - start;
        if (size > out->bytes.size - end) return fail(kOutputFull, i);
        copy_ahead(out->bytes.data + end, out->bytes.size - end, items.bytes + start,
                   items.num_bytes - start, size);
        end += size;
      }
      put_offset(target, at + i + 1, end - target.start);
    }
    out->end = end;
    return 0;
  }

  // --- other layouts --------------------------------------------------------------------------

  int64_t items(const Piece& piece, Target* target) {
    const Page& page = *piece.page;
    const int64_t width = target->column.width;
    if (target->column.form != kFixed || page.item_bytes != page.has_definition + width)
      return fail(kBadWidth, 0);
    const uint8_t* from = file.bytes.data + piece.position;
    const Bytes to = room_at(*target, piece.start);
    if (!page.has_definition) {
      memcpy(to.data, from, static_cast<size_t>(piece.count * width));
      return 0;
    }
    for (int64_t i = 0; i < piece.count; ++i, from += page.item_bytes) {
      if (*from & 1) null(piece.start + i, target);
      memcpy(to.data + i * width, from + 1, static_cast<size_t>(width));
    }
    return 0;
  }

  static void null(int64_t at, Target* target) {
    ++target->nulls;
    clear_bits(target->valid, at, 1);
  }

  int64_t zipped_strings(const Piece& piece, Target* target) {
    const Page& page = *piece.page;
    if (target->column.form < kStrings32) return fail(kBadWidth, 0);
    const int64_t width = page.index_width, head = page.has_definition + page.length_bytes;
    const uint8_t* index = file.bytes.data + page.index_position + piece.part * width;
    const int64_t first = number_at(index, width);
    for (int64_t i = 0; i < piece.count; ++i, index += width) {
      const int64_t start = number_at(index, width) - first;
      const int64_t size = number_at(index + width, width) - first - start;
      if (!within(start, size, piece.size)) return fail(kBadOffsets, i);
      const uint8_t* const row = file.bytes.data + piece.position + start;
      const int64_t at = piece.start + i;
      ConstBytes found = {row, 0};
      if (page.has_definition && size > 0 && (*row & 1)) {
        if (size != 1) return fail(kBadLength, i);
        null(at, target);
      } else {
        if (size < head) return fail(kTooShort, i);
        found = {row + head, number_at(row + page.has_definition, page.length_bytes)};
        if (found.size != size - head) return fail(kBadLength, i);
      }
      const int64_t status = page.symbols.symbols == nullptr || found.size == 0
                                 ? append(found, found.size, at, *target)
                                 : append_codes(page, found, at, *target);
      if (status < 0) return status;
    }
    return check_strings(piece.start, piece.count, false, *target);
  }

  int64_t append_codes(const Page& page, ConstBytes found, int64_t at, const Target& target) {
    const int64_t bounds[2] = {0, found.size};
    int64_t ignored = 0;
    return decode_codes<uint64_t>(page, reinterpret_cast<const uint8_t*>(bounds), found, at, 1,
                                  &ignored, target);
  }

  // Repeats the value of a page, or nulls.
  int64_t constant(const Piece& piece, Target* target) {
    const Page& page = *piece.page;
    const Column& column = target->column;
    const bool is_string = column.form >= kStrings32;
    const int64_t start = piece.start, stop = piece.start + piece.count;
    if (page.value == nullptr) {
      for (int64_t i = start; i < stop; ++i) null(i, target);
    } else if (!is_string && page.size != (column.form == kBits ? 1 : column.width)) {
      return fail(kBadWidth, 0);
    }
    if (column.form == kBits) {
      for (int64_t i = start; page.value != nullptr && *page.value != 0 && i < stop; ++i)
        target->to[i / 8] = static_cast<uint8_t>(target->to[i / 8] | 1 << i % 8);
    } else if (!is_string) {
      for (int64_t i = start; i < stop; ++i) {
        uint8_t* const to = target->to + i * column.width;
        if (page.value == nullptr) memset(to, 0, static_cast<size_t>(column.width));
        else memcpy(to, page.value, static_cast<size_t>(column.width));
      }
    } else {
      for (int64_t i = start; i < stop; ++i) {
        const int64_t status = append({page.value, page.size}, page.size, i, *target);
        if (status < 0) return status;
      }
      return check_strings(start, piece.count, false, *target);
    }
    return 0;
  }

  // --- columns --------------------------------------------------------------------------------

  // Allocates the output of `count` values.
  int64_t allocate(const Column& column, int64_t count, Target* target) {
    const bool is_string = column.form == kStrings32 || column.form == kStrings64;
    const int64_t width = column.form == kStrings32 ? 4 : is_string ? 8 : column.width;
    int64_t size = count / 8 + 9;
    const int64_t validity = out->take(size);
    if (column.form != kBits && !item_position(0, count + is_string, width, &size))
      return fail(kTooLarge, 0);
    const int64_t values = out->take(size);
    target->start = out->take(0);
    if (validity < 0 || values < 0 || target->start < 0) return fail(kOutputFull, 0);
    target->valid = out->bytes.data + validity;
    target->to = out->bytes.data + values;
    memset(target->valid, 0xFF, static_cast<size_t>(count / 8 + 9));
    if (column.form == kBits) memset(target->to, 0, static_cast<size_t>(size));
    if (is_string) memset(target->to, 0, static_cast<size_t>(width));
    return 0;
  }

  int64_t pieces(Span<const Piece> all, const Run* runs, Target* target) {
    is_ordered = true;
    for (int64_t i = 1; i < all.size; ++i)
      is_ordered &= all.data[i - 1].position <= all.data[i].position;
    for (int64_t i = 0; i < all.size; ++i) {
      const Piece& piece = all.data[i];
      prefetch(file.bytes.data + all.data[smaller(i + kAhead, all.size - 1)].position);
      int64_t status = 0;
      switch (piece.page->layout) {
        case kChunks: status = values(piece, runs, target); break;
        case kItems: status = items(piece, target); break;
        case kZippedStrings: status = zipped_strings(piece, target); break;
        default: status = constant(piece, target);
      }
      if (status < 0) return status;
    }
    return 0;
  }

  // Decodes a column; `output` receives the null count and buffer positions.
  int64_t column(const Column& column, Span<const Piece> all, ColumnOutput* output) {
    if (column.layers > 1) return nested(column, all, output);
    Target target = {column, rows.count, nullptr, nullptr, 0, 0};
    int64_t status = allocate(column, rows.count, &target);
    if (status == 0) status = pieces(all, nullptr, &target);
    if (status == 0) *output = output_of(target);
    return status;
  }

  ColumnOutput output_of(const Target& target) const {
    const bool is_string = target.column.form >= kStrings32;
    return {0,
            target.nulls,
            target.valid - out->bytes.data,
            target.to - out->bytes.data,
            target.start,
            is_string ? out->end - target.start : 0,
            target.count,
            -1};
  }

  // Decodes a nested column: values and enclosing layers.
  int64_t nested(const Column& column, Span<const Piece> all, ColumnOutput* output) {
    Entries entries;
    SingleList list;
    if (all.size > 0 && all.data[0].page->nesting != nullptr) {
      const int64_t status = list.begin(column, *all.data[0].page->nesting, rows.count, out);
      if (status < 0) return status;
    }
    LevelReader levels(file, rows, &entries, list.layer > 0 ? SingleList::add : nullptr, &list);
    const Nesting* nesting = nullptr;
    for (int64_t i = 0; i < all.size; ++i) {
      const Nesting* const own = all.data[i].page->nesting;
      // Pages with different level definitions are left to the generic reader.
      if (own == nullptr || (nesting != nullptr && !is_same(*own, *nesting)))
        return fail(kBadLevels, i);
      nesting = own;
      const int64_t status = levels.piece(all.data[i]);
      if (status < 0) return status;
    }
    if (nesting == nullptr) return fail(kBadLevels, 0);
    Target target = {column, entries.values, nullptr, nullptr, 0, 0};
    int64_t status = allocate(column, entries.values, &target);
    if (status < 0) return status;
    const Layer& item = nesting->each[0];
    if (item.null_def > 0 && nesting->def_bits > 0) {
      status = pack_validity({entries.definition.data, entries.count}, item.slot_def_max,
                             item.null_def - 1, {target.valid, entries.values / 8 + 9});
      if (status != entries.values) return fail(kBadLength, 0);
      target.nulls = entries.values - count_ones(target.valid, entries.values);
    }
    status = pieces({entries.pieces.data, entries.pieces.count}, entries.runs.data, &target);
    if (status < 0) return status;
    *output = output_of(target);
    if (list.layer > 0) return list.finish(*nesting, rows.count, out, output);
    return put_layers(column, *nesting, rows.count, entries, out, output);
  }
};

// Finds the byte ranges of pieces. Adjacent pieces of a range of rows are one range.
struct RangeOf {
  bool is_joined;
  int64_t range, end = -1;

  RangeOf(const Rows& rows, int64_t first) : is_joined(rows.numbers == nullptr), range(first - 1) {}

  // Returns whether a piece begins a new range.
  bool next(const Piece& piece) {
    const bool is_new = !is_joined || piece.position != end;
    range += is_new;
    end = piece.position + piece.size;
    return is_new;
  }
};

// The pieces of columns, and the byte ranges that they need.
struct Found {
  Grown<Piece> pieces;
  Grown<int64_t> bounds, first_range;  // of each column
  Grown<int64_t> position, size;

  int64_t find(const File& file, const Rows& rows, Span<const ColumnRows> requests,
               ColumnOutput* outputs) {
    for (int64_t c = 0; c < requests.size; ++c) {
      const int64_t before = pieces.count;
      int64_t status = find_pieces(file, requests.data[c], rows, &pieces);
      if (status < 0) pieces.count = before;
      if (outputs != nullptr) outputs[c] = {status, 0, 0, 0, 0, 0, 0, -1};
      if (!bounds.add(before) || !first_range.add(size.count)) return fail(kNoMemory, 0);
      RangeOf range(rows, size.count);
      for (int64_t i = before; i < pieces.count; ++i) {
        const Piece& piece = pieces.data[i];
        if (piece.size == 0) continue;
        if (!range.next(piece)) size.data[size.count - 1] += piece.size;
        else if (!position.add(piece.position) || !size.add(piece.size)) return fail(kNoMemory, 0);
      }
    }
    return bounds.add(pieces.count) ? 0 : fail(kNoMemory, 0);
  }

  Span<const Piece> of(int64_t column) const {
    const int64_t first = bounds.data[column];
    return {pieces.data + first, bounds.data[column + 1] - first};
  }

  // Moves pieces to the fetched bytes, which must be those of the ranges.
  int64_t move_to(const File& file, const Rows& rows) {
    const Fetched& fetched = *file.fetched;
    if (fetched.position.size != size.count || fetched.size.size != size.count ||
        fetched.source.size != size.count)
      return fail(kBadCount, 0);
    for (int64_t i = 0; i < size.count; ++i)
      if (fetched.position.data[i] != position.data[i] || fetched.size.data[i] != size.data[i] ||
          !within(fetched.source.data[i], size.data[i], file.bytes.size))
        return fail(kOutOfSource, i);
    for (int64_t c = 0; c + 1 < bounds.count; ++c) {
      RangeOf range(rows, first_range.data[c]);
      for (int64_t i = bounds.data[c]; i < bounds.data[c + 1]; ++i) {
        Piece& piece = pieces.data[i];
        if (piece.size == 0) continue;
        range.next(piece);
        piece.shift = fetched.source.data[range.range] - fetched.position.data[range.range];
        piece.position += piece.shift;
      }
    }
    return 0;
  }
};

int64_t take(const File& file, const Rows& rows, Span<const ColumnRows> requests, Output* out,
             ColumnOutput* outputs, Taken* taken) {
  Found found;
  int64_t status = found.find(file, rows, requests, outputs);
  if (status < 0) return status;
  taken->ranges += found.size.count;
  for (int64_t i = 0; i < found.size.count; ++i) taken->bytes += found.size.data[i];
  status = file.fetched != nullptr
               ? found.move_to(file, rows)
               : prepare_ranges(file, {found.position.data, found.position.count},
                                {found.size.data, found.size.count});
  if (status < 0) return status;
  Reader reader(file, rows, out);
  for (int64_t c = 0; c < requests.size; ++c) {
    if (outputs[c].fault < 0) continue;
    const int64_t before = out->end;
    const int64_t decoded = reader.column(*requests.data[c].column, found.of(c), &outputs[c]);
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

int64_t planned_ranges(const plan::File& file, const plan::Rows& rows,
                       Span<const plan::ColumnRows> requests, plan::Ranges* ranges) {
  planned::Found found;
  const int64_t status = found.find(file, rows, requests, nullptr);
  if (status < 0) return status;
  *ranges = {found.position.release(), found.size.release(), found.size.count};
  return 0;
}

int64_t take_planned(const plan::File& file, const plan::Rows& rows,
                     Span<const plan::ColumnRows> requests, Bytes out,
                     Span<plan::ColumnOutput> outputs, plan::Taken* taken) {
  using namespace planned;
  if (outputs.size < requests.size || rows.count < 1) return fail(kBadCount, 0);
  Output output = {out};
  return take(file, rows, requests, &output, outputs.data, taken);
}

}  // namespace LANCELET_NAMESPACE
