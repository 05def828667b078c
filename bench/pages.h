#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace slime::bench {

// Memory of the program's own: whole pages, all touched. Shared memory is a memfd, which another
// process maps through /proc. Movable. Thread: any.
class Pages {
 public:
  // kResourceExhausted when the machine lacks the memory.
  static Result<Pages> create(std::size_t bytes);
  static Result<Pages> create_shared(std::size_t bytes);
  // Maps the memory of descriptor `fd` of process `pid`.
  static Result<Pages> open_shared(int pid, int fd, std::size_t bytes);
  Pages() = default;
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] int fd() const { return fd_; }  // of shared memory, until this is destroyed

 private:
  static Result<Pages> map(int fd, std::size_t bytes);
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
};

}  // namespace slime::bench
