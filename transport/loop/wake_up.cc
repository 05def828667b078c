#include "transport/loop/wake_up.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace slime::transport {

bool wait_readable(int fd, Nanos time) {
  pollfd readable{fd, POLLIN, 0};
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec limit{whole.count(), (time - whole).count()};
  return ::ppoll(&readable, 1, &limit, nullptr) > 0;
}

Result<WakeUp> WakeUp::create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return from_errno("eventfd", errno);
  return WakeUp(std::move(fd));
}

void WakeUp::signal() const {
  const std::uint64_t one = 1;
  // A full counter (EAGAIN) means that the descriptor is readable already.
  [[maybe_unused]] const ssize_t n = ::write(fd_.get(), &one, sizeof one);
}

void WakeUp::drain() const {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace slime::transport
