// Maps a file for reading without keeping it open.
//
// Python's own maps keep a descriptor of their file for as long as they live, and a process may
// often have no more than 1,024 of these. A table has as many files as it likes, and arrays keep
// the maps that they were read from, so a map here is nothing but its address.
#include "kernel.hpp"

#if defined(__linux__) || defined(__APPLE__)
#include <errno.h>
#include <sys/mman.h>
#define LANCELET_CAN_MAP 1
#endif

namespace LANCELET_NAMESPACE {

int64_t map_file(int64_t handle, int64_t size) {
#if LANCELET_CAN_MAP
  if (size <= 0 || handle < 0) return -EINVAL;
  void* at = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED,
                  static_cast<int>(handle), 0);
  return at == MAP_FAILED ? -errno : static_cast<int64_t>(reinterpret_cast<uintptr_t>(at));
#else
  (void)handle;
  (void)size;
  return 0;
#endif
}

int64_t unmap_file(int64_t address, int64_t size) {
#if LANCELET_CAN_MAP
  void* at = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  return munmap(at, static_cast<size_t>(size)) == 0 ? 0 : -errno;
#else
  (void)address;
  (void)size;
  return 0;
#endif
}

// The map stays, and so do the bytes: whoever looks at them again has their pages mapped anew. Only
// for maps of files, since other memory would be emptied.
int64_t forget_pages(int64_t address, int64_t size) {
#if LANCELET_CAN_MAP
  void* at = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  return madvise(at, static_cast<size_t>(size), MADV_DONTNEED) == 0 ? 0 : -errno;
#else
  (void)address;
  (void)size;
  return 0;
#endif
}

}  // namespace LANCELET_NAMESPACE
