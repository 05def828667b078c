#include "transport/shm/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <limits>

#include "base/str.h"

namespace slime::transport::shm {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t page) { return (bytes + page - 1) / page * page; }

// Returns the page size of a file of huge pages. Returns 1 for a file of ordinary pages, whose size
// need not be a multiple of the page size.
Result<std::size_t> huge_page_of(int fd) {
  struct statfs state {};
  if (fstatfs(fd, &state) != 0) return from_errno("fstatfs of a memfd", errno);
  if (static_cast<unsigned long>(state.f_type) != HUGETLBFS_MAGIC || state.f_bsize <= 0)
    return std::size_t{1};
  return static_cast<std::size_t>(state.f_bsize);
}

}  // namespace

Result<SharedMemory> SharedMemory::create(std::size_t bytes, UniqueFd& fd) {
  fd = UniqueFd(memfd_create("slime-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return from_errno("memfd_create", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return from_errno(str("ftruncate of a memfd to ", bytes, " bytes"), errno);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return from_errno("sealing a memfd", errno);
  return map_whole(fd.get(), bytes, 1, Access::kWrite);
}

Result<SharedMemory> SharedMemory::map(int fd, std::size_t bytes, Access access) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Status(Code::kCorrupt, "shared memory that is no memfd, or could shrink under us");
  struct stat state {};
  if (fstat(fd, &state) != 0) return from_errno("fstat of a memfd", errno);
  const Result<std::size_t> page = huge_page_of(fd);
  if (!page) return page.error();
  if (bytes > static_cast<std::size_t>(std::numeric_limits<off_t>::max()) - *page ||
      state.st_size != static_cast<off_t>(round_up(bytes, *page)))
    return Status(Code::kCorrupt, str("shared memory of ", state.st_size, " bytes, announced as ", bytes));
  return map_whole(fd, bytes, *page, access);
}

Result<SharedMemory> SharedMemory::map_whole(int fd, std::size_t bytes, std::size_t page, Access access) {
  const std::size_t mapped = round_up(bytes, page);
  const int protection = access == Access::kWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = mmap(nullptr, mapped, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return from_errno(str("mmap of ", bytes, " bytes"), errno);
  SharedMemory out;
  out.data_ = static_cast<std::byte*>(address);
  out.bytes_ = bytes;
  out.mapped_ = mapped;
  out.page_ = page;
  return out;
}

void SharedMemory::unmap_end(std::size_t bytes) {
  const std::size_t step = round_up(bytes, page_);
  if (step >= bytes_) return unmap();
  // Keeps a multiple of `step` bytes at the front, so that only the first call has to deal with an
  // incomplete piece.
  const std::size_t left = (bytes_ - step) / step * step;
  if (left == 0) return unmap();
  munmap(data_ + left, mapped_ - left);
  bytes_ = left;
  mapped_ = left;
}

void SharedMemory::unmap() {
  if (data_ != nullptr) munmap(data_, mapped_);
  data_ = nullptr;
  bytes_ = 0;
  mapped_ = 0;
}

}  // namespace slime::transport::shm
