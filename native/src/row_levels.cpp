// Rows of lists: their chunks, and their levels within them.
//
// A chunk is unpacked to scratch memory and processed in groups of 64 levels. A group without
// requested rows costs some comparisons and population counts, which validation needs anyway: the
// chunk must match the rows of its index and the number of its values.
#include "levels.hpp"
#include "search.hpp"

namespace LANCELET_NAMESPACE {
namespace {

// The requested rows and the current position.
struct Walk {
  ConstInts rows;
  int64_t next = 0;  // index of the next requested row
  int64_t entries = 0, slots = 0;

  // Skips rows before `row`; returns whether [row, last] contains a requested row.
  LANCELET_INLINE bool contains(int64_t row, int64_t last) {
    while (next < rows.size && rows.data[next] < row) ++next;
    return next < rows.size && rows.data[next] <= last;
  }
};

LANCELET_INLINE void set_bit(Bytes bits, int64_t at, bool value) {
  if (at % 8 == 0) bits.data[at / 8] = 0;
  bits.data[at / 8] |= static_cast<uint8_t>(value << at % 8);
}

}  // namespace

// Returns the number of chunks that hold any of the ascending rows.
int64_t chunks_of_rows(ConstInts begun, ConstInts ended, ConstInts rows, Ints chunks) {
  const int64_t last_chunk = begun.size - 2;
  if (rows.size == 0) return 0;
  if (ended.size != begun.size || last_chunk < 0) return fail(kBadIndex, 0);
  int64_t found = 0, first = 0, last = 0, next = 0;
  for (int64_t i = 0; i < rows.size; ++i) {
    const int64_t row = rows.data[i];
    if (row < begun.data[0] || row < ended.data[0] || row >= ended.data[last_chunk + 1] ||
        (i > 0 && row <= rows.data[i - 1]))
      return fail(kBadIndex, i);
    first = part_of(begun, first, row);
    last = part_of(ended, last, row);
    if (first > last_chunk || last > last_chunk) return fail(kBadIndex, i);
    for (int64_t chunk = larger(first, next); chunk <= last; ++chunk) {
      if (found == chunks.size) return fail(kOutputFull, i);
      chunks.data[found++] = chunk;
    }
    next = larger(next, last + 1);
  }
  return found;
}

// Returns the number of entries of the rows; slots[0] receives the number of value slots.
int64_t take_row_levels(ConstBytes source, ConstInts num_levels, ConstInts repetition_position,
                        ConstInts repetition_size, int64_t repetition_width,
                        ConstBytes definition_source, ConstInts definition_position,
                        ConstInts definition_size,
                        int64_t definition_width, ConstInts counts, ConstInts chunks,
                        ConstInts begun, ConstInts rows, int64_t rep_max, int64_t def_max,
                        int64_t slot_max, Span<uint16_t> repetition, Span<uint16_t> definition,
                        Ints slot_chunks, Ints within_chunk, Bytes validity, Ints slots) {
  const int64_t count = chunks.size;
  const bool has_definition = definition_width >= 0;
  if (num_levels.size != count || repetition_position.size != count ||
      repetition_size.size != count || counts.size != count || slots.size != 1 ||
      (has_definition && (definition_position.size != count || definition_size.size != count)))
    return fail(kBadCount, 0);
  if (repetition_width < 0 || repetition_width > kWordBits || definition_width > kWordBits ||
      rep_max < 1 || rep_max > UINT16_MAX || def_max < 0 || def_max > UINT16_MAX ||
      slot_max < 0 || slot_max > UINT16_MAX)
    return fail(kBadWidth, 0);
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    // Chunk headers store 16 bits.
    if (num_levels.data[i] < 0 || num_levels.data[i] > UINT16_MAX) return fail(kBadCount, i);
    most = larger(most, num_levels.data[i]);
  }
  auto* scratch = static_cast<uint16_t*>(malloc(2 * (most + 1) * sizeof(uint16_t)));
  if (scratch == nullptr) return fail(kNoMemory, 0);
  uint16_t* rep = scratch;
  uint16_t* def = scratch + most + 1;
  const auto row_max = static_cast<uint16_t>(rep_max);
  const auto inner_max = static_cast<uint16_t>(rep_max - 1);
  Walk walk{rows};
  int64_t status = 0;
  for (int64_t i = 0; i < count && status == 0; ++i) {
    const int64_t levels = num_levels.data[i], chunk = chunks.data[i];
    if (chunk < 0 || chunk >= begun.size - 1) {
      status = fail(kBadIndex, i);
      break;
    }
    status = unpack_slice(source, repetition_position.data[i], repetition_size.data[i], levels,
                          repetition_width, i, rep);
    if (status == 0 && has_definition)
      status = unpack_slice(definition_source, definition_position.data[i], definition_size.data[i],
                            levels, definition_width, i, def);
    // Entries before the first start continue the previous row.
    int64_t row = begun.data[chunk] - 1, slot = 0;
    for (int64_t start = 0; start < levels && status == 0; start += kGroup) {
      const int64_t group = smaller(kGroup, levels - start);
      const uint64_t all = low_bits(group);
      const uint64_t starts = ~at_most(rep + start, group, inner_max) & all;
      uint64_t is_slot = all, in_range = at_most(rep + start, group, row_max);
      if (has_definition) {
        is_slot &= at_most(def + start, group, static_cast<uint16_t>(slot_max));
        in_range &= at_most(def + start, group, static_cast<uint16_t>(def_max));
      }
      if (LANCELET_UNLIKELY((in_range & all) != all)) {
        status = fail(kBadLevels, i);
        break;
      }
      const int64_t last = row + count_bits(starts);
      if (walk.contains(row, last)) {
        for (int64_t k = 0; k < group; ++k) {
          row += starts >> k & 1;
          if (!walk.contains(row, row)) continue;
          if (walk.entries == repetition.size ||
              (has_definition && walk.entries == definition.size)) {
            status = fail(kOutputFull, i);
            break;
          }
          repetition.data[walk.entries] = rep[start + k];
          if (has_definition) definition.data[walk.entries] = def[start + k];
          ++walk.entries;
          if ((is_slot >> k & 1) == 0) continue;
          if (walk.slots == slot_chunks.size || walk.slots == within_chunk.size ||
              (validity.size > 0 && walk.slots / 8 >= validity.size)) {
            status = fail(kOutputFull, i);
            break;
          }
          slot_chunks.data[walk.slots] = i;
          within_chunk.data[walk.slots] = slot + count_bits(is_slot & low_bits(k));
          if (validity.size > 0)
            set_bit(validity, walk.slots, !has_definition || def[start + k] == 0);
          ++walk.slots;
        }
      }
      row = last;
      slot += count_bits(is_slot);
    }
    if (status == 0 && (row + 1 != begun.data[chunk + 1] || slot != counts.data[i]))
      status = fail(kBadLength, i);
  }
  free(scratch);
  slots.data[0] = walk.slots;
  return status < 0 ? status : walk.entries;
}

}  // namespace LANCELET_NAMESPACE
