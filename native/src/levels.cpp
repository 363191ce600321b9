// Conversion between lists and levels.
//
// Levels are processed in groups of 64: comparisons become bit masks, and only entries that open a
// list are visited one by one. The number of preceding items is a population count.
#include "levels.hpp"

namespace LANCELET_NAMESPACE {

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

int64_t unravel_list(Span<const uint16_t> repetition, Span<const uint16_t> definition,
                     args::ListLevels levels, Ints offsets, Bytes validity,
                     Span<uint16_t> outer_repetition, Span<uint16_t> outer_definition) {
  return unravel(repetition, definition, levels, offsets, validity, outer_repetition,
                 outer_definition);
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
