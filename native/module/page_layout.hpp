// Parses page messages into layouts that `take_planned` can read.
//
// Messages that no supported writer produces (a duplicate field, an unexpected codec) are rejected
// and left to the generic reader.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "inflate.hpp"
#include "plan.hpp"
#include "search.hpp"
#include "wire.hpp"

namespace lancelet::columns {

using baseline::Cursor;
using baseline::kBytes;
using baseline::kVarint;
using baseline::WireField;

struct Message {
  const uint8_t* at = nullptr;
  const uint8_t* stop = nullptr;
  int64_t size() const { return stop - at; }
};

// Calls `visit` for each field; returns false for malformed or rejected fields.
template <class Visit>
bool each_field(Message message, Visit&& visit) {
  Cursor cursor{message.at, message.stop, kTooShort};
  WireField field;
  while (cursor.at < cursor.stop) {
    if (!baseline::read_field(cursor, field)) return false;
    const uint8_t* const end = baseline::content_end(cursor, field);
    if (!visit(field, Message{cursor.at, end})) return false;
    cursor.at = end;
  }
  return true;
}

// The fields of a message with numbers below 16, each at most once.
struct Fields {
  static constexpr int kMost = 16;
  int wire[kMost];
  uint64_t number[kMost];
  Message part[kMost];

  bool parse(Message message) {
    for (int& each : wire) each = -1;
    return each_field(message, [&](const WireField& field, Message content) {
      if (field.number >= kMost) return true;
      if (wire[field.number] >= 0) return false;
      wire[field.number] = field.wire_type;
      number[field.number] = field.value;
      part[field.number] = content;
      return true;
    });
  }

  bool is_present(int field) const { return wire[field] >= 0; }
  bool has(int field, int wire_type) const { return wire[field] == wire_type; }

  // Reads a number, 0 if absent.
  bool number_at(int field, uint64_t* out) const {
    *out = is_present(field) ? number[field] : 0;
    return !is_present(field) || wire[field] == kVarint;
  }

  // Appends packed numbers; rejects numbers of more than 63 bits.
  bool packed_at(int field, std::vector<int64_t>* out) const {
    if (!is_present(field)) return true;
    if (wire[field] != kBytes) return false;
    Cursor cursor{part[field].at, part[field].stop, kTooShort};
    while (cursor.at < cursor.stop) {
      uint64_t value;
      if (!baseline::read_varint(cursor, value) || value >> 63) return false;
      out->push_back(static_cast<int64_t>(value));
    }
    return true;
  }
};

// The Arrow representation of a column; see plan.hpp.
struct Form {
  int64_t kind;
  int64_t width;
  int64_t is_text;
  int64_t path;   // a bit per layer from the values outwards, set for lists, and a final 1
  int64_t large;  // a bit per layer, set for lists with 64-bit offsets
  int64_t layers() const {
    int64_t count = 0;
    while (path >> (count + 1) > 0) ++count;
    return count;
  }
  bool is_strings() const { return kind == plan::kStrings32 || kind == plan::kStrings64; }
};

// An encoding of values. `bits` is the width of a value or an offset.
struct Coding {
  int64_t compression = plan::kPlain;
  int64_t codec = plan::kFlat;
  int64_t bits = 0;
  Message symbols;

  int64_t num_buffers() const { return codec == plan::kRuns ? 2 : 1; }
  bool is_strings() const { return codec == plan::kVariable || codec == plan::kFsst; }

  // Returns whether decoded values have the representation of the form.
  bool fits(const Form& form) const {
    if (form.is_strings() || is_strings()) return form.is_strings() && is_strings();
    if (form.kind == plan::kBits) return codec == plan::kFlat && bits == 1;
    return bits == 8 * form.width;
  }
};

// A parsed page message.
struct PageLayout {
  plan::Page page;
  Message symbols;
  Message value;
  bool has_value = false;
  bool has_value_buffer = false;
  bool has_items = false;
  bool has_rows = false;  // whether the page has a repetition index
  plan::Nesting nesting;
  int64_t num_items = 0;
  Coding items;
};

constexpr uint64_t kFlatBitsMax = 1 << 24;
constexpr int kNestedMax = 8;
constexpr uint64_t kValuesMax = uint64_t{1} << 48;

inline bool is_word(int64_t bits) { return bits == 8 || bits == 16 || bits == 32 || bits == 64; }

// Returns the width of flat values, or 0 for other encodings.
inline int64_t flat_bits(Message encoding) {
  Fields fields, flat;
  uint64_t bits = 0;
  if (!fields.parse(encoding) || !fields.has(1, kBytes) || !flat.parse(fields.part[1])) return 0;
  for (int other = 2; other < Fields::kMost; ++other)
    if (fields.is_present(other)) return 0;
  if (!flat.number_at(1, &bits) || flat.is_present(2)) return 0;
  return bits <= kFlatBitsMax && (bits == 1 || bits % 8 == 0) ? static_cast<int64_t>(bits) : 0;
}

// Returns the width of the offsets of plain strings, or 0.
inline int64_t offset_bits(const Fields& variable) {
  const int64_t bits = variable.has(1, kBytes) && !variable.is_present(2) ? flat_bits(variable.part[1]) : 0;
  return bits == 32 || bits == 64 ? bits : 0;
}

// Parses an encoding message, whose only field is its kind. Returns false if unsupported.
inline bool parse_coding(Message encoding, Coding* out, int depth = 0) {
  Fields outer, own;
  if (depth > kNestedMax || !outer.parse(encoding)) return false;
  int kind = 0;
  for (int each = 1; each < Fields::kMost; ++each) {
    if (!outer.is_present(each)) continue;
    if (kind || !outer.has(each, kBytes)) return false;
    kind = each;
  }
  if (!kind || !own.parse(outer.part[kind])) return false;
  switch (kind) {
    case 1:
      *out = {out->compression, plan::kFlat, flat_bits(encoding), {}};
      return out->bits > 0;
    case 2:
      *out = {out->compression, plan::kVariable, offset_bits(own), {}};
      return out->bits > 0;
    case 5: {
      uint64_t bits = 0;
      if (!own.number_at(1, &bits) || own.is_present(2) || bits > 64) return false;
      *out = {out->compression, plan::kInline, static_cast<int64_t>(bits), {}};
      return is_word(out->bits);
    }
    case 6: {
      Fields inner, variable;
      if (!own.has(1, kBytes) || !own.has(2, kBytes) || !inner.parse(own.part[2]) ||
          !inner.has(2, kBytes) || !variable.parse(inner.part[2]))
        return false;
      for (int other = 1; other < Fields::kMost; ++other)
        if (other != 2 && inner.is_present(other)) return false;
      *out = {out->compression, plan::kFsst, offset_bits(variable), own.part[1]};
      return out->bits > 0;
    }
    case 8:
      if (!own.has(1, kBytes) || !own.has(2, kBytes) || flat_bits(own.part[2]) != 8) return false;
      *out = {out->compression, plan::kRuns, flat_bits(own.part[1]), {}};
      return is_word(out->bits);
    case 9:
      if (!own.has(1, kBytes)) return false;
      *out = {out->compression, plan::kSplit, flat_bits(own.part[1]), {}};
      return out->bits == 32 || out->bits == 64;
    case 10: {
      Fields compression;
      uint64_t scheme = 0;
      if (depth || !own.has(1, kBytes) || !own.has(3, kBytes) ||
          !compression.parse(own.part[1]) || !compression.number_at(1, &scheme) ||
          (scheme != plan::kLz4 && scheme != plan::kZstd))
        return false;
      out->compression = static_cast<int64_t>(scheme);
      return parse_coding(own.part[3], out, depth + 1);
    }
    case 11: {
      uint64_t items = 0, has_validity = 0;
      if (!own.number_at(1, &items) || !own.number_at(3, &has_validity) || has_validity ||
          !own.has(2, kBytes) || items == 0 || items > kFlatBitsMax)
        return false;
      Coding inner;
      if (!parse_coding(own.part[2], &inner, depth + 1) || inner.codec != plan::kFlat ||
          inner.compression != plan::kPlain || inner.bits % 8)
        return false;
      *out = {out->compression, plan::kFlat, inner.bits * static_cast<int64_t>(items), {}};
      return out->bits <= INT32_MAX;
    }
    default:
      return false;
  }
}

// Returns whether a page has a single layer of values, nullable if it has definition levels.
inline bool is_optional(const Fields& layout, int field, bool has_definition) {
  std::vector<int64_t> layers;
  if (layout.has(field, kVarint)) layers.push_back(static_cast<int64_t>(layout.number[field]));
  else if (!layout.packed_at(field, &layers)) return false;
  constexpr int64_t all_valid = 1, nullable = 3;
  return layers.size() == 1 &&
         (layers[0] == nullable || (layers[0] == all_valid && !has_definition));
}

// Returns the width of bit-packed levels, `kLevelRuns`, or 0.
inline int64_t level_bits(Message encoding) {
  Fields fields, packed;
  uint64_t bits = 0;
  Coding runs;
  if (parse_coding(encoding, &runs) && runs.codec == plan::kRuns && runs.bits == 16 &&
      runs.compression == plan::kPlain)
    return plan::kLevelRuns;
  if (!fields.parse(encoding) || !fields.has(4, kBytes) || !packed.parse(fields.part[4])) return 0;
  for (int other = 1; other < Fields::kMost; ++other)
    if (other != 4 && fields.is_present(other)) return 0;
  if (!packed.number_at(1, &bits) || bits != 16 || !packed.has(3, kBytes)) return 0;
  Fields width, flat;
  uint64_t found = 0;
  if (!width.parse(packed.part[3]) || !width.has(1, kBytes) || !flat.parse(width.part[1]) ||
      !flat.number_at(1, &found) || flat.is_present(2) || found > 16)
    return 0;
  return static_cast<int64_t>(found);
}

// Parses the layers of a page, which must match the path, and the level encodings.
inline bool parse_nesting(const Fields& fields, const Form& form, uint64_t depth,
                          plan::Nesting* out) {
  std::vector<int64_t> kinds;
  if (fields.has(6, kVarint)) kinds.push_back(static_cast<int64_t>(fields.number[6]));
  else if (!fields.packed_at(6, &kinds)) return false;
  out->layers = form.layers();
  if (static_cast<int64_t>(kinds.size()) != out->layers || out->layers > plan::kLayersMax)
    return false;
  int64_t level = 0;
  for (int64_t i = 0; i < out->layers; ++i) {
    const int64_t kind = kinds[static_cast<size_t>(i)];
    if (kind < 1 || kind > 6) return false;
    plan::Layer& layer = out->each[i];
    layer = {kind != 1 && kind != 3, 0, 0, level, 0};
    if (kind == 3 || kind == 4 || kind == 6) layer.null_def = ++level;
    if (kind == 5 || kind == 6) layer.empty_def = ++level;
    out->rep_max += layer.is_list;
    if (layer.is_list != (form.path >> i & 1)) return false;
  }
  out->def_max = level;
  for (int64_t i = out->layers - 1; i >= 0; --i) {
    out->each[i].slot_def_max = level;
    if (out->each[i].is_list) level = out->each[i].inner_def_max;
  }
  const bool has_lists = out->rep_max > 0;
  if (fields.is_present(1) != has_lists || depth != static_cast<uint64_t>(has_lists)) return false;
  out->rep_bits = has_lists && fields.has(1, kBytes) ? level_bits(fields.part[1]) : 0;
  out->def_bits = fields.has(2, kBytes) ? level_bits(fields.part[2]) : 0;
  return (out->rep_bits > 0) == has_lists && (out->def_bits > 0) == fields.is_present(2);
}

inline bool parse_chunks(const Fields& fields, const Form& form, size_t buffers, PageLayout* out) {
  uint64_t num_items = 0, num_buffers = 0, depth = 0, values = 0, is_large = 0;
  if (!fields.has(3, kBytes) || !fields.number_at(5, &num_items) ||
      !fields.number_at(7, &num_buffers) || !fields.number_at(8, &depth) ||
      !fields.number_at(9, &values) || !fields.number_at(10, &is_large))
    return false;
  plan::Page& page = out->page;
  if (form.layers() > 1) {
    if (!parse_nesting(fields, form, depth, &out->nesting)) return false;
    out->has_rows = depth > 0;
  } else {
    page.has_definition = fields.is_present(2);
    if (fields.is_present(1) || depth || !is_optional(fields, 6, page.has_definition)) return false;
    if (page.has_definition && !fields.has(2, kBytes)) return false;
    page.def_bits = page.has_definition ? level_bits(fields.part[2]) : 0;
    if (page.has_definition && page.def_bits != 1 && page.def_bits != plan::kLevelRuns)
      return false;
  }
  Coding coding;
  if (!parse_coding(fields.part[3], &coding) ||
      num_buffers != static_cast<uint64_t>(coding.num_buffers()) || values > kValuesMax ||
      (!out->has_rows && values != static_cast<uint64_t>(page.rows)))
    return false;
  page.values = static_cast<int64_t>(values);
  out->has_items = fields.is_present(4);
  if (out->has_items) {
    if (!fields.has(4, kBytes) || !parse_coding(fields.part[4], &out->items) ||
        coding.is_strings() || !is_word(coding.bits) || num_items > INT32_MAX)
      return false;
    const Coding& items = out->items;
    const bool is_supported = form.is_strings()
                              ? items.codec == plan::kVariable
                              : (items.codec == plan::kFlat || items.codec == plan::kInline) &&
                                    form.kind == plan::kFixed && items.bits == 8 * form.width;
    if (!is_supported) return false;
    out->num_items = static_cast<int64_t>(num_items);
  } else if (!coding.fits(form)) {
    return false;
  }
  if (buffers < 2 + static_cast<size_t>(out->has_items + out->has_rows)) return false;
  page.layout = plan::kChunks;
  page.compression = coding.compression;
  page.codec = coding.codec;
  page.bits = coding.bits;
  page.size_bytes = is_large ? 4 : 2;
  out->symbols = coding.symbols;
  return true;
}

inline bool parse_items(const Fields& fields, const Form& form,
                        const std::vector<int64_t>& position, const std::vector<int64_t>& size,
                        PageLayout* out) {
  uint64_t repetition = 0, definition = 0, value_bits = 0, length_bits = 0;
  if (!fields.number_at(1, &repetition) || repetition || !fields.number_at(2, &definition) ||
      definition > 1 || !fields.number_at(3, &value_bits) || !fields.number_at(4, &length_bits) ||
      fields.is_present(3) == fields.is_present(4) || !fields.has(7, kBytes))
    return false;
  plan::Page& page = out->page;
  page.has_definition = definition > 0;
  Coding coding;
  if (!is_optional(fields, 8, page.has_definition) || !parse_coding(fields.part[7], &coding) ||
      coding.compression != plan::kPlain || !coding.fits(form))
    return false;
  page.codec = coding.codec;
  out->symbols = coding.symbols;
  if (!form.is_strings()) {
    if (form.kind != plan::kFixed || position.empty() ||
        value_bits != static_cast<uint64_t>(coding.bits))
      return false;
    page.layout = plan::kItems;
    page.position = position[0];
    page.item_bytes = page.has_definition + form.width;
    return page.item_bytes > 0 && page.rows <= size[0] / page.item_bytes;
  }
  const int64_t entries = page.rows + 1;
  if (position.size() < 2 || (length_bits != 32 && length_bits != 64) || size[1] % entries)
    return false;
  page.layout = plan::kZippedStrings;
  page.position = position[0];
  page.size = size[0];
  page.index_position = position[1];
  page.index_width = size[1] / entries;
  page.length_bytes = static_cast<int64_t>(length_bits / 8);
  return page.index_width <= 8 && is_word(8 * page.index_width);
}

inline bool parse_constant(const Fields& fields, const Form& form,
                           const std::vector<int64_t>& size, PageLayout* out) {
  uint64_t repetitions = 0, definitions = 0;
  // A string has its own buffer; other buffers hold levels.
  out->has_value_buffer = form.is_strings() && !size.empty() && size[0] > 0;
  for (size_t i = out->has_value_buffer; i < size.size(); ++i)
    if (size[i]) return false;
  if (!is_optional(fields, 5, false) || !fields.number_at(9, &repetitions) || repetitions ||
      !fields.number_at(10, &definitions) || definitions)
    return false;
  out->has_value = fields.is_present(6);
  if (out->has_value) {
    const bool is_bit = form.kind == plan::kBits;
    const int64_t width = is_bit ? 1 : form.width;
    if (!fields.has(6, kBytes) || (form.kind != plan::kFixed && !is_bit) || width == 0 ||
        fields.part[6].size() != width)
      return false;
    out->value = fields.part[6];
  } else if ((size.size() == 1 || size.size() == 3) != out->has_value_buffer) {
    return false;
  }
  out->page.layout = plan::kConstant;
  return true;
}

// Parses the protobuf Any of a page of `rows` rows. Returns false if unsupported.
inline bool parse_page(Message envelope, const Form& form, int64_t rows,
                       const std::vector<int64_t>& position, const std::vector<int64_t>& size,
                       PageLayout* out) {
  static constexpr char kUrl[] = "/lance.encodings21.PageLayout";
  Fields any_message, layout, fields;
  PageLayout found;
  found.page.rows = rows;
  if (!any_message.parse(envelope) || !any_message.has(1, kBytes) || !any_message.has(2, kBytes) ||
      any_message.part[1].size() != sizeof kUrl - 1 ||
      memcmp(any_message.part[1].at, kUrl, sizeof kUrl - 1) != 0 || !layout.parse(any_message.part[2]))
    return false;
  int kind = 0;
  for (int each = 1; each < Fields::kMost; ++each) {
    if (!layout.is_present(each)) continue;
    if (kind || !layout.has(each, kBytes)) return false;
    kind = each;
  }
  if (!kind || !fields.parse(layout.part[kind])) return false;
  const bool is_supported = kind == 1   ? parse_chunks(fields, form, position.size(), &found)
                        : form.layers() > 1 ? false
                        : kind == 2 ? parse_constant(fields, form, size, &found)
                        : kind == 3 ? parse_items(fields, form, position, size, &found)
                                    : false;
  if (is_supported) *out = found;
  return is_supported;
}

}  // namespace lancelet::columns
