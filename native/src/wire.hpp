// Protobuf wire format.
#pragma once

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {

static constexpr int kVarint = 0;
static constexpr int kFixed64 = 1;
static constexpr int kBytes = 2;
static constexpr int kFixed32 = 5;

// A field of a message: field number, wire type, and its value or the size of its content.
struct WireField {
  uint64_t number;
  int wire_type;
  uint64_t value;
};

struct Cursor {
  const uint8_t* at;
  const uint8_t* stop;
  Fault fault;
};

static LANCELET_INLINE bool read_varint(Cursor& cursor, uint64_t& value) {
  if (LANCELET_LIKELY(cursor.at < cursor.stop && *cursor.at < 0x80)) {
    value = *cursor.at++;
    return true;
  }
  value = 0;
  for (int index = 0; index < 10; ++index) {
    if (cursor.at == cursor.stop) {
      cursor.fault = kTooShort;
      return false;
    }
    const uint64_t byte = *cursor.at++;
    value |= (byte & 0x7f) << (7 * index);
    if (byte < 0x80) return true;
  }
  cursor.fault = kBadStream;
  return false;
}

// Reads a tag and its value or size. Returns false on a fault.
static LANCELET_INLINE bool read_field(Cursor& cursor, WireField& field) {
  uint64_t tag;
  if (!read_varint(cursor, tag)) return false;
  field.number = tag >> 3;
  field.wire_type = static_cast<int>(tag & 7);
  field.value = 0;
  if (field.number == 0 || tag >> 32) {
    cursor.fault = kBadStream;
    return false;
  }
  switch (field.wire_type) {
    case kVarint: return read_varint(cursor, field.value);
    case kBytes:
      if (!read_varint(cursor, field.value)) return false;
      break;
    case kFixed64: field.value = 8; break;
    case kFixed32: field.value = 4; break;
    default: cursor.fault = kBadStream; return false;
  }
  if (field.value > static_cast<uint64_t>(cursor.stop - cursor.at)) {
    cursor.fault = kTooShort;
    return false;
  }
  return true;
}

// Returns the end of the field's content. Varints have been read already.
static LANCELET_INLINE const uint8_t* content_end(const Cursor& cursor, const WireField& field) {
  return field.wire_type == kVarint ? cursor.at : cursor.at + field.value;
}

}  // namespace LANCELET_NAMESPACE
