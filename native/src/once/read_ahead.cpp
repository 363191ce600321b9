// Asks for the pages under many slices of a mapped file at once, so that a decoder that walks
// them waits for the slowest read and not for the sum of all reads.
//
// Touching a page that is not in memory stops the thread for one read of the disk, and ten
// thousand scattered values are ten thousand such stops. `madvise(MADV_WILLNEED)` only starts a
// read. It is a system call for each slice, which would cost more than decoding when the pages
// are in memory already, so a sample of the pages is looked at first (`mincore`), and nothing is
// asked for when all of them are there.
//
// Nothing is read or written here: without this kernel results are the same, only later.
#include "kernel.hpp"

#if defined(__linux__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#define LANCELET_CAN_READ_AHEAD 1
#endif

namespace LANCELET_NAMESPACE {

#if LANCELET_CAN_READ_AHEAD

namespace {

constexpr int64_t kSamples = 64;

// Linux starts at most one readahead window for each call, so larger slices are asked for in
// steps; the default window is 128 KiB.
constexpr int64_t kStep = 128 * 1024;

class Pages {
 public:
  explicit Pages(ConstBytes source)
      : source_(source), page_(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE))) {}

  bool is_resident(int64_t position) const {
#if defined(__APPLE__)
    char state = 0;
#else
    unsigned char state = 0;
#endif
    const uintptr_t start = aligned(position);
    // What cannot be looked at counts as resident: then nothing is asked for.
    return mincore(reinterpret_cast<void*>(start), page_, &state) != 0 || (state & 1);
  }

  void ask_for(int64_t position, int64_t size) const {
    const uintptr_t start = aligned(position);
    const uintptr_t stop = reinterpret_cast<uintptr_t>(source_.data) + position + size;
    // Advice may be refused; then the pages are read when they are touched.
    (void)madvise(reinterpret_cast<void*>(start), stop - start, MADV_WILLNEED);
  }

 private:
  uintptr_t aligned(int64_t position) const {
    const uintptr_t address = reinterpret_cast<uintptr_t>(source_.data) + position;
    return address - address % page_;
  }

  ConstBytes source_;
  uintptr_t page_;
};

// Looks at up to kSamples places, spread over the slices and, when these are few, over each.
bool are_resident(const Pages& pages, ConstInts position, ConstInts size) {
  const int64_t count = position.size;
  const int64_t samples = count >= kSamples ? kSamples : kSamples / count * count;
  const int64_t per_slice = count >= kSamples ? 1 : samples / count;
  int64_t last_page = -1;
  for (int64_t sample = 0; sample < samples; ++sample) {
    const int64_t slice = count >= kSamples ? sample * (count / kSamples) : sample / per_slice;
    if (size.data[slice] == 0) continue;
    const int64_t within = size.data[slice] / per_slice * (sample % per_slice);
    const int64_t at = position.data[slice] + within;
    if (at / 4096 == last_page) continue;
    last_page = at / 4096;
    if (!pages.is_resident(at)) return false;
  }
  return true;
}

}  // namespace

#endif

int64_t read_ahead(ConstBytes source, ConstInts position, ConstInts size) {
  const int64_t count = position.size;
  if (size.size != count) return fail(kBadCount, 0);
  for (int64_t i = 0; i < count; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
  }
  int64_t asked = 0;
#if LANCELET_CAN_READ_AHEAD
  const Pages pages(source);
  if (count == 0 || are_resident(pages, position, size)) return 0;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t done = 0; done < size.data[i]; done += kStep) {
      pages.ask_for(position.data[i] + done, smaller(size.data[i] - done, kStep));
      ++asked;
    }
  }
#endif
  return asked;
}

}  // namespace LANCELET_NAMESPACE
