#pragma once

#include <semaphore.h>

#include <cerrno>

#include "base/check.h"

namespace slime {

// A counting semaphore that begins at 0. post() never blocks, unlike notify_one() of a condition
// variable: glibc makes that wait for threads that it woke earlier and that have not run yet.
// Thread: any.
class Semaphore {
 public:
  Semaphore() { SLIME_CHECK(::sem_init(&semaphore_, 0, 0) == 0); }
  Semaphore(const Semaphore&) = delete;
  Semaphore& operator=(const Semaphore&) = delete;
  ~Semaphore() { ::sem_destroy(&semaphore_); }

  // Adds one, and wakes a thread that waits.
  void post() { SLIME_CHECK(::sem_post(&semaphore_) == 0); }
  // Waits until the count is positive, and subtracts one.
  void wait() {
    while (::sem_wait(&semaphore_) != 0) SLIME_CHECK(errno == EINTR);
  }

 private:
  sem_t semaphore_;
};

}  // namespace slime
