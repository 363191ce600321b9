// Conversion between lists and levels.
//
// Levels are processed in groups of 64: comparisons become bit masks, and only entries that open a
// list are visited one by one. The number of preceding items is a population count.

#if defined(__BMI2__)
#endif
#include <immintrin.h>

#include "levels.hpp"
#include "search.hpp"

namespace LANCELET_NAMESPACE {
namespace {

// Gathers the bits selected by `mask`.
LANCELET_INLINE uint64_t compress(uint64_t bits, uint64_t mask) {
#if defined(__BMI2__)
  return _pext_u64(bits, mask);
#else
  uint64_t out = 0;
  for (int64_t k = 0; mask != 0; ++k, mask &= mask - 1)
    out |= ((bits >> __builtin_ctzll(mask)) & 1) << k;
  return out;
#endif
}

// Appends bits to a bitmap, least significant first.
struct BitWriter {
  Bytes out;
  int64_t written = 0;  // bytes
  uint64_t pending = 0;
  int64_t pending_bits = 0;

  // Appends up to 64 bits. Returns false if the output is full.
  LANCELET_INLINE bool append(uint64_t bits, int64_t count) {
    pending |= bits << pending_bits;
    const int64_t total = pending_bits + count;
    if (total < 64) {
      pending_bits = total;
      return true;
    }
    if (out.size - written < 8) return false;
    store<uint64_t>(out.data + written, pending);
    written += 8;
    pending = pending_bits == 0 ? 0 : bits >> (64 - pending_bits);
    pending_bits = total - 64;
    return true;
  }

  bool finish() {
    for (; pending_bits > 0; pending_bits -= 8, pending >>= 8) {
      if (written == out.size) return false;
      out.data[written++] = static_cast<uint8_t>(pending);
    }
    return true;
  }
};

LANCELET_INLINE uint16_t clamped(int64_t level) {
  return static_cast<uint16_t>(level < 0 ? 0 : level > 0xFFFF ? 0xFFFF : level);
}

}  // namespace

int64_t expand_list(Levels repetition, Levels definition, ConstInts lengths, int64_t continued,
                    Span<uint16_t> out_repetition, Span<uint16_t> out_definition) {
  if (repetition.size != lengths.size || definition.size != lengths.size ||
      out_definition.size != out_repetition.size)
    return fail(kBadCount, 0);
  int64_t at = 0;
  for (int64_t i = 0; i < lengths.size; ++i) {
    const int64_t length = larger<int64_t>(lengths.data[i], 1);
    if (length > out_repetition.size - at) return fail(kOutputFull, i);
    out_repetition.data[at] = repetition.data[i];
    out_definition.data[at] = definition.data[i];
    for (int64_t k = 1; k < length; ++k) {
      out_repetition.data[at + k] = static_cast<uint16_t>(continued);
      out_definition.data[at + k] = 0;
    }
    at += length;
  }
  return at;
}

// Returns the number of lists. Outputs have room for one per entry that opens a list, and `offsets`
// for one more.
int64_t unravel_list(Span<const uint16_t> repetition, Span<const uint16_t> definition,
                     args::ListLevels levels, Ints offsets, Bytes validity,
                     Span<uint16_t> outer_repetition, Span<uint16_t> outer_definition) {
  const int64_t list_level = levels.list_level;
  const int64_t item_max = levels.item_max;
  const int64_t slot_max = levels.slot_max;
  const int64_t empty_level = levels.empty_level;
  const bool has_definition = definition.size > 0;
  if (list_level < 1 || (has_definition && definition.size != repetition.size))
    return fail(kBadCount, 0);
  const uint16_t below = clamped(list_level - 1);
  const uint16_t most = clamped(item_max);
  BitWriter bits{validity};
  int64_t items = 0, lists = 0, opened = 0;
  uint64_t previous_is_item = 0;  // no list is open before the first entry
  for (int64_t start = 0; start < repetition.size; start += kGroup) {
    const int64_t count = smaller(kGroup, repetition.size - start);
    const uint64_t all = low_bits(count);
    uint64_t opens = ~at_most(repetition.data + start, count, below) & all;
    const uint64_t is_item =
        has_definition ? at_most(definition.data + start, count, most) & all : all;
    const uint64_t continues = ~opens & all;
    if (LANCELET_UNLIKELY(continues & ~(is_item & (is_item << 1 | previous_is_item))))
      return fail(kBadLevels, start);
    if (count_bits(opens) > outer_repetition.size - opened) return fail(kOutputFull, start);
    for (; opens != 0; opens &= opens - 1) {
      const int64_t i = __builtin_ctzll(opens);
      outer_repetition.data[opened] = repetition.data[start + i];
      int64_t level = 0;
      if (has_definition) {
        level = definition.data[start + i];
        if (opened >= outer_definition.size) return fail(kOutputFull, start);
        outer_definition.data[opened] = static_cast<uint16_t>(level);
      }
      ++opened;
      if (level > slot_max) continue;
      if (lists >= offsets.size - 1) return fail(kOutputFull, start);
      offsets.data[lists++] = items + count_bits(is_item & low_bits(i));
      if (validity.size > 0 &&
          !bits.append(level <= item_max || (empty_level != 0 && level == empty_level), 1))
        return fail(kOutputFull, start);
    }
    items += count_bits(is_item);
    previous_is_item = is_item >> (kGroup - 1);
  }
  if (lists >= offsets.size || !bits.finish()) return fail(kOutputFull, repetition.size);
  offsets.data[lists] = items;
  return lists;
}

// Returns the number of slots.
int64_t pack_validity(Levels definition, int64_t slot_max, int64_t valid_max, Bytes out) {
  const uint16_t slot = clamped(slot_max), valid = clamped(valid_max);
  BitWriter bits{out};
  int64_t slots = 0;
  for (int64_t start = 0; start < definition.size; start += kGroup) {
    const int64_t count = smaller(kGroup, definition.size - start);
    const uint64_t is_slot = at_most(definition.data + start, count, slot) & low_bits(count);
    const uint64_t is_valid = at_most(definition.data + start, count, valid);
    const int64_t found = count_bits(is_slot);
    if (!bits.append(compress(is_valid, is_slot), found)) return fail(kOutputFull, start);
    slots += found;
  }
  return bits.finish() ? slots : fail(kOutputFull, definition.size);
}

int64_t count_slots(Levels definition, ConstInts counts, int64_t slot_max, Ints out) {
  const uint16_t slot = clamped(slot_max);
  if (out.size != counts.size) return fail(kBadCount, 0);
  int64_t at = 0;
  for (int64_t i = 0; i < counts.size; ++i) {
    const int64_t count = counts.data[i];
    if (count < 0 || count > definition.size - at) return fail(kBadCount, i);
    int64_t slots = 0;
    for (int64_t k = 0; k < count; ++k) slots += definition.data[at + k] <= slot;
    out.data[i] = slots;
    at += count;
  }
  return at;
}

// Returns the number of the ascending entries that have a slot.
int64_t rank_slots(Levels definition, ConstInts entries, int64_t slot_max, Ints out) {
  const uint16_t slot = clamped(slot_max);
  int64_t group = 0, before = 0, found = 0, last = -1;
  uint64_t mask = at_most(definition.data, smaller(kGroup, definition.size), slot);
  for (int64_t i = 0; i < entries.size; ++i) {
    const int64_t entry = entries.data[i];
    if (entry <= last || entry >= definition.size) return fail(kBadIndex, i);
    last = entry;
    for (; group < entry / kGroup; ++group) {
      const int64_t next = (group + 1) * kGroup;
      before += count_bits(mask);
      mask = at_most(definition.data + next, smaller(kGroup, definition.size - next), slot);
    }
    const int64_t bit = entry % kGroup;
    if ((mask >> bit & 1) == 0) continue;
    if (found == out.size) return fail(kOutputFull, i);
    out.data[found++] = before + count_bits(mask & low_bits(bit));
  }
  return found;
}

int64_t unpack_levels(ConstBytes source, ConstInts position, ConstInts size, ConstInts count,
                      int64_t width, Span<uint16_t> out) {
  if (width < 0 || width > kWordBits) return fail(kBadWidth, 0);
  int64_t at = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    const int64_t levels = count.data[i];
    if (levels < 0 || levels > out.size - at) return fail(kOutputFull, i);
    const int64_t status =
        unpack_slice(source, position.data[i], size.data[i], levels, width, i, out.data + at);
    if (status < 0) return status;
    at += levels;
  }
  return at;
}

// Rows of lists: their chunks, and their levels within them.
//
// A chunk is unpacked to scratch memory and processed in groups of 64 levels. A group without
// requested rows costs some comparisons and population counts, which validation needs anyway: the
// chunk must match the rows of its index and the number of its values.
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
int64_t take_row_levels(args::PackedLevels repetition_levels, args::PackedLevels definition_levels,
                        args::ChunkRows wanted, args::LevelLimits limits, args::RowLevels taken) {
  const ConstBytes source = repetition_levels.source;
  const ConstInts repetition_position = repetition_levels.position;
  const ConstInts repetition_size = repetition_levels.size;
  const int64_t repetition_width = repetition_levels.width;
  const ConstBytes definition_source = definition_levels.source;
  const ConstInts definition_position = definition_levels.position;
  const ConstInts definition_size = definition_levels.size;
  const int64_t definition_width = definition_levels.width;
  const ConstInts num_levels = wanted.num_levels;
  const ConstInts counts = wanted.counts;
  const ConstInts chunks = wanted.chunks;
  const ConstInts begun = wanted.begun;
  const ConstInts rows = wanted.rows;
  const int64_t rep_max = limits.rep_max;
  const int64_t def_max = limits.def_max;
  const int64_t slot_max = limits.slot_max;
  const Span<uint16_t> repetition = taken.repetition;
  const Span<uint16_t> definition = taken.definition;
  const Ints slot_chunks = taken.slot_chunks;
  const Ints within_chunk = taken.within_chunk;
  const Bytes validity = taken.validity;
  const Ints slots = taken.slots;
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
