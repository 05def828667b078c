#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/clock.h"
#include "base/log_fields.h"
#include "base/mutex.h"

namespace slime::ctrl {

// Writes audit lines to the log (component "audit"): actions of peers and operators, and refusals.
// Writes at most `rate` lines and drops the others, since clients could otherwise flood the log; a
// line with the number of dropped lines precedes the next audit line. Thread: any.
class Audit {
 public:
  struct Rate {
    double per_second = 0;
    double burst = 0;
  };
  // Rate for refused requests: enough to notice an attack, and at most about 100 MB of log a day.
  static constexpr Rate kRefusals = {.per_second = 2, .burst = 200};
  // Rate for accepted changes. The burst is large, because all agents of a registry may register at
  // once.
  static constexpr Rate kChanges = {.per_second = 20, .burst = 20'000};

  explicit Audit(Rate rate, const Clock& clock = steady_clock());
  // Writes one line. Returns false if the line was dropped because of the rate.
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
