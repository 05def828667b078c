#include "transport/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/str.h"

namespace slime::transport::shm {

Result<SharedMemory> SharedMemory::create(std::size_t bytes, UniqueFd& fd) {
  fd = UniqueFd(memfd_create("slime-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return from_errno("memfd_create", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return from_errno(str("ftruncate of a memfd to ", bytes, " bytes"), errno);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return from_errno("sealing a memfd", errno);
  return map_whole(fd.get(), bytes, Access::kWrite);
}

Result<SharedMemory> SharedMemory::map(int fd, std::size_t bytes, Access access) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Status(Code::kCorrupt, "shared memory that is no memfd, or could shrink under us");
  struct stat state {};
  if (fstat(fd, &state) != 0) return from_errno("fstat of a memfd", errno);
  if (state.st_size != static_cast<off_t>(bytes))
    return Status(Code::kCorrupt, str("shared memory of ", state.st_size, " bytes, announced as ", bytes));
  return map_whole(fd, bytes, access);
}

Result<SharedMemory> SharedMemory::map_whole(int fd, std::size_t bytes, Access access) {
  const int protection = access == Access::kWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* address = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return from_errno(str("mmap of ", bytes, " bytes"), errno);
  SharedMemory out;
  out.data_ = static_cast<std::byte*>(address);
  out.bytes_ = bytes;
  return out;
}

void SharedMemory::unmap_end(std::size_t bytes) {
  if (bytes >= bytes_) return unmap();
  // Whole pages from the front stay, whatever the size of the last one.
  const std::size_t left = (bytes_ - bytes) / bytes * bytes;
  if (left == 0) return unmap();
  munmap(data_ + left, bytes_ - left);
  bytes_ = left;
}

void SharedMemory::unmap() {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace slime::transport::shm
