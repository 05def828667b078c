#include "transport/owned_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "base/check.h"
#include "base/str.h"
#include "transport/huge_pages.h"

namespace slime::transport {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t page) { return (bytes + page - 1) / page * page; }

}  // namespace

Result<OwnedMemory> OwnedMemory::create(std::size_t bytes, Pages pages) {
  if (bytes == 0 || bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()))
    return Status(Code::kInvalidArgument, str("cannot allocate ", bytes, " bytes"));
  const bool huge = pages == Pages::kHuge;
  OwnedMemory out;
  out.page_ = huge ? read_huge_pages().page_bytes : static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  if (out.page_ == 0)
    return Status(Code::kUnimplemented, "this kernel has no huge pages: /proc/meminfo tells no Hugepagesize");
  out.mapped_ = huge ? round_up(bytes, out.page_) : bytes;
  if (out.mapped_ > static_cast<std::size_t>(std::numeric_limits<off_t>::max()))
    return Status(Code::kInvalidArgument, str("cannot allocate ", bytes, " bytes of huge pages"));
  out.fd_ = UniqueFd(memfd_create("slime", MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0U)));
  if (!out.fd_.valid()) return from_errno(huge ? "memfd_create of huge pages" : "memfd_create", errno);
  if (ftruncate(out.fd_.get(), static_cast<off_t>(out.mapped_)) != 0)
    return from_errno(str("ftruncate of a memfd to ", out.mapped_, " bytes"), errno);
  if (fcntl(out.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return from_errno("sealing a memfd", errno);
  void* address =
      mmap(nullptr, out.mapped_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, out.fd_.get(), 0);
  if (address == MAP_FAILED && huge && errno == ENOMEM) return no_huge_pages(read_huge_pages(), bytes);
  if (address == MAP_FAILED) return from_errno(str("mmap of ", out.mapped_, " bytes"), errno);
  out.data_ = static_cast<std::byte*>(address);
  out.bytes_ = bytes;
  if (huge) SLIME_TRY(out.check_filled());
  return out;
}

// Allocates missing huge pages, or returns why that is refused. mmap() has reserved the pages, but
// a control group or the process's NUMA nodes may still refuse them, which would otherwise show as
// SIGBUS at the first touch.
Status OwnedMemory::check_filled() const {
  int error = 0;
  do {
    error = fallocate(fd_.get(), 0, 0, static_cast<off_t>(mapped_)) == 0 ? 0 : errno;
  } while (error == EINTR);  // after EINTR, pages that were allocated already stay
  if (error == 0) return {};
  if (error == ENOSPC || error == ENOMEM) return no_huge_pages(read_huge_pages(), bytes_);
  return from_errno(str("taking ", mapped_, " bytes of huge pages"), error);
}

OwnedMemory& OwnedMemory::operator=(OwnedMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::move(other.fd_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  mapped_ = std::exchange(other.mapped_, 0);
  page_ = other.page_;
  return *this;
}

Status OwnedMemory::part() {
  SLIME_TRY(show_privately());
  for (std::size_t at = 0; at < bytes_; at += page_) {
    // Stores to the page without changing its bytes. Uses a compare-and-exchange, because compilers
    // turn other atomic operations that change nothing into a load.
    std::atomic_ref byte(*reinterpret_cast<unsigned char*>(data_ + at));
    unsigned char value = byte.load(std::memory_order_relaxed);
    while (!byte.compare_exchange_weak(value, value)) {
    }
  }
  return {};
}

// Maps the memfd privately at data_. A private mapping shows the pages of the memfd until the first
// write to a page, which makes that page private. This also holds for a write by a thread that uses
// the memory meanwhile: no write is lost.
Status OwnedMemory::show_privately() {
  const auto failed = [this](const char* what) {
    return from_errno(str(what, " of ", mapped_, " bytes"), errno);
  };
  if (page_ == static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    void* const same = mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd_.get(), 0);
    return same == MAP_FAILED ? failed("a private mapping") : Status();
  }
  // A mapping of huge pages reserves all of them. If the pool has too few, mmap() over the old
  // mapping removes it and then fails. So the new mapping is made elsewhere and then moved over the
  // old one. It is moved to an unused place first: a kernel that cannot move such mappings fails
  // there, before the old mapping is touched.
  void* const made = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd_.get(), 0);
  if (made == MAP_FAILED) return failed("a private mapping");
  const std::size_t room_bytes = mapped_ + page_;
  void* const room = mmap(nullptr, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    Status status = failed("address space for a private mapping");
    munmap(made, mapped_);
    return status;
  }
  const std::size_t skip =
      round_up(reinterpret_cast<std::uintptr_t>(room), page_) - reinterpret_cast<std::uintptr_t>(room);
  std::byte* const begin = static_cast<std::byte*>(room) + skip;
  void* const there = mremap(made, mapped_, mapped_, MREMAP_MAYMOVE | MREMAP_FIXED, begin);
  Status status = there == MAP_FAILED ? failed("moving a mapping") : Status();
  if (skip > 0) munmap(room, skip);
  if (skip < page_) munmap(begin + mapped_, page_ - skip);
  if (status.ok() && mremap(there, mapped_, mapped_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
    status = failed("moving a mapping home");
    // The kernel had no memory for its own tables. Maps the memfd at data_ again, because the old
    // mapping may be gone.
    SLIME_CHECK(mmap(data_, mapped_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_.get(), 0) == data_);
  }
  if (!status.ok()) munmap(there == MAP_FAILED ? made : there, mapped_);
  return status;
}

void OwnedMemory::reset() {
  if (data_ != nullptr) munmap(data_, mapped_);
  leak();
}

void OwnedMemory::leak() {
  data_ = nullptr;
  bytes_ = 0;
  mapped_ = 0;
  fd_ = UniqueFd();
}

}  // namespace slime::transport
