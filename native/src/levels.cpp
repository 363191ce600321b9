// Conversion between lists and levels.
//
// Levels are processed in groups of 64: comparisons become bit masks, and only entries that open a
// list are visited one by one. The number of preceding items is a population count.
#include "levels.hpp"

#if defined(__BMI2__)
#include <immintrin.h>
#endif

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

}  // namespace LANCELET_NAMESPACE
