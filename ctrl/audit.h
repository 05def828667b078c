#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/clock.h"
#include "base/log_fields.h"
#include "base/mutex.h"

namespace slime::ctrl {

// Writes audit lines to the log (component "audit"): what a peer or operator did, or was refused.
// At most `rate` lines are written; the next line that is written says how many were left out.
// Clients cause these lines, so without the limit one client could flood the log. Thread: any.
class Audit {
 public:
  struct Rate {
    double per_second = 0;
    double burst = 0;
  };
  // Enough to notice an attack; at most some 100 MB of log a day.
  static constexpr Rate kRefusals = {.per_second = 2, .burst = 200};
  // All agents of a registry may register at once; each has a token, or no token is needed.
  static constexpr Rate kChanges = {.per_second = 20, .burst = 20'000};

  explicit Audit(Rate rate, const Clock& clock = steady_clock());
  // Returns false if the line was left out.
  bool operator()(std::string_view text, std::initializer_list<LogField> fields);

 private:
  const Rate rate_;
  const Clock& clock_;
  Mutex mutex_;
  double room_ SLIME_GUARDED_BY(mutex_);
  TimePoint filled_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t left_out_ SLIME_GUARDED_BY(mutex_) = 0;
};

}  // namespace slime::ctrl
