#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <string_view>

#include "base/clock.h"
#include "base/log_fields.h"

namespace slime::ctrl {

// Lines of the log about who did what, or was refused it: the component is "audit". Whoever can cause them
// can cause many, so there are so many a second and no more; how many were left out is said with the next one
// that has room. Thread: any.
class Audit {
 public:
  struct Rate {
    double per_second = 0;
    double burst = 0;
  };
  // Enough to see an attack by: some 100 MB a day at most.
  static constexpr Rate kRefusals = {.per_second = 2, .burst = 200};
  // All agents of a registry may come at once; they have tokens, or everybody may join.
  static constexpr Rate kChanges = {.per_second = 20, .burst = 20'000};

  explicit Audit(Rate rate, const Clock& clock = steady_clock());
  // False: there was no room for the line.
  bool operator()(std::string_view text, std::initializer_list<LogField> fields);

 private:
  const Rate rate_;
  const Clock& clock_;
  std::mutex mutex_;
  double room_;
  TimePoint filled_;
  std::uint64_t left_out_ = 0;
};

}  // namespace slime::ctrl
