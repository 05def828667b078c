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

void UnmapPages::operator()(std::byte* data) const { munmap(data, size); }

Result<Pages> Pages::map(UniqueFd fd, std::size_t bytes) {
  const int flags = (fd.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE;
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
  if (data == MAP_FAILED) return from_errno("mmap", errno);
  Pages out;
  out.data_ = {static_cast<std::byte*>(data), UnmapPages{bytes}};
  out.fd_ = std::move(fd);
  return out;
}

Result<Pages> Pages::create(std::size_t bytes) {
  auto out = map({}, bytes);
  // All unwritten pages are one page of zeros, which stays in the cache; and some processors store
  // lines of zeros twice as fast as others.
  if (out) Rng(kSeed).fill(out->bytes());
  return out;
}

Result<Pages> Pages::create_shared(std::size_t bytes) {
  UniqueFd fd(memfd_create("slime-bench", MFD_CLOEXEC));
  if (!fd.valid()) return from_errno("memfd_create", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return from_errno("ftruncate", errno);
  return map(std::move(fd), bytes);
}

Result<Pages> Pages::open_shared(int pid, int fd, std::size_t bytes) {
  const std::string path = str("/proc/", pid, "/fd/", fd);
  UniqueFd own(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!own.valid()) return from_errno(path, errno);
  return map(std::move(own), bytes);
}

}  // namespace slime::bench
