#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport::shm {

enum class Access { kRead, kWrite };

// A mapping of a memfd that two processes share and that neither can shrink: touching the memory
// never faults, even if the other process misbehaves. Thread: one at a time.
class SharedMemory {
 public:
  SharedMemory() = default;
  // Makes new, zeroed memory. `fd` is set to its memfd, which the other process maps.
  static Result<SharedMemory> create(std::size_t bytes, UniqueFd& fd);
  // Maps memory of another process. kCorrupt if the memfd could shrink, or does not have `bytes`
  // bytes, rounded up to a multiple of its huge pages.
  static Result<SharedMemory> map(int fd, std::size_t bytes, Access access = Access::kWrite);
  SharedMemory(SharedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapped_(std::exchange(other.mapped_, 0)),
        page_(other.page_) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    if (this != &other) {
      unmap();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      mapped_ = std::exchange(other.mapped_, 0);
      page_ = other.page_;
    }
    return *this;
  }
  ~SharedMemory() { unmap(); }

  // Unmaps `bytes` bytes at the end, rounded up to whole pages; all of the memory if it is not
  // longer. `bytes` is a multiple of the ordinary page size.
  void unmap_end(std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  // Maps `bytes` bytes, rounded up to a multiple of `page`.
  static Result<SharedMemory> map_whole(int fd, std::size_t bytes, std::size_t page, Access access);
  void unmap();

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t mapped_ = 0;  // length of the mapping: `bytes_`, rounded up to whole huge pages
  std::size_t page_ = 1;
};

}  // namespace slime::transport::shm
