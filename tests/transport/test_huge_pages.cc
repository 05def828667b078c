// Memory of huge pages: what the pool refuses, and that what it gave never fails. The tests of real
// memory run where the machine's pool has pages.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/str.h"
#include "tests/support/bytes.h"
#include "tests/transport/huge_pool.h"
#include "transport/owned_memory.h"
#include "transport/provider.h"
#include "transport/shm/shared_memory.h"

namespace slime::transport::testing {
namespace {

using shm::SharedMemory;
using test::all_are;

HugePages parsed(const std::string& text) {
  std::istringstream in(text);
  return parse_huge_pages(in);
}

Bytes bytes_of(const OwnedMemory& memory) { return {memory.data(), memory.size()}; }

OwnedMemory huge(std::size_t bytes) {
  auto made = OwnedMemory::create(bytes, Pages::kHuge);
  REQUIRE_MESSAGE(made.has_value(), made.status().to_string());
  return std::move(*made);
}

// Opened as a peer gets it.
UniqueFd opened(const OwnedMemory& memory, int access) {
  return UniqueFd(::open(str("/proc/self/fd/", memory.fd()).c_str(), access | O_CLOEXEC));
}

TEST_CASE("the pool is read from /proc/meminfo, and what it does not tell is zero") {
  const HugePages pool = parsed(
      "MemTotal:       16384 kB\nHugePages_Total:      12\nHugePages_Free:        7\nHugePages_Rsvd:        "
      "3\n"
      "HugePages_Surp:        0\nHugepagesize:       2048 kB\nHugetlb:         24576 kB\n");
  CHECK(pool.page_bytes == 2 << 20);
  CHECK(pool.total == 12);
  CHECK(pool.free == 7);
  CHECK(pool.available() == 4);
  CHECK(parsed("").page_bytes == 0);
  CHECK(parsed("HugePages_Free: 2\nHugePages_Rsvd: 3\n").available() == 0);
  CHECK(parsed("Hugepagesize: 99999999999999999999999 kB\nHugePages_Total: x\n").page_bytes == 0);
}

TEST_CASE("a pool with too few pages is refused with what is needed, what is free, and the command") {
  const HugePages pool{.page_bytes = 2 << 20, .total = 12, .free = 7, .reserved = 3};
  const Status status = no_huge_pages(pool, 5 * (2 << 20) + 1);
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK(status.text() ==
        "10485761 bytes take 6 huge pages of 2048 KiB; 4 of this machine's 12 are free; as root: "
        "sysctl vm.nr_hugepages=14");
  // The pool has them: then another limit has said no.
  CHECK(no_huge_pages(pool, 2 << 20).text().find("control group") != std::string::npos);
}

// The whole pool, what it may grow by, and one page.
std::size_t too_much(const HugePages& pool) {
  std::uint64_t more = 0;
  std::ifstream("/proc/sys/vm/nr_overcommit_hugepages") >> more;
  return (pool.total + more + 1) * pool.page_bytes;
}

TEST_CASE("every device refuses more huge pages than there are, when they are asked for, and takes none") {
  const HugePool pool;
  const HugePages& before = pool.state;
  for (const char* name : {"tcp", "shm", "sim"}) {
    CAPTURE(name);
    auto provider = make_provider(name);
    REQUIRE(provider.has_value());
    auto device = (*provider)->open_device();
    REQUIRE(device.has_value());
    if (before.page_bytes == 0) {
      const auto made = (*device)->allocate(4096, Rights::kLocal, MemoryKind::kHost, Pages::kHuge);
      CHECK(made.status().code() == Code::kUnimplemented);
      continue;
    }
    const auto made = (*device)->allocate(too_much(before), Rights::kLocal, MemoryKind::kHost, Pages::kHuge);
    CHECK(made.status().code() == Code::kResourceExhausted);
    CHECK(made.status().text().find("sysctl vm.nr_hugepages=") != std::string::npos);
    CHECK(read_huge_pages().free == before.free);
  }
}

TEST_CASE("no bytes, and more than there can be, are no huge pages either") {
  CHECK(OwnedMemory::create(0, Pages::kHuge).status().code() == Code::kInvalidArgument);
  const auto most = static_cast<std::size_t>(std::numeric_limits<off_t>::max());
  CHECK_FALSE(OwnedMemory::create(most, Pages::kHuge).has_value());
}

TEST_CASE("memory of huge pages has the length that was asked for, is zeroed, and takes its pages at once") {
  const HugePool pool;
  if (!pool.has(3)) return;
  const HugePages& before = pool.state;
  const std::size_t page = before.page_bytes;
  {
    const OwnedMemory memory = huge(2 * page + 5);
    CHECK(memory.size() == 2 * page + 5);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % page == 0);
    CHECK(all_are(bytes_of(memory), std::byte{0}));
    struct stat state {};
    REQUIRE(::fstat(memory.fd(), &state) == 0);
    CHECK(state.st_size == static_cast<off_t>(3 * page));
    const HugePages now = read_huge_pages();
    CHECK(now.free == before.free - 3);
    CHECK(now.reserved == before.reserved);
  }
  CHECK(read_huge_pages().free == before.free);
}

TEST_CASE("with the pool empty, nobody who touches huge pages that were given fails") {
  const HugePool pool;
  if (!pool.has(4)) return;
  const std::size_t page = pool.state.page_bytes;
  const OwnedMemory memory = huge(page + 1);
  const OwnedMemory rest = huge(read_huge_pages().available() * page);
  REQUIRE(read_huge_pages().available() == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::memset(memory.data(), 0x33, memory.size());
    const UniqueFd fd = opened(memory, O_RDWR);
    const auto window = SharedMemory::map(fd.get(), memory.size());
    if (!window) _exit(2);
    std::memset(window->data(), 0x44, window->size());
    _exit(0);
  }
  int state = 0;
  REQUIRE(::waitpid(child, &state, 0) == child);
  REQUIRE(WIFEXITED(state));
  CHECK(WEXITSTATUS(state) == 0);
  CHECK(all_are(bytes_of(memory), std::byte{0x44}));
}

TEST_CASE(
    "a peer maps huge pages by the length that it was told, and with no more rights than it was given") {
  const HugePool pool;
  if (!pool.has(2)) return;
  const std::size_t page = pool.state.page_bytes;
  const OwnedMemory memory = huge(page + 5);
  const UniqueFd reading = opened(memory, O_RDONLY);
  REQUIRE(reading.valid());
  CHECK(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, reading.get(), 0) == MAP_FAILED);
  std::memset(memory.data(), 0x55, memory.size());
  const auto window = SharedMemory::map(reading.get(), page + 5, shm::Access::kRead);
  REQUIRE_MESSAGE(window.has_value(), window.status().to_string());
  CHECK(window->size() == page + 5);
  CHECK(all_are({window->data(), window->size()}, std::byte{0x55}));
  for (const std::size_t lie : {page, 2 * page + 1, std::size_t{0}, std::numeric_limits<std::size_t>::max()})
    CHECK(SharedMemory::map(reading.get(), lie, shm::Access::kRead).status().code() == Code::kCorrupt);
}

TEST_CASE("windows of huge pages are unmapped in whole ones") {
  const HugePool pool;
  if (!pool.has(3)) return;
  const std::size_t page = pool.state.page_bytes;
  const OwnedMemory memory = huge(3 * page - 5);
  const UniqueFd fd = opened(memory, O_RDWR);
  auto window = SharedMemory::map(fd.get(), memory.size());
  REQUIRE(window.has_value());
  std::byte* const begin = window->data();
  window->unmap_end(4096);
  CHECK(window->size() == page);
  // mincore() fails where nothing is mapped.
  unsigned char there = 0;
  CHECK(::mincore(begin, 4096, &there) == 0);
  CHECK(::mincore(begin + page, 4096, &there) != 0);
  CHECK(::mincore(begin + 2 * page, 4096, &there) != 0);
  window->unmap_end(4096);
  CHECK_FALSE(static_cast<bool>(*window));
  CHECK(::mincore(begin, 4096, &there) != 0);
}

TEST_CASE("huge pages part from who has them mapped, with the same bytes at the same address") {
  const HugePool pool;
  if (!pool.has(4)) return;
  const std::size_t page = pool.state.page_bytes;
  OwnedMemory memory = huge(page + 5);
  const UniqueFd fd = opened(memory, O_RDWR);
  const auto window = SharedMemory::map(fd.get(), memory.size());
  REQUIRE(window.has_value());
  std::memset(memory.data(), 0x22, memory.size());
  std::byte* const data = memory.data();
  REQUIRE(memory.part().ok());
  CHECK(memory.data() == data);
  CHECK(all_are(bytes_of(memory), std::byte{0x22}));
  std::memset(window->data(), 0xee, window->size());
  CHECK(all_are(bytes_of(memory), std::byte{0x22}));
  std::memset(memory.data(), 0x11, memory.size());
  CHECK(all_are({window->data(), window->size()}, std::byte{0xee}));
}

TEST_CASE("huge pages that cannot part, because the pool has no more, stay as they are") {
  const HugePool pool;
  if (!pool.has(4)) return;
  const std::size_t page = pool.state.page_bytes;
  OwnedMemory memory = huge(page + 5);
  std::memset(memory.data(), 0x22, memory.size());
  const UniqueFd fd = opened(memory, O_RDWR);
  const auto window = SharedMemory::map(fd.get(), memory.size());
  REQUIRE(window.has_value());
  {
    const OwnedMemory rest = huge(read_huge_pages().available() * page);
    CHECK(memory.part().code() == Code::kResourceExhausted);
    std::memset(memory.data(), 0x33, memory.size());
    CHECK(all_are({window->data(), window->size()}, std::byte{0x33}));
  }
  CHECK(memory.part().ok());
}

}  // namespace
}  // namespace slime::transport::testing
