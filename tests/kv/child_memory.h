#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace slime::kv::fire {

// A mapping of shared memory that another process made: its bytes can be seen when it is dead.
class SharedView {
 public:
  // Maps `size` bytes that process `pid` has at `address`, which are in one memfd.
  static Result<SharedView> of(pid_t pid, std::uint64_t address, std::uint64_t size);
  SharedView(SharedView&& other) noexcept : bytes_(other.bytes_) { other.bytes_ = {}; }
  SharedView& operator=(SharedView&&) = delete;
  ~SharedView();
  [[nodiscard]] MutableBytes bytes() const { return bytes_; }

 private:
  explicit SharedView(MutableBytes bytes) : bytes_(bytes) {}
  MutableBytes bytes_;
};

}  // namespace slime::kv::fire
