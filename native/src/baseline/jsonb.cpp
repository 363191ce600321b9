// Conversion of JSON documents between text and binary form; lancelet/kernels/reference/jsonb.py
// defines the binary form. A malformed document is a fault with its index.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr uint32_t kArray = 0x80000000u;
constexpr uint32_t kObject = 0x40000000u;
constexpr uint32_t kScalar = 0x20000000u;
constexpr uint32_t kKinds = 0xE0000000u;
constexpr uint32_t kBytesMax = (1u << 28) - 1;
constexpr int kDepthMax = 200;

enum Kind : uint32_t { kNull, kString, kNumber, kFalse, kTrue, kContainer };
enum Tag : uint8_t {
  kZero = 0x00,
  kNan = 0x10,
  kPlusInfinity = 0x20,
  kMinusInfinity = 0x30,
  kSigned = 0x40,
  kUnsigned = 0x50,
  kDouble = 0x60,
};

using Buffer = std::vector<uint8_t>;

void put_big_endian(Buffer& out, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    out.push_back(static_cast<uint8_t>(value >> shift));
}

uint64_t big_endian(const uint8_t* from, int64_t bytes) {
  uint64_t value = 0;
  for (int64_t index = 0; index < bytes; ++index) value = value << 8 | from[index];
  return value;
}

// Returns the smallest width of 1, 2, 4 or 8 bytes for a number of bits.
int width_of(int bits) { return bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : 8; }

int bit_length(uint64_t value) {
  int bits = 0;
  for (; value; value >>= 1) ++bits;
  return bits;
}

// --- text to binary ---------------------------------------------------------------------------

struct Member {
  size_t key;
  size_t key_bytes;
  size_t payload;
  size_t payload_bytes;
  uint32_t entry;
};

// Parses one document. Payloads are appended to `out`; the header of a container is inserted in
// front of them after its parts are parsed.
class Encoder {
 public:
  Buffer out;

  bool document(const uint8_t* start, const uint8_t* stop) {
    at_ = start;
    stop_ = stop;
    out.clear();
    keys_.clear();
    entries_.clear();
    members_.clear();
    skip_space();
    uint32_t entry;
    if (!value(entry, 0)) return false;
    skip_space();
    if (at_ != stop_) return false;
    if (entry >> 28 == kContainer) return true;
    composed_.clear();
    put_big_endian(composed_, kScalar, 4);
    put_big_endian(composed_, entry, 4);
    out.insert(out.begin(), composed_.begin(), composed_.end());
    return true;
  }

 private:
  const uint8_t* at_ = nullptr;
  const uint8_t* stop_ = nullptr;
  Buffer keys_;
  Buffer composed_;
  std::vector<uint32_t> entries_;
  std::vector<Member> members_;

  void skip_space() {
    while (at_ < stop_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  bool take(uint8_t expected) {
    if (at_ == stop_ || *at_ != expected) return false;
    ++at_;
    return true;
  }

  bool word(const char* rest, int64_t size) {
    if (stop_ - at_ < size || memcmp(at_, rest, size) != 0) return false;
    at_ += size;
    return true;
  }

  bool value(uint32_t& entry, int depth) {
    if (at_ == stop_) return false;
    const size_t start = out.size();
    Kind kind;
    switch (*at_) {
      case '{': kind = kContainer; if (!object(depth)) return false; break;
      case '[': kind = kContainer; if (!array(depth)) return false; break;
      case '"': kind = kString; if (!string(out)) return false; break;
      case 'n': kind = kNull; if (!word("null", 4)) return false; break;
      case 'f': kind = kFalse; if (!word("false", 5)) return false; break;
      case 't': kind = kTrue; if (!word("true", 4)) return false; break;
      default: kind = kNumber; if (!number()) return false; break;
    }
    const size_t bytes = out.size() - start;
    entry = static_cast<uint32_t>(kind) << 28 | static_cast<uint32_t>(bytes);
    return bytes <= kBytesMax || (depth == 0 && kind == kContainer);
  }

  bool array(int depth) {
    if (depth > kDepthMax) return false;
    const size_t payload = out.size();
    const size_t first = entries_.size();
    ++at_;
    skip_space();
    if (!take(']')) {
      do {
        skip_space();
        uint32_t entry;
        if (!value(entry, depth + 1)) return false;
        entries_.push_back(entry);
        skip_space();
      } while (take(','));
      if (!take(']')) return false;
    }
    const size_t count = entries_.size() - first;
    if (count > kBytesMax) return false;
    composed_.clear();
    put_big_endian(composed_, kArray | count, 4);
    for (size_t index = first; index < entries_.size(); ++index)
      put_big_endian(composed_, entries_[index], 4);
    entries_.resize(first);
    out.insert(out.begin() + payload, composed_.begin(), composed_.end());
    return true;
  }

  bool object(int depth) {
    if (depth > kDepthMax) return false;
    const size_t payload = out.size();
    const size_t first = members_.size();
    const size_t first_key = keys_.size();
    ++at_;
    skip_space();
    if (!take('}')) {
      do {
        skip_space();
        Member member;
        member.key = keys_.size();
        if (at_ == stop_ || *at_ != '"' || !string(keys_)) return false;
        member.key_bytes = keys_.size() - member.key;
        skip_space();
        if (member.key_bytes > kBytesMax || !take(':')) return false;
        skip_space();
        member.payload = out.size();
        if (!value(member.entry, depth + 1)) return false;
        member.payload_bytes = out.size() - member.payload;
        members_.push_back(member);
        skip_space();
      } while (take(','));
      if (!take('}')) return false;
    }
    const auto begin = members_.begin() + first;
    if (members_.size() - first > kBytesMax) return false;
    std::sort(begin, members_.end(),
              [this](const Member& a, const Member& b) { return compare(a, b) < 0; });
    for (auto it = begin; it != members_.end() && it + 1 != members_.end(); ++it)
      if (compare(*it, *(it + 1)) == 0) return false;
    compose_object(first, payload);
    members_.resize(first);
    keys_.resize(first_key);
    return true;
  }

  int compare(const Member& a, const Member& b) const {
    const size_t shorter = std::min(a.key_bytes, b.key_bytes);
    const int order = shorter ? memcmp(&keys_[a.key], &keys_[b.key], shorter) : 0;
    if (order || a.key_bytes == b.key_bytes) return order;
    return a.key_bytes < b.key_bytes ? -1 : 1;
  }

  // Replaces the payloads from `payload` on by the sorted members of an object.
  void compose_object(size_t first, size_t payload) {
    composed_.clear();
    put_big_endian(composed_, kObject | (members_.size() - first), 4);
    for (size_t index = first; index < members_.size(); ++index)
      put_big_endian(composed_, kString << 28 | members_[index].key_bytes, 4);
    for (size_t index = first; index < members_.size(); ++index)
      put_big_endian(composed_, members_[index].entry, 4);
    for (size_t index = first; index < members_.size(); ++index) {
      const auto key = keys_.begin() + members_[index].key;
      composed_.insert(composed_.end(), key, key + members_[index].key_bytes);
    }
    for (size_t index = first; index < members_.size(); ++index) {
      const auto part = out.begin() + members_[index].payload;
      composed_.insert(composed_.end(), part, part + members_[index].payload_bytes);
    }
    out.resize(payload);
    out.insert(out.end(), composed_.begin(), composed_.end());
  }

  // Appends the unescaped string at the cursor to `to`.
  bool string(Buffer& to) {
    ++at_;
    for (;;) {
      const uint8_t* plain = at_;
      while (at_ < stop_ && *at_ != '"' && *at_ != '\\' && *at_ >= 0x20) ++at_;
      to.insert(to.end(), plain, at_);
      if (at_ == stop_ || *at_ < 0x20) return false;
      if (*at_++ == '"') return true;
      if (!escape(to)) return false;
    }
  }

  bool escape(Buffer& to) {
    if (at_ == stop_) return false;
    switch (*at_++) {
      case '"': to.push_back('"'); return true;
      case '\\': to.push_back('\\'); return true;
      case '/': to.push_back('/'); return true;
      case 'b': to.push_back('\b'); return true;
      case 'f': to.push_back('\f'); return true;
      case 'n': to.push_back('\n'); return true;
      case 'r': to.push_back('\r'); return true;
      case 't': to.push_back('\t'); return true;
      case 'u': return unicode(to);
      default: return false;
    }
  }

  bool hex(uint32_t& value) {
    if (stop_ - at_ < 4) return false;
    value = 0;
    for (int index = 0; index < 4; ++index) {
      const uint8_t c = *at_++;
      const uint8_t lower = c | 0x20;
      if (c >= '0' && c <= '9')
        value = value << 4 | (c - '0');
      else if (lower >= 'a' && lower <= 'f')
        value = value << 4 | (lower - 'a' + 10);
      else
        return false;
    }
    return true;
  }

  bool unicode(Buffer& to) {
    uint32_t code;
    if (!hex(code)) return false;
    if (code >= 0xD800 && code < 0xE000) {
      // A surrogate, which must be followed by its low half.
      uint32_t low;
      if (code >= 0xDC00 || !word("\\u", 2) || !hex(low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return false;
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code < 0x80) {
      to.push_back(static_cast<uint8_t>(code));
    } else if (code < 0x800) {
      to.push_back(static_cast<uint8_t>(0xC0 | code >> 6));
      to.push_back(static_cast<uint8_t>(0x80 | (code & 63)));
    } else if (code < 0x10000) {
      to.push_back(static_cast<uint8_t>(0xE0 | code >> 12));
      to.push_back(static_cast<uint8_t>(0x80 | (code >> 6 & 63)));
      to.push_back(static_cast<uint8_t>(0x80 | (code & 63)));
    } else {
      to.push_back(static_cast<uint8_t>(0xF0 | code >> 18));
      to.push_back(static_cast<uint8_t>(0x80 | (code >> 12 & 63)));
      to.push_back(static_cast<uint8_t>(0x80 | (code >> 6 & 63)));
      to.push_back(static_cast<uint8_t>(0x80 | (code & 63)));
    }
    return true;
  }

  int64_t digits() {
    const uint8_t* start = at_;
    while (at_ < stop_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return at_ - start;
  }

  bool number() {
    const uint8_t* start = at_;
    const bool negative = take('-');
    const uint8_t* first_digit = at_;
    const int64_t whole = digits();
    if (whole == 0 || (whole > 1 && *first_digit == '0')) return false;
    bool is_whole = true;
    if (at_ < stop_ && *at_ == '.') {
      ++at_;
      is_whole = false;
      if (digits() == 0) return false;
    }
    if (at_ < stop_ && (*at_ == 'e' || *at_ == 'E')) {
      ++at_;
      is_whole = false;
      if (at_ < stop_ && (*at_ == '+' || *at_ == '-')) ++at_;
      if (digits() == 0) return false;
    }
    if (is_whole && put_whole(first_digit, negative)) return true;
    double value = 0;
    const auto parsed = std::from_chars(reinterpret_cast<const char*>(start),
                                        reinterpret_cast<const char*>(at_), value);
    if (parsed.ec == std::errc::result_out_of_range) {
      value = magnitude(first_digit) > 0 ? HUGE_VAL : 0.0;
      if (negative) value = -value;
    }
    put_double(value);
    return true;
  }

  // Returns the decimal exponent of the first digit of a non-zero number.
  int64_t magnitude(const uint8_t* at) const {
    int64_t power = 0;
    for (; at < at_ && *at == '0'; ++at) {
    }
    if (at < at_ && *at != '.') {
      for (++at; at < at_ && *at >= '0' && *at <= '9'; ++at) ++power;
      if (at < at_ && *at == '.')
        for (++at; at < at_ && *at >= '0' && *at <= '9'; ++at) {
        }
    } else {
      for (++at, power = -1; at < at_ && *at == '0'; ++at) --power;
      for (; at < at_ && *at >= '0' && *at <= '9'; ++at) {
      }
    }
    if (at == at_) return power;
    const bool negative = *++at == '-';
    if (negative || *at == '+') ++at;
    int64_t exponent = 0;
    for (; at < at_; ++at) exponent = smaller(exponent * 10 + (*at - '0'), int64_t{1} << 40);
    return power + (negative ? -exponent : exponent);
  }

  // Appends an integer of at most 64 bits; returns false for larger ones.
  bool put_whole(const uint8_t* digit, bool negative) {
    uint64_t value = 0;
    for (; digit < at_; ++digit) {
      const uint64_t next = *digit - '0';
      if (value > (UINT64_MAX - next) / 10) return false;
      value = value * 10 + next;
    }
    if (value == 0) {
      out.push_back(kZero);
    } else if (!negative) {
      const int bytes = width_of(bit_length(value));
      out.push_back(kUnsigned);
      put_big_endian(out, value, bytes);
    } else {
      if (value > uint64_t{1} << 63) return false;
      // A negative number needs a sign bit; value - 1 has the bits of its magnitude.
      const int bytes = width_of(bit_length(value - 1) + 1);
      out.push_back(kSigned);
      put_big_endian(out, ~value + 1, bytes);
    }
    return true;
  }

  void put_double(double value) {
    if (std::isinf(value)) {
      out.push_back(value > 0 ? kPlusInfinity : kMinusInfinity);
      return;
    }
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    out.push_back(kDouble);
    put_big_endian(out, bits, 8);
  }
};

// --- binary to text ---------------------------------------------------------------------------

// Output text, or only its size.
struct Text {
  uint8_t* to;
  int64_t size;
  int64_t limit;

  void put(const void* from, int64_t bytes) {
    if (to && bytes <= limit - size) memcpy(to + size, from, bytes);
    size += bytes;
  }
  void put(char c) { put(&c, 1); }
};

struct Part {
  const uint8_t* at;
  const uint8_t* stop;
};

bool put_value(Text& text, uint32_t kind, Part part, int depth);

bool put_container(Text& text, Part all, int depth) {
  if (depth > kDepthMax || all.stop - all.at < 4) return false;
  const uint32_t header = static_cast<uint32_t>(big_endian(all.at, 4));
  const uint32_t kind = header & kKinds;
  const int64_t count = header & (kScalar - 1);
  const int64_t parts = kind == kScalar ? 1 : kind == kObject ? 2 * count : count;
  if (kind != kScalar && kind != kObject && kind != kArray) return false;
  const uint8_t* entry = all.at + 4;
  if ((all.stop - entry) / 4 < parts) return false;
  const uint8_t* payload = entry + 4 * parts;
  if (kind == kScalar) {
    const uint32_t word = static_cast<uint32_t>(big_endian(entry, 4));
    if (static_cast<int64_t>(word & kBytesMax) > all.stop - payload) return false;
    return put_value(text, word >> 28, {payload, payload + (word & kBytesMax)}, depth);
  }
  // The values of an object follow its keys.
  const uint8_t* value = payload;
  if (kind == kObject) {
    for (int64_t index = 0; index < count; ++index) {
      const uint32_t bytes = static_cast<uint32_t>(big_endian(entry + 4 * index, 4)) & kBytesMax;
      if (static_cast<int64_t>(bytes) > all.stop - value) return false;
      value += bytes;
    }
  }
  text.put(kind == kObject ? '{' : '[');
  for (int64_t index = 0; index < count; ++index) {
    if (index) text.put(',');
    if (kind == kObject) {
      const uint32_t word = static_cast<uint32_t>(big_endian(entry + 4 * index, 4));
      if (!put_value(text, word >> 28, {payload, payload + (word & kBytesMax)}, depth))
        return false;
      payload += word & kBytesMax;
      text.put(':');
    }
    const int64_t entry_index = kind == kObject ? count + index : index;
    const uint32_t word = static_cast<uint32_t>(big_endian(entry + 4 * entry_index, 4));
    if (static_cast<int64_t>(word & kBytesMax) > all.stop - value) return false;
    if (!put_value(text, word >> 28, {value, value + (word & kBytesMax)}, depth)) return false;
    value += word & kBytesMax;
  }
  text.put(kind == kObject ? '}' : ']');
  return true;
}

void put_string(Text& text, Part part) {
  static const char kHex[] = "0123456789abcdef";
  text.put('"');
  while (part.at < part.stop) {
    const uint8_t* plain = part.at;
    while (part.at < part.stop && *part.at >= 0x20 && *part.at != '"' && *part.at != '\\')
      ++part.at;
    text.put(plain, part.at - plain);
    if (part.at == part.stop) break;
    const uint8_t c = *part.at++;
    text.put('\\');
    switch (c) {
      case '"': text.put('"'); break;
      case '\\': text.put('\\'); break;
      case '\b': text.put('b'); break;
      case '\f': text.put('f'); break;
      case '\n': text.put('n'); break;
      case '\r': text.put('r'); break;
      case '\t': text.put('t'); break;
      default:
        text.put("u00", 3);
        text.put(kHex[c >> 4]);
        text.put(kHex[c & 15]);
    }
  }
  text.put('"');
}

template <class T>
void put_integer(Text& text, T value) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  text.put(digits, end.ptr - digits);
}

// Writes the shortest digits of a double, with an exponent below 0.00001 and from 1e16 on.
void put_double_text(Text& text, double value) {
  if (!std::isfinite(value)) {
    text.put("null", 4);
    return;
  }
  char shortest[40];
  const auto end = std::to_chars(shortest, shortest + sizeof shortest, value,
                                 std::chars_format::scientific);
  const char* at = shortest;
  if (*at == '-') {
    text.put('-');
    ++at;
  }
  char digits[24];
  int count = 0;
  for (; at < end.ptr && *at != 'e'; ++at)
    if (*at != '.') digits[count++] = *at;
  int exponent = 0;
  const bool is_small = at[1] == '-';
  for (at += 2; at < end.ptr; ++at) exponent = exponent * 10 + (*at - '0');
  if (is_small) exponent = -exponent;
  if (exponent >= 0 && exponent < 16) {
    for (int index = 0; index <= exponent; ++index) text.put(index < count ? digits[index] : '0');
    text.put('.');
    if (count <= exponent + 1) text.put('0');
    for (int index = exponent + 1; index < count; ++index) text.put(digits[index]);
  } else if (exponent < 0 && exponent >= -5) {
    text.put("0.", 2);
    for (int index = -1; index > exponent; --index) text.put('0');
    text.put(digits, count);
  } else {
    text.put(digits[0]);
    if (count > 1) {
      text.put('.');
      text.put(digits + 1, count - 1);
    }
    text.put('e');
    if (exponent > 0) text.put('+');
    put_integer(text, exponent);
  }
}

bool put_number(Text& text, Part part) {
  const int64_t bytes = part.stop - part.at - 1;
  if (bytes < 0) return false;
  const bool is_width = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
  const uint8_t tag = *part.at;
  if (bytes == 0) {
    if (tag == kZero)
      text.put('0');
    else if (tag == kNan || tag == kPlusInfinity || tag == kMinusInfinity)
      text.put("null", 4);
    else
      return false;
    return true;
  }
  const uint64_t bits = is_width ? big_endian(part.at + 1, bytes) : 0;
  if (tag == kUnsigned && is_width) {
    put_integer(text, bits);
  } else if (tag == kSigned && is_width) {
    const int shift = static_cast<int>(64 - 8 * bytes);
    put_integer(text, static_cast<int64_t>(bits << shift) >> shift);
  } else if (tag == kDouble && bytes == 8) {
    double value;
    memcpy(&value, &bits, sizeof value);
    put_double_text(text, value);
  } else {
    return false;
  }
  return true;
}

bool put_value(Text& text, uint32_t kind, Part part, int depth) {
  switch (kind) {
    case kNull: text.put("null", 4); return true;
    case kFalse: text.put("false", 5); return true;
    case kTrue: text.put("true", 4); return true;
    case kString: put_string(text, part); return true;
    case kNumber: return put_number(text, part);
    case kContainer: return put_container(text, part, depth + 1);
    default: return false;
  }
}

bool are_valid(ConstInts offsets, ConstBytes data, ConstBytes is_valid, Ints out_offsets) {
  return offsets.size == is_valid.size + 1 && out_offsets.size == offsets.size &&
         offsets.data[0] >= 0 && offsets.data[offsets.size - 1] <= data.size;
}

}  // namespace

int64_t encode_jsonb(ConstInts offsets, ConstBytes data, ConstBytes is_valid, Ints out_offsets,
                     Bytes out) {
  if (!are_valid(offsets, data, is_valid, out_offsets)) return fail(kBadOffsets, 0);
  Encoder encoder;
  int64_t size = 0;
  for (int64_t row = 0; row < is_valid.size; ++row) {
    out_offsets.data[row] = size;
    if (!is_valid.data[row]) continue;
    if (!within(offsets.data[row], offsets.data[row + 1] - offsets.data[row], data.size))
      return fail(kBadOffsets, row);
    if (!encoder.document(data.data + offsets.data[row], data.data + offsets.data[row + 1]))
      return fail(kBadStream, row);
    const int64_t bytes = static_cast<int64_t>(encoder.out.size());
    if (bytes > out.size - size) return fail(kOutputFull, row);
    memcpy(out.data + size, encoder.out.data(), bytes);
    size += bytes;
  }
  out_offsets.data[is_valid.size] = size;
  return size;
}

int64_t decode_jsonb(ConstInts offsets, ConstBytes data, ConstBytes is_valid, Ints out_offsets,
                     Bytes out) {
  if (!are_valid(offsets, data, is_valid, out_offsets)) return fail(kBadOffsets, 0);
  Text text{out.size ? out.data : nullptr, 0, out.size};
  for (int64_t row = 0; row < is_valid.size; ++row) {
    out_offsets.data[row] = text.size;
    if (!is_valid.data[row]) continue;
    if (!within(offsets.data[row], offsets.data[row + 1] - offsets.data[row], data.size))
      return fail(kBadOffsets, row);
    const Part document{data.data + offsets.data[row], data.data + offsets.data[row + 1]};
    if (!put_container(text, document, 0)) return fail(kBadStream, row);
  }
  out_offsets.data[is_valid.size] = text.size;
  if (out.size && text.size > out.size) return fail(kOutputFull, 0);
  return text.size;
}

}  // namespace LANCELET_NAMESPACE
