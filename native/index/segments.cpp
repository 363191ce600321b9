// Word segmentation by the Unicode rules (UAX 29), and by dictionaries for scripts without spaces.
// reference/segments.py defines the results.
#include "characters.hpp"
#include "kernel.hpp"
#include "parameters.hpp"

namespace LANCELET_NAMESPACE {
namespace {

// The values of CharacterClass in kernels/segment_rules.py.
enum Class : uint8_t {
  kOther, kCr, kLf, kNewline, kExtend, kZwj, kRegionalIndicator, kFormat, kKatakana,
  kHebrewLetter, kALetter, kSingleQuote, kDoubleQuote, kMidNumLet, kMidLetter, kMidNum, kNumeric,
  kExtendNumLet, kWSegSpace, kExtendedPictographic, kPictographicLetter,
  kComplex = 32,  // from here on: 8 * language + cluster part
};
enum Part : uint8_t { kPlain, kMark, kConsonant, kLinker, kLinkedMark };

constexpr uint32_t bit(uint8_t kind) { return kind < kComplex ? 1u << kind : 0; }

constexpr uint32_t kLines = bit(kCr) | bit(kLf) | bit(kNewline);
constexpr uint32_t kMarks = bit(kExtend) | bit(kFormat) | bit(kZwj);
constexpr uint32_t kPictographs = bit(kExtendedPictographic) | bit(kPictographicLetter);
constexpr uint32_t kLetters = bit(kALetter) | bit(kHebrewLetter) | bit(kPictographicLetter);
constexpr uint32_t kWordClasses = kLetters | bit(kNumeric);
constexpr uint32_t kNameClasses = kWordClasses | bit(kKatakana);

struct AdjacentRule {
  uint32_t left, right;
};
constexpr AdjacentRule kAdjacentRules[] = {
    {kWordClasses, kWordClasses},
    {bit(kHebrewLetter), bit(kSingleQuote)},
    {bit(kKatakana), bit(kKatakana)},
    {kNameClasses | bit(kExtendNumLet), bit(kExtendNumLet)},
    {bit(kExtendNumLet), kNameClasses},
};

struct BetweenRule {
  uint32_t middle, both;
};
constexpr BetweenRule kBetweenRules[] = {
    {bit(kMidLetter) | bit(kMidNumLet) | bit(kSingleQuote), kLetters},
    {bit(kDoubleQuote), bit(kHebrewLetter)},
    {bit(kMidNum) | bit(kMidNumLet) | bit(kSingleQuote), bit(kNumeric)},
};

struct Dictionary {
  Span<const uint16_t> units;
  Span<const int32_t> children;
  Span<const uint16_t> num_children;
  ConstBytes is_word;
  Ints language_runs;  // number of runs per language
  bool broken = false;

  bool is_leaf(int64_t node) const { return num_children.data[node] == 0; }

  int64_t child(int64_t node, uint16_t unit) {
    int64_t low = children.data[node];
    int64_t high = low + num_children.data[node];
    if (low < 0 || high > units.size) {
      broken = true;
      return -1;
    }
    while (low < high) {
      const int64_t half = (low + high) >> 1;
      if (units.data[half] < unit)
        low = half + 1;
      else if (units.data[half] > unit)
        high = half;
      else
        return half;
    }
    return -1;
  }

  int64_t step(int64_t node, uint32_t code) {
    if (code < 0x10000) return child(node, static_cast<uint16_t>(code));
    node = child(node, static_cast<uint16_t>(0xd7c0 + (code >> 10)));
    return node < 0 ? -1 : child(node, static_cast<uint16_t>(0xdc00 | (code & 0x3ff)));
  }
};

struct Text {
  const uint8_t* data;
  ConstBytes classes;

  Character read(int64_t at, int64_t stop) const { return read_character(data + at, stop - at); }

  uint8_t class_of(uint32_t code) const {
    return code < classes.size ? classes.data[code] : static_cast<uint8_t>(kOther);
  }

  // Returns the class of the first character from `at` on that is not ignored.
  uint8_t next_class(int64_t at, int64_t stop) const {
    while (at < stop) {
      const Character c = read(at, stop);
      const uint8_t kind = class_of(c.code);
      if (!(bit(kind) & kMarks)) return kind;
      at += c.bytes;
    }
    return kOther;
  }
};

// Receives characters and segment ends, and emits segments that contain a letter or digit; with
// `splits`, their runs of letters and digits.
struct Output {
  Members members;
  bool splits;
  Ints position, size;
  int64_t total = 0, found = 0;
  int64_t start = 0, end = 0;
  bool has_member = false;

  void add(int64_t at, const Character& c) {
    if (members.has(c.code)) {
      if (splits && !has_member) start = at;
      has_member = true;
    } else if (splits) {
      cut(at);
    }
    end = at + c.bytes;
  }

  void cut(int64_t at) {
    if (has_member) {
      if (total < position.size) {
        position.data[total] = start;
        size.data[total] = end - start;
      }
      ++total;
      ++found;
    }
    has_member = false;
    start = end = at;
  }
};

// Grapheme cluster boundaries of a run.
struct Clusters {
  const Text& text;
  int64_t at, stop;
  bool begun = false;

  // Returns the next boundary, beginning with the start; -1 after the end.
  int64_t next() {
    if (!begun) {
      begun = true;
      return at;
    }
    if (at >= stop) return -1;
    bool consonant = false, linked = false;
    for (bool first = true; at < stop; first = false) {
      const Character c = text.read(at, stop);
      const uint8_t part = text.class_of(c.code) & 7;
      const bool joins = part == kMark || part == kLinker || part == kLinkedMark ||
                         (part == kConsonant && linked);
      if (!first && !joins) break;
      linked = consonant && (part == kLinker || (linked && part == kLinkedMark));
      consonant = part == kConsonant || (consonant && (part == kLinker || part == kLinkedMark));
      at += c.bytes;
    }
    return at;
  }
};

// A run of one language, segmented by its dictionary.
struct LanguageRun {
  const Text& text;
  Dictionary& dictionary;
  int64_t root, at, stop;
  Clusters clusters;

  // Returns the end of the next word, or -1 if none is left.
  int64_t next_end() {
    int64_t node = root, matched = -1, cluster = -1;
    bool inside = false;
    while (at < stop) {
      const Character c = text.read(at, stop);
      at += c.bytes;
      node = dictionary.step(node, c.code);
      if (node < 0) {
        if (matched >= 0) at = matched;
        return at;
      }
      if (!dictionary.is_word.data[node]) {
        inside = true;
        continue;
      }
      if (dictionary.is_leaf(node)) return at;
      // A longer word may follow; words must end at cluster boundaries.
      while (cluster < at) {
        const int64_t position = clusters.next();
        cluster = position < 0 ? stop : position;
      }
      if (cluster == at) matched = at;
    }
    return matched >= 0 ? matched : inside ? stop : -1;
  }
};

// Segments a run of scripts without spaces.
void cut_run(const Text& text, Dictionary& dictionary, int64_t start, int64_t stop, Output& out) {
  int64_t consumed = start;
  const auto cut = [&](int64_t end) {
    while (consumed < end) {
      const Character c = text.read(consumed, end);
      out.add(consumed, c);
      consumed += c.bytes;
    }
    out.cut(end);
  };
  // The unmatched end of a run is segmented again.
  while (consumed < stop) {
    for (int64_t at = consumed; at < stop;) {
      const int64_t from = at;
      const auto language_at = [&](int64_t position, int64_t* bytes) {
        const Character c = text.read(position, stop);
        *bytes = c.bytes;
        return (text.class_of(c.code) - kComplex) >> 3;
      };
      int64_t bytes = 0;
      const int64_t language = language_at(at, &bytes);
      do {
        at += bytes;
      } while (at < stop && language_at(at, &bytes) == language);
      if (language < dictionary.language_runs.size) ++dictionary.language_runs.data[language];
      if (language == 0 || language > dictionary.units.size) {
        cut(at);
        continue;
      }
      LanguageRun run{text, dictionary, language - 1, from, at, {text, from, at}};
      for (int64_t end; (end = run.next_end()) >= 0;) cut(end);
    }
  }
}

// Context of a boundary: the last character, the last two that are not ignored, and whether the
// number of preceding regional indicators is odd.
struct Before {
  uint8_t last = kOther, near = kOther, far = kOther;
  bool odd = false;

  void add(uint8_t kind) {
    last = kind;
    if (bit(kind) & kMarks) return;
    odd = kind == kRegionalIndicator && !(near == kRegionalIndicator && odd);
    far = near;
    near = kind;
  }

  // Returns whether there is no boundary before a character class; `next` returns the class after
  // it.
  template <class Next>
  bool joins(uint8_t kind, Next next) const {
    const uint32_t own = bit(kind), left = bit(near);
    if (last == kALetter && kind == kALetter) return true;
    if (last == kCr && kind == kLf) return true;
    if ((bit(last) | own) & kLines) return false;
    if (last == kZwj && (own & kPictographs)) return true;
    if (last == kWSegSpace && kind == kWSegSpace) return true;
    if (own & kMarks) return true;
    if (kind == kRegionalIndicator) return near == kRegionalIndicator && odd;
    // UAX 29 has no such exception, but the reference's tables do.
    if (near == kKatakana && last == kZwj && kind == kExtendNumLet) return false;
    for (const AdjacentRule& rule : kAdjacentRules)
      if ((left & rule.left) && (own & rule.right)) return true;
    for (const BetweenRule& rule : kBetweenRules) {
      if ((bit(far) & rule.both) && (left & rule.middle) && (own & rule.both)) return true;
      if ((left & rule.both) && (own & rule.middle) && (bit(next()) & rule.both)) return true;
    }
    return false;
  }
};

void cut_text(const Text& text, Dictionary& dictionary, int64_t start, int64_t stop, Output& out) {
  Before before;
  out.cut(start);
  for (int64_t at = start; at < stop;) {
    const Character c = text.read(at, stop);
    const uint8_t kind = text.class_of(c.code);
    const int64_t after = at + c.bytes;
    if (LANCELET_UNLIKELY(kind >= kComplex)) {
      int64_t end = after;
      while (end < stop) {
        const Character more = text.read(end, stop);
        if (text.class_of(more.code) < kComplex) break;
        end += more.bytes;
      }
      out.cut(at);
      cut_run(text, dictionary, at, end, out);
      before = Before();
      at = end;
      continue;
    }
    if (!before.joins(kind, [&] { return text.next_class(after, stop); })) out.cut(at);
    before.add(kind);
    out.add(at, c);
    at = after;
  }
  out.cut(stop);
}

}  // namespace

// Returns the number of segments and stores as many as fit. Counts the runs of each language, so
// that dictionaries are loaded on demand.
int64_t locate_segments(ConstInts offsets, ConstBytes data, args::SegmentRules rules,
                        int64_t splits, Ints position, Ints size, Ints count, Ints language_runs) {
  const ConstBytes members = rules.members;
  const ConstBytes classes = rules.classes;
  const Span<const uint16_t> units = rules.units;
  const Span<const int32_t> children = rules.children;
  const Span<const uint16_t> num_children = rules.num_children;
  const ConstBytes is_word = rules.is_word;
  const int64_t status = check_texts(offsets, data);
  if (status < 0) return status;
  if (children.size != units.size || num_children.size != units.size ||
      is_word.size != units.size)
    return fail(kBadCount, 0);
  Dictionary dictionary{units, children, num_children, is_word, language_runs};
  const Text text{data.data, classes};
  Output out{members_of(members), splits != 0, position, size};
  for (int64_t i = 0; i + 1 < offsets.size; ++i) {
    out.found = 0;
    cut_text(text, dictionary, offsets.data[i], offsets.data[i + 1], out);
    if (dictionary.broken) return fail(kBadIndex, i);
    count.data[i] = out.found;
  }
  return out.total;
}

}  // namespace LANCELET_NAMESPACE
