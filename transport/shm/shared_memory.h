#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport::shm {

enum class Access { kRead, kWrite };

// A mapping of a memfd that two processes share and that neither process can shrink: touching it
// never faults, whatever the other process does. Thread: one at a time.
class SharedMemory {
 public:
  SharedMemory() = default;
  // Makes new, zeroed memory; the other process maps `fd`.
  static Result<SharedMemory> create(std::size_t bytes, UniqueFd& fd);
  // Maps memory of another process. kCorrupt when it has another size, or could shrink. With huge
  // pages, the size is the next multiple of a page.
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

  // Unmaps this many bytes at the end, a multiple of the page, but at least one page; all memory if
  // it is not longer.
  void unmap_end(std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  // `page`: the size of the memfd is a multiple of this.
  static Result<SharedMemory> map_whole(int fd, std::size_t bytes, std::size_t page, Access access);
  void unmap();

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t mapped_ = 0;  // including the rest of the last huge page
  std::size_t page_ = 1;
};

}  // namespace slime::transport::shm
