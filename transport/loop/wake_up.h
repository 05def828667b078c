#pragma once

#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport {

// Waits until a descriptor is readable, or for `time`. Returns whether it is readable.
bool wait_readable(int fd, Nanos time);

// A descriptor that becomes readable by signal(), and stays readable until drain(). Thread: any.
class WakeUp {
 public:
  static Result<WakeUp> create();
  void signal() const;
  void drain() const;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit WakeUp(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace slime::transport
