// Columnar protobuf decoding: skips fields that were not requested.
#include "wire.hpp"

namespace LANCELET_NAMESPACE {
namespace {

struct Paths {
  ConstInts pairs;
  int64_t stride;  // number of messages
  uint64_t* values;
  uint8_t* present;
};

LANCELET_INLINE void store_value(const Paths& paths, int64_t path, int64_t message, uint64_t value) {
  paths.values[path * paths.stride + message] = value;
  paths.present[path * paths.stride + message] = 1;
}

// Reads the requested numbers of the embedded message `outer`.
bool read_embedded(Cursor cursor, const Paths& paths, uint64_t outer, int64_t message,
                   Fault& fault) {
  WireField field;
  while (cursor.at < cursor.stop) {
    if (!read_field(cursor, field)) {
      fault = cursor.fault;
      return false;
    }
    if (field.wire_type == kVarint)
      for (int64_t i = 0; i < paths.pairs.size / 2; ++i)
        if (static_cast<uint64_t>(paths.pairs.data[2 * i]) == outer &&
            static_cast<uint64_t>(paths.pairs.data[2 * i + 1]) == field.number)
          store_value(paths, i, message, field.value);
    cursor.at = content_end(cursor, field);
  }
  return true;
}

bool read_message(Cursor& cursor, const Paths& paths, int64_t message) {
  WireField field;
  while (cursor.at < cursor.stop) {
    if (!read_field(cursor, field)) return false;
    bool embedded = false;
    for (int64_t i = 0; i < paths.pairs.size / 2; ++i) {
      const uint64_t outer = static_cast<uint64_t>(paths.pairs.data[2 * i]);
      const uint64_t inner = static_cast<uint64_t>(paths.pairs.data[2 * i + 1]);
      if (field.wire_type == kVarint && outer == 0 && inner == field.number) {
        store_value(paths, i, message, field.value);
      } else if (field.wire_type == kBytes && outer == field.number) {
        if (inner == 0)
          store_value(paths, i, message, field.value);
        else
          embedded = true;
      }
    }
    if (embedded) {
      const Cursor part{cursor.at, cursor.at + field.value, kTooShort};
      if (!read_embedded(part, paths, field.number, message, cursor.fault)) return false;
    }
    cursor.at = content_end(cursor, field);
  }
  return true;
}

LANCELET_INLINE int64_t varint_bytes(uint64_t value) {
  int64_t bytes = 1;
  for (; value > 0x7f; value >>= 7) ++bytes;
  return bytes;
}

LANCELET_INLINE uint8_t* write_varint(uint8_t* out, uint64_t value) {
  for (; value > 0x7f; value >>= 7) *out++ = static_cast<uint8_t>(value | 0x80);
  *out++ = static_cast<uint8_t>(value);
  return out;
}

LANCELET_INLINE uint8_t* write_number(uint8_t* out, uint8_t tag, uint64_t value) {
  if (value == 0) return out;
  *out++ = tag;
  return write_varint(out, value);
}

LANCELET_INLINE int64_t packed_bytes(const int64_t* numbers, int64_t count) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < count; ++i) bytes += varint_bytes(static_cast<uint64_t>(numbers[i]));
  return bytes;
}

LANCELET_INLINE uint8_t* write_packed(uint8_t* out, uint8_t tag, const int64_t* numbers,
                                      int64_t count, int64_t bytes) {
  if (count == 0) return out;
  *out++ = tag;
  out = write_varint(out, static_cast<uint64_t>(bytes));
  for (int64_t i = 0; i < count; ++i) out = write_varint(out, static_cast<uint64_t>(numbers[i]));
  return out;
}

}  // namespace

int64_t count_parts(ConstBytes message, int64_t field) {
  Cursor cursor{message.data, message.data + message.size, kTooShort};
  int64_t count = 0;
  WireField found;
  while (cursor.at < cursor.stop) {
    const int64_t head = cursor.at - message.data;
    if (!read_field(cursor, found)) return fail(cursor.fault, head);
    count += found.wire_type == kBytes && found.number == static_cast<uint64_t>(field);
    cursor.at = content_end(cursor, found);
  }
  return count;
}

int64_t find_parts(ConstBytes message, int64_t field, Ints head, Ints position, Ints size) {
  Cursor cursor{message.data, message.data + message.size, kTooShort};
  int64_t count = 0;
  WireField found;
  while (cursor.at < cursor.stop) {
    const int64_t start = cursor.at - message.data;
    if (!read_field(cursor, found)) return fail(cursor.fault, start);
    if (found.wire_type == kBytes && found.number == static_cast<uint64_t>(field)) {
      if (count >= head.size || count >= position.size || count >= size.size)
        return fail(kOutputFull, start);
      head.data[count] = start;
      position.data[count] = cursor.at - message.data;
      size.data[count] = static_cast<int64_t>(found.value);
      ++count;
    }
    cursor.at = content_end(cursor, found);
  }
  return count;
}

int64_t find_parts_in(ConstBytes source, ConstInts position, ConstInts size, int64_t field_number,
                      Ints owner, Ints part_position, Ints part_size) {
  // With empty outputs, only counts.
  const bool counts_only = owner.size == 0;
  int64_t count = 0;
  WireField field;
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const uint8_t* start = source.data + position.data[i];
    Cursor cursor{start, start + size.data[i], kTooShort};
    while (cursor.at < cursor.stop) {
      if (!read_field(cursor, field)) return fail(cursor.fault, i);
      if (field.wire_type == kBytes && field.number == static_cast<uint64_t>(field_number)) {
        if (!counts_only) {
          if (count >= owner.size || count >= part_position.size || count >= part_size.size)
            return fail(kOutputFull, i);
          owner.data[count] = i;
          part_position.data[count] = cursor.at - source.data;
          part_size.data[count] = static_cast<int64_t>(field.value);
        }
        ++count;
      }
      cursor.at = content_end(cursor, field);
    }
  }
  return count;
}

int64_t read_packed(ConstBytes source, ConstInts position, ConstInts size, Ints counts,
                    Span<uint64_t> values) {
  if (counts.size < position.size) return fail(kOutputFull, 0);
  int64_t total = 0;
  for (int64_t i = 0; i < position.size; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const uint8_t* start = source.data + position.data[i];
    Cursor cursor{start, start + size.data[i], kTooShort};
    const int64_t before = total;
    while (cursor.at < cursor.stop) {
      if (total >= values.size) return fail(kOutputFull, i);
      if (!read_varint(cursor, values.data[total])) return fail(cursor.fault, i);
      ++total;
    }
    counts.data[i] = total - before;
  }
  return total;
}

int64_t read_varints(ConstBytes source, ConstInts position, ConstInts size, ConstInts paths,
                     Span<uint64_t> values, Bytes present) {
  const int64_t messages = position.size;
  if (messages && (paths.size / 2 > values.size / messages || paths.size / 2 > present.size / messages))
    return fail(kOutputFull, 0);
  memset(values.data, 0, values.size * sizeof(uint64_t));
  memset(present.data, 0, present.size);
  const Paths output{paths, messages, values.data, present.data};
  for (int64_t i = 0; i < messages; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
    const uint8_t* start = source.data + position.data[i];
    Cursor cursor{start, start + size.data[i], kTooShort};
    if (!read_message(cursor, output, i)) return fail(cursor.fault, i);
  }
  return 0;
}

int64_t join_pages(args::Slices heads, ConstInts edges, ConstInts column_heads, ConstInts numbers,
                   args::PageBuffers buffers, Bytes out, Ints ends) {
  const ConstBytes source = heads.source;
  const ConstInts head_position = heads.position;
  const ConstInts head_size = heads.size;
  const ConstInts bounds = buffers.bounds;
  const ConstInts position = buffers.position;
  const ConstInts size = buffers.size;
  const int64_t columns = column_heads.size, pages = bounds.size - 1;
  if (pages < 0 || edges.size != columns + 1 || ends.size < columns) return fail(kOutputFull, 0);
  if (numbers.size < 3 * pages || size.size < position.size || head_size.size < head_position.size)
    return fail(kBadCount, 0);
  const int64_t* page_heads = numbers.data;
  const int64_t* length = page_heads + pages;
  const int64_t* priority = length + pages;
  uint8_t* at = out.data;
  for (int64_t column = 0; column < columns; ++column) {
    const int64_t first = edges.data[column], stop = edges.data[column + 1];
    if (first < 0 || stop < first || stop > pages) return fail(kBadOffsets, column);
    for (int64_t page = first - 1; page < stop; ++page) {
      // The column encoding precedes the pages.
      const bool is_column = page < first;
      const int64_t kind = is_column ? column_heads.data[column] : page_heads[page];
      if (kind < 0 || kind >= head_position.size) return fail(kBadIndex, column);
      const int64_t from = head_position.data[kind], head = head_size.data[kind];
      if (!within(from, head, source.size)) return fail(kOutOfSource, column);
      const int64_t buffer = is_column ? 0 : bounds.data[page];
      const int64_t count = is_column ? 0 : bounds.data[page + 1] - buffer;
      if (count < 0 || !within(buffer, count, position.size)) return fail(kBadOffsets, column);
      // Upper bound: ten bytes per number, two per tag or size.
      if (out.data + out.size - at < head + 20 * count + 80) return fail(kOutputFull, column);
      if (is_column) {
        *at++ = 0x0a;
        at = write_varint(at, static_cast<uint64_t>(head));
        memcpy(at, source.data + from, head);
        at += head;
        continue;
      }
      const int64_t position_bytes = packed_bytes(position.data + buffer, count);
      const int64_t size_bytes = packed_bytes(size.data + buffer, count);
      uint8_t body[48];
      uint8_t* end = write_number(body, 0x18, static_cast<uint64_t>(length[page]));
      *end++ = 0x22;
      end = write_varint(end, static_cast<uint64_t>(head));
      uint8_t tail[16];
      uint8_t* tail_end = write_number(tail, 0x28, static_cast<uint64_t>(priority[page]));
      int64_t bytes = (end - body) + head + (tail_end - tail);
      if (count > 0)
        bytes += 2 + varint_bytes(static_cast<uint64_t>(position_bytes)) + position_bytes +
                 varint_bytes(static_cast<uint64_t>(size_bytes)) + size_bytes;
      *at++ = 0x12;
      at = write_varint(at, static_cast<uint64_t>(bytes));
      at = write_packed(at, 0x0a, position.data + buffer, count, position_bytes);
      at = write_packed(at, 0x12, size.data + buffer, count, size_bytes);
      memcpy(at, body, end - body);
      at += end - body;
      memcpy(at, source.data + from, head);
      at += head;
      memcpy(at, tail, tail_end - tail);
      at += tail_end - tail;
    }
    ends.data[column] = at - out.data;
  }
  return at - out.data;
}

}  // namespace LANCELET_NAMESPACE
