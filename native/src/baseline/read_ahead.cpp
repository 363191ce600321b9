// Prefetches the pages of many slices of a mapped file, so that a decoder waits for the slowest
// read instead of the sum of all reads.
//
// A page fault blocks the thread for one disk read, so ten thousand scattered values cost ten
// thousand reads in sequence. `madvise(MADV_WILLNEED)` only starts a read. A system call per slice
// would cost more than decoding cached pages, so `mincore` finds the missing pages first, and each
// page is checked only once: the caller holds a flag per page. A page evicted later is read on
// access.
//
// Prefetching never affects results.
#include "kernel.hpp"

#if defined(__linux__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#define LANCELET_CAN_READ_AHEAD 1
#endif

namespace LANCELET_NAMESPACE {

#if LANCELET_CAN_READ_AHEAD

namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kGroup = 1024;  // pages per call of mincore

// Pages are prefetched in checksum blocks, since verification reads whole blocks.
constexpr int64_t kBlock = 4;

// Linux starts at most one readahead window per call, so larger slices are split. The default
// window is 128 KiB.
constexpr int64_t kStep = 128 * 1024;

class Pages {
 public:
  Pages(ConstBytes source, Bytes prefetched) : source_(source), prefetched_(prefetched) {}

  // Prefetches the unchecked pages of a slice. Returns the number of requests.
  int64_t prefetch(int64_t position, int64_t size) {
    if (size == 0) return 0;
    const int64_t end = (position + size + kPage - 1) / kPage;
    const int64_t stop = smaller((end + kBlock - 1) / kBlock * kBlock, prefetched_.size);
    int64_t num_requests = 0;
    int64_t page = position / kPage / kBlock * kBlock;
    while (page < stop) {
      if (prefetched_.data[page]) {
        ++page;
        continue;
      }
      int64_t last = page + 1;
      while (last < stop && last - page < kGroup && !prefetched_.data[last]) ++last;
      num_requests += request_missing(page, last);
      memset(prefetched_.data + page, 1, last - page);
      page = last;
    }
    return num_requests;
  }

 private:
  int64_t request_missing(int64_t page, int64_t stop) const {
#if defined(__APPLE__)
    char state[kGroup] = {};
#else
    unsigned char state[kGroup] = {};
#endif
    const int64_t first = page * kPage;
    const int64_t bytes = smaller(stop * kPage, source_.size) - first;
    uint8_t* at = const_cast<uint8_t*>(source_.data) + first;
    // Without mincore, or with other page sizes, pages are read on access.
    if (sysconf(_SC_PAGESIZE) != kPage || mincore(at, bytes, state) != 0) return 0;
    int64_t num_requests = 0;
    for (int64_t i = 0; i < stop - page; ++i) {
      if (state[i] & 1) continue;
      int64_t end = i + 1;
      while (end < stop - page && (end - i) * kPage < kStep && !(state[end] & 1)) ++end;
      // The advice may be rejected; pages are then read on access.
      (void)madvise(at + i * kPage, smaller(end * kPage, bytes) - i * kPage, MADV_WILLNEED);
      ++num_requests;
      i = end - 1;
    }
    return num_requests;
  }

  ConstBytes source_;
  Bytes prefetched_;
};

}  // namespace

#endif

int64_t read_ahead(ConstBytes source, ConstInts position, ConstInts size, Bytes prefetched) {
  const int64_t count = position.size;
  if (size.size != count) return fail(kBadCount, 0);
  for (int64_t i = 0; i < count; ++i) {
    if (!within(position.data[i], size.data[i], source.size)) return fail(kOutOfSource, i);
  }
  int64_t num_requests = 0;
#if LANCELET_CAN_READ_AHEAD
  Pages pages(source, prefetched);
  // Maps are page-aligned; other memory is not prefetched.
  if (reinterpret_cast<uintptr_t>(source.data) % kPage != 0) return 0;
  for (int64_t i = 0; i < count; ++i) num_requests += pages.prefetch(position.data[i], size.data[i]);
#else
  (void)prefetched;
#endif
  return num_requests;
}

}  // namespace LANCELET_NAMESPACE
