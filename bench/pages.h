#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::bench {

struct UnmapPages {
  std::size_t size = 0;
  void operator()(std::byte* data) const;
};

// Memory of the program's own: whole pages, all touched. Shared memory is a memfd, which another
// process maps through /proc. Movable. Thread: any.
class Pages {
 public:
  // kResourceExhausted when the machine lacks the memory.
  static Result<Pages> create(std::size_t bytes);
  static Result<Pages> create_shared(std::size_t bytes);
  // Maps the memory of descriptor `fd` of process `pid`.
  static Result<Pages> open_shared(int pid, int fd, std::size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return data_.get_deleter().size; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data(), size()}; }
  [[nodiscard]] int fd() const { return fd_.get(); }  // of shared memory, until this is destroyed

 private:
  static Result<Pages> map(UniqueFd fd, std::size_t bytes);
  std::unique_ptr<std::byte, UnmapPages> data_;
  UniqueFd fd_;
};

}  // namespace slime::bench
