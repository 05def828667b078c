#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport::shm {

enum class Access { kRead, kWrite };

// A mapping of a memfd that two processes share and neither can shrink: touching it never faults, whatever
// the other one does. Thread: one at a time.
class SharedMemory {
 public:
  SharedMemory() = default;
  // New and zeroed; `fd` is what the other process maps.
  static Result<SharedMemory> create(std::size_t bytes, UniqueFd& fd);
  // Somebody else's. kCorrupt when it has another size, or could shrink.
  static Result<SharedMemory> map(int fd, std::size_t bytes, Access access = Access::kWrite);
  SharedMemory(SharedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    if (this != &other) {
      unmap();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~SharedMemory() { unmap(); }

  // Unmaps so much of its end, a multiple of the page; all of it if it is no longer than that.
  void unmap_end(std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  static Result<SharedMemory> map_whole(int fd, std::size_t bytes, Access access);
  void unmap();

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace slime::transport::shm
