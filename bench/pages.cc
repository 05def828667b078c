#include "bench/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/random.h"
#include "base/str.h"
#include "bench/shared.h"

namespace slime::bench {

Result<Pages> Pages::map(int fd, std::size_t bytes) {
  Pages out;
  out.fd_ = fd;
  const int flags = (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | MAP_POPULATE;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) return from_errno("mmap", errno);
  out.data_ = static_cast<std::byte*>(data);
  out.size_ = bytes;
  return out;
}

Result<Pages> Pages::create(std::size_t bytes) {
  auto out = map(-1, bytes);
  // All unwritten pages are one page of zeros, which stays in the cache; and some processors store
  // lines of zeros twice as fast as others.
  if (out) Rng(kSeed).fill(MutableBytes(out->data_, bytes));
  return out;
}

Result<Pages> Pages::create_shared(std::size_t bytes) {
  const int fd = memfd_create("slime-bench", MFD_CLOEXEC);
  if (fd < 0) return from_errno("memfd_create", errno);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    Status failed = from_errno("ftruncate", errno);
    ::close(fd);
    return failed;
  }
  return map(fd, bytes);
}

Result<Pages> Pages::open_shared(int pid, int fd, std::size_t bytes) {
  const std::string path = str("/proc/", pid, "/fd/", fd);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return from_errno(path, errno);
  return map(own, bytes);
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, size_);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace slime::bench
