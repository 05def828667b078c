#include "transport/shm/gate.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <span>
#include <string_view>

#include "base/random.h"
#include "base/str.h"
#include "base/unique_fd.h"
#include "transport/limits.h"

namespace slime::transport::shm {
namespace {

// A range of addresses that programs, their heaps and the kernel's own choice of mappings never
// use. The thread sanitizer allows no mapping there, so a lower range is used with it.
#if defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kLowest = std::uint64_t{1} << 36;
constexpr std::uint64_t kSpan = std::uint64_t{1} << 37;
#else
constexpr std::uint64_t kLowest = std::uint64_t{0x11} << 40;
constexpr std::uint64_t kSpan = std::uint64_t{1} << 45;
#endif

std::atomic<std::size_t> gates{0};  // of this process

std::uint64_t page_bytes() {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

void* at(std::uint64_t address) { return std::bit_cast<void*>(static_cast<std::uintptr_t>(address)); }

// Maps a gate at a random address. Returns 0 if that address is taken, such as by another gate.
std::uint64_t map_somewhere() {
  std::uint64_t random = 0;
  random_bytes(std::as_writable_bytes(std::span(&random, 1)));
  const std::uint64_t wanted = kLowest + (random % kSpan) / page_bytes() * page_bytes();
  const auto bytes = static_cast<std::size_t>(2 * page_bytes());
  void* const got =
      ::mmap(at(wanted), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == at(wanted) && ::madvise(got, bytes, MADV_DONTFORK) == 0) return wanted;
  if (got != MAP_FAILED) ::munmap(got, bytes);
  return 0;
}

}  // namespace

Gate Gate::open() {
  if (gates.fetch_add(1, std::memory_order_relaxed) < limits::kGates) {
    for (int tries = 0; tries < 4; ++tries) {
      if (const std::uint64_t address = map_somewhere()) return Gate(address);
    }
  }
  gates.fetch_sub(1, std::memory_order_relaxed);
  return {};
}

Gate::~Gate() {
  if (address_ == 0) return;
  close();
  ::munmap(at(address_ + page_bytes()), static_cast<std::size_t>(page_bytes()));
  gates.fetch_sub(1, std::memory_order_relaxed);
}

void Gate::close() {
  if (address_ == 0 || std::exchange(closed_, true)) return;
  ::munmap(at(address_), static_cast<std::size_t>(page_bytes()));
}

std::uint64_t Gate::over() const {
  auto* const word = static_cast<std::uint64_t*>(at(last_word(address_)));
  return std::atomic_ref(*word).load(std::memory_order_seq_cst);
}

std::uint64_t Gate::last_word(std::uint64_t gate) { return gate + page_bytes(); }

// Reads the thread's state from /proc. The state follows the thread's name, which is in parentheses
// and may itself have any characters.
bool is_stopped(int process, int thread) {
  const UniqueFd file(
      ::open(str("/proc/", process, "/task/", thread, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  std::array<char, 512> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got <= 0) return false;
  const std::string_view line(text.data(), static_cast<std::size_t>(got));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= line.size()) return false;
  return line[name_end + 2] == 'T' || line[name_end + 2] == 't';
}

}  // namespace slime::transport::shm
