#pragma once

#include <cstdint>
#include <optional>

#include "base/unique_fd.h"

namespace slime::bench {

// Counts the instructions of the calling thread outside of the kernel, if the kernel lets this user
// count them. Thread: one.
class Instructions {
 public:
  Instructions();
  // Returns the instructions so far; nothing where they cannot be counted.
  [[nodiscard]] std::optional<std::uint64_t> count() const;

 private:
  UniqueFd counter_;
};

}  // namespace slime::bench
