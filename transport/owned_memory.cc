#include "transport/owned_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <limits>

#include "base/str.h"

namespace slime::transport {

Result<OwnedMemory> OwnedMemory::create(std::size_t bytes) {
  if (bytes == 0 || bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()))
    return Status(Code::kInvalidArgument, str("cannot allocate ", bytes, " bytes"));
  OwnedMemory out;
  out.fd_ = UniqueFd(memfd_create("slime", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!out.fd_.valid()) return from_errno("memfd_create", errno);
  if (ftruncate(out.fd_.get(), static_cast<off_t>(bytes)) != 0)
    return from_errno(str("ftruncate of a memfd to ", bytes, " bytes"), errno);
  if (fcntl(out.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return from_errno("sealing a memfd", errno);
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, out.fd_.get(), 0);
  if (address == MAP_FAILED) return from_errno(str("mmap of ", bytes, " bytes"), errno);
  out.data_ = static_cast<std::byte*>(address);
  out.bytes_ = bytes;
  return out;
}

OwnedMemory& OwnedMemory::operator=(OwnedMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  fd_ = std::move(other.fd_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Status OwnedMemory::part() {
  // A private mapping still shows the memfd's pages. Each becomes our own when it is first written, also by
  // those who use the memory at this moment: nothing that they store is lost.
  void* const same = mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd_.get(), 0);
  if (same == MAP_FAILED) return from_errno(str("a private mapping of ", bytes_, " bytes"), errno);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < bytes_; at += page) {
    // A store that changes nothing. It is a comparison because compilers take other ones for a load.
    std::atomic_ref byte(*reinterpret_cast<unsigned char*>(data_ + at));
    unsigned char value = byte.load(std::memory_order_relaxed);
    while (!byte.compare_exchange_weak(value, value)) {
    }
  }
  return {};
}

void OwnedMemory::reset() {
  if (data_ != nullptr) munmap(data_, bytes_);
  leak();
}

void OwnedMemory::leak() {
  data_ = nullptr;
  bytes_ = 0;
  fd_ = UniqueFd();
}

}  // namespace slime::transport
