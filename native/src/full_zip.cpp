// Full-zip encoding and decoding; lancelet/kernels/reference/full_zip.py shows the layout.
//
// Decoding reads the items twice: to count them, since their number is not stored, and to copy
// them. Values are large, so counting is cheap.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

struct Shape {
  int64_t control_bytes;
  uint32_t def_mask;
  uint32_t visible_max;
  int64_t value_bytes;   // for fixed-width values
  int64_t length_bytes;  // 0, 4 or 8: width of the length before variable-width values
};

Shape shape_of(int64_t control_bytes, int64_t bits_def, int64_t visible_max, int64_t value_bytes,
               int64_t length_bytes) {
  return {control_bytes, (1u << bits_def) - 1, static_cast<uint32_t>(visible_max), value_bytes,
          length_bytes};
}

struct Item {
  uint32_t control;
  bool visible;
  const uint8_t* value;
  int64_t size;  // of the value only
};

LANCELET_INLINE uint32_t read_control(const uint8_t* at, int64_t bytes) {
  switch (bytes) {
    case 0: return 0;
    case 1: return *at;
    case 2: return load<uint16_t>(at);
    default: return load<uint32_t>(at);
  }
}

LANCELET_INLINE void write_control(uint8_t* at, int64_t bytes, uint32_t control) {
  switch (bytes) {
    case 0: break;
    case 1: *at = static_cast<uint8_t>(control); break;
    case 2: store<uint16_t>(at, static_cast<uint16_t>(control)); break;
    default: store<uint32_t>(at, control);
  }
}

// Reads the item at `at` and returns the start of the next one, or null if it is truncated.
LANCELET_INLINE const uint8_t* read_item(const Shape& shape, const uint8_t* at, const uint8_t* end,
                                         Item* item) {
  if (end - at < shape.control_bytes) return nullptr;
  item->control = read_control(at, shape.control_bytes);
  at += shape.control_bytes;
  const uint32_t definition = item->control & shape.def_mask;
  item->visible = definition <= shape.visible_max;
  item->size = 0;
  if (shape.length_bytes == 0) {
    if (item->visible) item->size = shape.value_bytes;
  } else if (definition == 0) {
    if (end - at < shape.length_bytes) return nullptr;
    const uint64_t size = shape.length_bytes == 4 ? load<uint32_t>(at) : load<uint64_t>(at);
    at += shape.length_bytes;
    if (size > static_cast<uint64_t>(end - at)) return nullptr;
    item->size = static_cast<int64_t>(size);
  }
  if (end - at < item->size) return nullptr;
  item->value = at;
  return at + item->size;
}

template <class Arrow>
int64_t unzip(const Shape& shape, ConstBytes source, ConstInts position, ConstInts size,
              int64_t bits_rep, int64_t bits_def, Span<uint16_t> rep, Span<uint16_t> definition,
              Bytes out_offsets, Bytes out) {
  int64_t items = 0, visible = 0, written = 0;
  const bool variable = shape.length_bytes > 0;
  const int64_t slots =
      variable ? out_offsets.size / static_cast<int64_t>(sizeof(Arrow)) - 1 : INT64_MAX;
  if (slots < 0) return fail(kOutputFull, 0);
  if (variable) store<Arrow>(out_offsets.data, 0);
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const uint8_t* at = source.data + position.data[i];
    const uint8_t* const end = at + size.data[i];
    Item item = {};
    for (; at < end; ++items) {
      at = read_item(shape, at, end, &item);
      if (at == nullptr) return fail(kTooShort, i);
      if (bits_rep > 0) {
        if (items >= rep.size) return fail(kOutputFull, i);
        rep.data[items] =
            static_cast<uint16_t>(item.control >> bits_def & ((1u << bits_rep) - 1));
      }
      if (bits_def > 0) {
        if (items >= definition.size) return fail(kOutputFull, i);
        definition.data[items] = static_cast<uint16_t>(item.control & shape.def_mask);
      }
      if (!item.visible) continue;
      if (item.size > out.size - written || visible >= slots) return fail(kOutputFull, i);
      if (item.size > 0) memcpy(out.data + written, item.value, item.size);
      written += item.size;
      ++visible;
      if (variable)
        store<Arrow>(out_offsets.data + visible * sizeof(Arrow), static_cast<Arrow>(written));
    }
  }
  return written;
}

template <class Offset>
int64_t zip(const Shape& shape, Span<const uint32_t> control, ConstBytes offsets, ConstBytes data,
            Ints starts, Bytes out) {
  const bool variable = shape.length_bytes > 0;
  const int64_t slots =
      variable ? offsets.size / static_cast<int64_t>(sizeof(Offset)) - 1
               : data.size / larger<int64_t>(shape.value_bytes, 1);
  int64_t slot = 0, at = 0;
  if (starts.size <= control.size) return fail(kOutputFull, 0);
  for (int64_t i = 0; i < control.size; ++i) {
    starts.data[i] = at;
    const uint32_t definition = control.data[i] & shape.def_mask;
    const bool visible = definition <= shape.visible_max;
    if (visible && slot >= slots) return fail(kBadCount, i);
    int64_t from = 0, bytes = 0, length_bytes = 0;
    if (!variable && visible) {
      from = slot * shape.value_bytes;
      bytes = shape.value_bytes;
    } else if (variable && definition == 0) {
      from = load<Offset>(offsets.data + slot * sizeof(Offset));
      bytes = load<Offset>(offsets.data + (slot + 1) * sizeof(Offset)) - from;
      length_bytes = shape.length_bytes;
      if (!within(from, bytes, data.size)) return fail(kBadOffsets, i);
      if (length_bytes == 4 && bytes > UINT32_MAX) return fail(kTooLarge, i);
    }
    if (shape.control_bytes + length_bytes + bytes > out.size - at) return fail(kOutputFull, i);
    uint8_t* to = out.data + at;
    write_control(to, shape.control_bytes, control.data[i]);
    to += shape.control_bytes;
    if (length_bytes == 4) store<uint32_t>(to, static_cast<uint32_t>(bytes));
    if (length_bytes == 8) store<uint64_t>(to, static_cast<uint64_t>(bytes));
    if (bytes > 0) memcpy(to + length_bytes, data.data + from, bytes);
    at += shape.control_bytes + length_bytes + bytes;
    slot += visible;
  }
  starts.data[control.size] = at;
  return at;
}

}  // namespace

int64_t unzip_count(args::Slices pages, int64_t control_bytes, int64_t bits_def,
                    int64_t visible_max, int64_t value_bytes, int64_t length_bytes, Ints items,
                    Ints totals) {
  const ConstBytes source = pages.source;
  const ConstInts position = pages.position;
  const ConstInts size = pages.size;
  const Shape shape = shape_of(control_bytes, bits_def, visible_max, value_bytes, length_bytes);
  if (control_bytes + value_bytes + length_bytes <= 0) return fail(kBadWidth, 0);
  int64_t visible = 0, bytes = 0, all = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const uint8_t* at = source.data + position.data[i];
    const uint8_t* const end = at + size.data[i];
    Item item = {};
    int64_t found = 0;
    for (; at < end; ++found) {
      at = read_item(shape, at, end, &item);
      if (at == nullptr) return fail(kTooShort, i);
      visible += item.visible;
      bytes += item.visible ? item.size : 0;
    }
    items.data[i] = found;
    all += found;
  }
  totals.data[0] = all;
  totals.data[1] = visible;
  totals.data[2] = bytes;
  return 0;
}

int64_t unzip_items(args::Slices pages, args::ControlWords layout, Span<uint16_t> rep,
                    Span<uint16_t> definition, int64_t out_bytes, Bytes out_offsets, Bytes out) {
  const ConstBytes source = pages.source;
  const ConstInts position = pages.position;
  const ConstInts size = pages.size;
  const int64_t control_bytes = layout.control_bytes;
  const int64_t bits_rep = layout.bits_rep;
  const int64_t bits_def = layout.bits_def;
  const int64_t visible_max = layout.visible_max;
  const int64_t value_bytes = layout.value_bytes;
  const int64_t length_bytes = layout.length_bytes;
  const Shape shape = shape_of(control_bytes, bits_def, visible_max, value_bytes, length_bytes);
  if (control_bytes + value_bytes + length_bytes <= 0) return fail(kBadWidth, 0);
  const auto work = out_bytes == 4 ? unzip<uint32_t> : unzip<uint64_t>;
  return work(shape, source, position, size, bits_rep, bits_def, rep, definition, out_offsets,
              out);
}

int64_t zip_fixed(Span<const uint32_t> control, int64_t control_bytes, int64_t bits_def,
                  int64_t visible_max, ConstBytes values, int64_t value_bytes, Ints starts,
                  Bytes out) {
  const Shape shape = shape_of(control_bytes, bits_def, visible_max, value_bytes, 0);
  return zip<int64_t>(shape, control, {nullptr, 0}, values, starts, out);
}

int64_t zip_variable(Span<const uint32_t> control, int64_t control_bytes, int64_t bits_def,
                     int64_t visible_max, args::Strings values, int64_t length_bytes, Ints starts,
                     Bytes out) {
  const ConstBytes offsets = values.offsets;
  const int64_t offset_bytes = values.offset_bytes;
  const ConstBytes data = values.data;
  const Shape shape = shape_of(control_bytes, bits_def, visible_max, 0, length_bytes);
  return offset_bytes == 4 ? zip<int32_t>(shape, control, offsets, data, starts, out)
                           : zip<int64_t>(shape, control, offsets, data, starts, out);
}

}  // namespace LANCELET_NAMESPACE
