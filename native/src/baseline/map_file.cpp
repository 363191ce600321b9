// Memory maps without an open file descriptor.
//
// Python's maps hold a file descriptor, and processes are often limited to 1,024. A table can have
// more files than that, and arrays keep the maps they were read from, so a map here is only an
// address.
//
// If a file is truncated, access to a page beyond its end raises SIGBUS, which would terminate the
// process. Maps are registered here, and a SIGBUS handler replaces the rest of the map with zero
// pages. Readers of a map must check afterwards that the file still has its size.
#include "kernel.hpp"

#if defined(__linux__) || defined(__APPLE__)
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#define LANCELET_CAN_MAP 1
#endif

namespace LANCELET_NAMESPACE {

#if LANCELET_CAN_MAP

namespace {

// A hash table of maps. Blocks are never freed, so the signal handler can read them without a lock.
// Removed entries keep a tombstone.
struct Slot {
  std::atomic<uintptr_t> start;
  std::atomic<uintptr_t> size;
};

constexpr uintptr_t kFree = 0, kGone = 1;
constexpr uintptr_t kSlots = 4096;
constexpr uintptr_t kHashMultiplier = 0x9E3779B1u;

struct Block {
  Slot slots[kSlots];
  std::atomic<Block*> next;
};

Block first_block;
std::mutex registering;
struct sigaction before;

// Maps zero pages from an address to the end of its map. Returns false for unregistered addresses.
bool fill_with_zeros(uintptr_t address) {
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    for (Slot& slot : block->slots) {
      const uintptr_t start = slot.start.load();
      const uintptr_t size = slot.size.load();
      if (start <= kGone || address < start || address - start >= size) continue;
      const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
      const uintptr_t from = address / page * page;
      const uintptr_t stop = (start + size + page - 1) / page * page;
      return mmap(reinterpret_cast<void*>(from), stop - from, PROT_READ,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
  }
  return false;
}

void on_bus_error(int signal_number, siginfo_t* info, void* context) {
  const int saved = errno;
  const bool is_sent = info->si_code <= 0;
  const bool is_ours = !is_sent && fill_with_zeros(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = saved;
  // A handler installed later, such as faulthandler's, reports and raises the signal again. The
  // access is then retried and reaches this handler with its address.
  if (is_ours || (is_sent && info->si_pid == getpid())) return;
  (void)context;
  // Not a registered map: restore the previous handler and retry the access.
  sigaction(signal_number, &before, nullptr);
  if (is_sent) raise(signal_number);
}

void install() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}

// Returns the slot of a map, else a free slot or tombstone, or null if the block is full.
Slot* find_slot(Block* block, uintptr_t start) {
  Slot* vacant = nullptr;
  for (uintptr_t i = 0; i < kSlots; ++i) {
    Slot* slot = &block->slots[((start >> 12) * kHashMultiplier + i) % kSlots];
    const uintptr_t found = slot->start.load();
    if (found == start) return slot;
    if (vacant == nullptr && found <= kGone) vacant = slot;
    if (found == kFree) break;
  }
  return vacant;
}

bool add_map(uintptr_t start, uintptr_t size) {
  static std::once_flag installed;
  std::call_once(installed, install);
  const std::lock_guard<std::mutex> lock(registering);
  for (Block* block = &first_block;;) {
    Slot* slot = find_slot(block, start);
    if (slot != nullptr) {
      slot->size.store(size);
      slot->start.store(start);
      return true;
    }
    Block* next = block->next.load();
    if (next == nullptr) {
      next = static_cast<Block*>(calloc(1, sizeof(Block)));
      if (next == nullptr) return false;
      block->next.store(next);
    }
    block = next;
  }
}

void remove_map(uintptr_t start) {
  const std::lock_guard<std::mutex> lock(registering);
  for (Block* block = &first_block; block != nullptr; block = block->next.load()) {
    Slot* slot = find_slot(block, start);
    if (slot == nullptr || slot->start.load() != start) continue;
    slot->start.store(kGone);
    return;
  }
}

}  // namespace

#endif

int64_t map_file(int64_t handle, int64_t size) {
#if LANCELET_CAN_MAP
  if (size <= 0 || handle < 0) return -EINVAL;
  void* at = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED,
                  static_cast<int>(handle), 0);
  if (at == MAP_FAILED) return -errno;
  if (!add_map(reinterpret_cast<uintptr_t>(at), static_cast<uintptr_t>(size))) {
    munmap(at, static_cast<size_t>(size));
    return -ENOMEM;
  }
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at));
#else
  (void)handle;
  (void)size;
  return 0;
#endif
}

int64_t unmap_file(int64_t address, int64_t size) {
#if LANCELET_CAN_MAP
  remove_map(static_cast<uintptr_t>(address));
  void* at = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  return munmap(at, static_cast<size_t>(size)) == 0 ? 0 : -errno;
#else
  (void)address;
  (void)size;
  return 0;
#endif
}

// The map stays valid; its pages are mapped again on access. The address must be page-aligned and
// part of a file map, since anonymous memory would lose its content.
int64_t release_pages(int64_t address, int64_t size) {
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
