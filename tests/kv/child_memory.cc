#include "tests/kv/child_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/str.h"
#include "base/unique_fd.h"

namespace slime::kv::fire {
namespace {

struct Place {
  std::uint64_t inode = 0;
  std::uint64_t offset = 0;
};

// Returns the file and the offset that the process has mapped at `address`.
Result<Place> find_mapping(pid_t pid, std::uint64_t address) {
  std::ifstream maps(str("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0, end = 0, offset = 0, inode = 0;
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %*s %" SCNu64, &begin, &end,
                    &offset, &inode) != 4)
      continue;
    if (begin <= address && address < end && inode != 0) return Place{inode, offset + (address - begin)};
  }
  return Status(Code::kNotFound, str("process ", pid, " has no file mapped at ", address));
}

// Opens the descriptor of the process for a memfd.
Result<UniqueFd> open_memfd(pid_t pid, std::uint64_t inode) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(str("/proc/", pid, "/fd"), ignored)) {
    struct stat about {};
    if (::stat(entry.path().c_str(), &about) != 0 || about.st_ino != inode) continue;
    if (std::filesystem::read_symlink(entry.path(), ignored).string().find("memfd:") == std::string::npos)
      continue;
    UniqueFd fd(::open(entry.path().c_str(), O_RDWR | O_CLOEXEC));
    if (fd.get() >= 0) return fd;
    return from_errno(entry.path().string(), errno);
  }
  return Status(Code::kNotFound, str("process ", pid, " has no memfd ", inode));
}

}  // namespace

Result<SharedView> SharedView::of(pid_t pid, std::uint64_t address, std::uint64_t size) {
  const auto place = find_mapping(pid, address);
  if (!place) return place.status();
  const auto fd = open_memfd(pid, place->inode);
  if (!fd) return fd.status();
  void* const at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd->get(),
                          static_cast<off_t>(place->offset));
  if (at == MAP_FAILED) return from_errno("mmap", errno);
  return SharedView(MutableBytes(static_cast<std::byte*>(at), size));
}

SharedView::~SharedView() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace slime::kv::fire
