// Finite-state transducers (FST) from keys to numbers, written from sorted keys and read as a
// whole.
//
// A node is addressed by its last byte and read backwards: state, then the transitions with their
// bytes, outputs and target distances. The writer stores the number of a key as its final output,
// so transitions have output 0.
#include "kernel.hpp"

namespace LANCELET_NAMESPACE {
namespace {

constexpr int64_t kHeaderBytes = 16;
constexpr int64_t kIndexedFrom = 32;
constexpr int64_t kCountMax = 0x3f;
constexpr int64_t kKeyBytesMax = 1 << 16;

int64_t width(uint64_t number) {
  int64_t bytes = 0;
  for (; number; number >>= 8) ++bytes;
  return bytes;
}

struct Transition {
  int64_t target;
  uint8_t symbol;
};

// An unwritten node. Its transitions are on a stack, after those of its ancestors.
struct OpenNode {
  int64_t number;  // of the key that ends here, or -1
  int64_t first;   // index of its first transition
};

struct NodeWriter {
  uint8_t* out;
  int64_t size, at;
  const uint8_t* codes;

  void put(uint64_t number, int64_t bytes) {
    for (int64_t k = 0; k < bytes; ++k) out[at++] = static_cast<uint8_t>(number >> (8 * k));
  }

  // Writes a node and returns its address, or -1 if the output is full.
  int64_t write(int64_t ending, const Transition* transitions, int64_t count) {
    if (count == 0 && ending == 0) return 0;
    if (count == 1 && ending < 0 && transitions[0].target == at - 1 && at > kHeaderBytes) {
      if (size - at < 2) return -1;
      const uint8_t code = codes[transitions[0].symbol];
      if (!code) out[at++] = transitions[0].symbol;
      out[at++] = 0xc0 | code;
      return at - 1;
    }
    const int64_t start = at;
    int64_t furthest = 0;
    for (int64_t k = 0; k < count; ++k)
      if (transitions[k].target) furthest = larger(furthest, start - transitions[k].target);
    const uint64_t number = ending < 0 ? 0 : static_cast<uint64_t>(ending);
    const int64_t number_bytes = width(number);
    const int64_t target_bytes = count ? larger<int64_t>(width(furthest), 1) : 0;
    const int64_t most = number_bytes * (1 + count) + (target_bytes + 1) * count + 256 + 3;
    if (size - at < most) return -1;
    put(number, number_bytes);
    memset(out + at, 0, number_bytes * count);  // transitions have no outputs
    at += number_bytes * count;
    for (int64_t k = count; k-- > 0;)
      put(transitions[k].target ? start - transitions[k].target : 0, target_bytes);
    for (int64_t k = count; k-- > 0;) out[at++] = transitions[k].symbol;
    if (count > kIndexedFrom) {
      memset(out + at, 0xff, 256);
      for (int64_t k = 0; k < count; ++k) out[at + transitions[k].symbol] = static_cast<uint8_t>(k);
      at += 256;
    }
    out[at++] = static_cast<uint8_t>(target_bytes << 4 | number_bytes);
    uint8_t state = ending < 0 ? 0 : 0x40;
    if (count > 0 && count <= kCountMax) {
      state |= static_cast<uint8_t>(count);
    } else {
      out[at++] = static_cast<uint8_t>(count == 256 ? 1 : count);
    }
    out[at++] = state;
    return at - 1;
  }
};

int64_t write_keys(ConstInts offsets, ConstBytes data, ConstInts numbers, NodeWriter& writer,
                    OpenNode* nodes, Transition* transitions, int64_t* root) {
  int64_t depth = 0, num_transitions = 0, before = 0, before_size = 0;
  nodes[0] = {-1, 0};
  for (int64_t i = 0; i <= numbers.size; ++i) {
    const bool is_end = i == numbers.size;
    const int64_t start = is_end ? 0 : offsets.data[i];
    const int64_t size = is_end ? 0 : offsets.data[i + 1] - start;
    const int64_t most = smaller(size, before_size);
    int64_t shared = 0;
    while (shared < most && data.data[start + shared] == data.data[before + shared]) ++shared;
    if (!is_end && i && (shared == size || (shared < most && data.data[start + shared] <
                                                                data.data[before + shared])))
      return fail(kBadIndex, i);  // not sorted, or a duplicate
    while (depth > shared) {
      const OpenNode own = nodes[depth--];
      const int64_t target = writer.write(own.number, transitions + own.first, num_transitions - own.first);
      if (target < 0) return fail(kOutputFull, i);
      num_transitions = own.first;
      transitions[num_transitions++] = {target, data.data[before + depth]};
    }
    if (is_end) break;
    while (depth < size) nodes[++depth] = {-1, num_transitions};
    nodes[depth].number = numbers.data[i];
    before = start;
    before_size = size;
  }
  *root = writer.write(nodes[0].number, transitions, num_transitions);
  return *root < 0 ? fail(kOutputFull, numbers.size) : writer.at;
}

// A decoded node: the positions of its transitions, and the next one to follow.
struct ReadNode {
  int64_t count, next;     // number of transitions, and the next one
  int64_t symbols;         // the byte of transition k is at symbols - k, except for single transitions
  int64_t targets;         // the target distance of transition k is at targets - k * target_bytes
  int64_t numbers;         // the output of transition k is at numbers - k * number_bytes
  int64_t bottom;          // the lowest byte of the node
  uint64_t sum;            // sum of the outputs on the path
  uint64_t own;            // final output
  int32_t target_bytes, number_bytes;
  uint8_t symbol;          // the byte of a single transition
  bool is_end, is_single, is_implicit;
};

struct NodeReader {
  const uint8_t* data;
  int64_t size;
  const uint8_t* common;
  int64_t num_common;

  uint64_t number(int64_t at, int64_t bytes) const {
    uint64_t found = 0;
    for (int64_t k = smaller<int64_t>(bytes, 8); k-- > 0;) found = found << 8 | data[at + k];
    return found;
  }

  // Decodes the node at an address. Returns false if it exceeds the data.
  bool read(int64_t address, ReadNode& node) const {
    node = {};
    node.is_end = address == 0;
    if (address == 0) return true;
    if (address < kHeaderBytes || address >= size) return false;
    const uint8_t state = data[address];
    const int64_t code = state & 0x3f;
    int64_t at = address;
    if (state & 0x80) {
      node.count = 1;
      node.is_single = true;
      if (code > num_common) return false;
      if (code == 0 && --at < kHeaderBytes) return false;
      node.symbol = code ? common[code - 1] : data[at];
      node.is_implicit = state & 0x40;
      if (node.is_implicit) {
        node.bottom = at;
        return at - 1 >= kHeaderBytes;
      }
    } else {
      node.is_end = state & 0x40;
      node.count = code;
      if (code == 0) {
        if (--at < kHeaderBytes) return false;
        node.count = data[at] == 1 ? 256 : data[at];
      }
    }
    if (--at < kHeaderBytes) return false;
    node.target_bytes = data[at] >> 4;
    node.number_bytes = data[at] & 15;
    if (!node.is_single) {
      if (node.count > kIndexedFrom) at -= 256;
      node.symbols = at - 1;
      at -= node.count;
    }
    node.targets = at - node.target_bytes;
    at -= node.count * node.target_bytes;
    node.numbers = at - node.number_bytes;
    at -= node.count * node.number_bytes;
    if (node.is_end) at -= node.number_bytes;
    node.bottom = at;
    if (at < kHeaderBytes) return false;
    if (node.is_end) node.own = number(at, node.number_bytes);
    return true;
  }

  // Follows the next transition of a node. Returns false if its target is out of bounds.
  bool follow(ReadNode& node, uint8_t& symbol, uint64_t& sum, int64_t& target) const {
    const int64_t k = node.next++;
    symbol = node.is_single ? node.symbol : data[node.symbols - k];
    sum = node.sum;
    if (node.is_implicit) {
      target = node.bottom - 1;
      return true;
    }
    sum += number(node.numbers - k * node.number_bytes, node.number_bytes);
    const uint64_t below = number(node.targets - k * node.target_bytes, node.target_bytes);
    target = below ? node.bottom - static_cast<int64_t>(below) : 0;
    return below <= static_cast<uint64_t>(node.bottom - kHeaderBytes);
  }
};

int64_t read_keys(const NodeReader& reader, int64_t root, ReadNode* nodes, Bytes text, Ints ends,
                   Ints numbers) {
  uint8_t word[kKeyBytesMax];
  int64_t depth = 0, found = 0, used = 0;
  if (!reader.read(root, nodes[0])) return fail(kBadIndex, 0);
  bool is_new = true;
  while (depth >= 0) {
    ReadNode& node = nodes[depth];
    if (is_new && node.is_end) {
      if (found == numbers.size) return fail(kBadCount, found);
      if (text.size - used < depth) return fail(kOutputFull, found);
      memcpy(text.data + used, word, depth);
      used += depth;
      ends.data[found] = used;
      numbers.data[found++] = static_cast<int64_t>(node.sum + node.own);
    } else if (is_new && node.count == 0 && depth) {
      return fail(kBadStream, found);  // a path without a key
    }
    is_new = node.next < node.count;
    if (!is_new) {
      --depth;
      continue;
    }
    if (depth == kKeyBytesMax) return fail(kBadStream, found);
    uint64_t sum;
    int64_t target;
    if (!reader.follow(node, word[depth], sum, target)) return fail(kBadIndex, found);
    if (!reader.read(target, nodes[++depth])) return fail(kBadIndex, found);
    nodes[depth].sum = sum;
  }
  return found;
}

}  // namespace

int64_t write_fst(ConstInts offsets, ConstBytes data, ConstInts numbers, ConstBytes codes,
                        Bytes out, Ints root) {
  if (offsets.size != numbers.size + 1 || codes.size != 256 || root.size != 1)
    return fail(kBadLength, 0);
  int64_t longest = 0;
  for (int64_t i = 0; i < numbers.size; ++i) {
    const int64_t size = offsets.data[i + 1] - offsets.data[i];
    if (!within(offsets.data[i], size, data.size)) return fail(kBadOffsets, i);
    if (numbers.data[i] < 0) return fail(kBadIndex, i);
    longest = larger(longest, size);
  }
  if (out.size < kHeaderBytes) return fail(kOutputFull, 0);
  auto* nodes = static_cast<OpenNode*>(malloc((longest + 1) * sizeof(OpenNode)));
  // Each pending transition leads to a different key.
  auto* transitions = static_cast<Transition*>(malloc((numbers.size + 1) * sizeof(Transition)));
  NodeWriter writer{out.data, out.size, kHeaderBytes, codes.data};
  const int64_t used =
      nodes && transitions ? write_keys(offsets, data, numbers, writer, nodes, transitions, root.data)
                    : fail(kNoMemory, 0);
  free(nodes);
  free(transitions);
  return used;
}

int64_t read_fst(ConstBytes data, int64_t root, ConstBytes common, Bytes text, Ints ends,
                       Ints numbers) {
  if (ends.size != numbers.size) return fail(kBadLength, 0);
  auto* nodes = static_cast<ReadNode*>(malloc((kKeyBytesMax + 1) * sizeof(ReadNode)));
  if (!nodes) return fail(kNoMemory, 0);
  const NodeReader reader{data.data, data.size, common.data, common.size};
  const int64_t found = read_keys(reader, root, nodes, text, ends, numbers);
  free(nodes);
  return found;
}

}  // namespace LANCELET_NAMESPACE
