#include "ctrl/audit.h"

#include <algorithm>
#include <string>
#include <utility>

namespace slime::ctrl {

Audit::Audit(Rate rate, const Clock& clock)
    : rate_(rate), clock_(clock), room_(rate.burst), filled_(clock.now()) {}

bool Audit::operator()(std::string_view text, std::initializer_list<LogField> fields) {
  std::uint64_t left_out = 0;
  {
    const MutexLock lock(mutex_);
    const TimePoint now = clock_.now();
    const double seconds = std::chrono::duration<double>(now - std::exchange(filled_, now)).count();
    room_ = std::min(rate_.burst, room_ + seconds * rate_.per_second);
    if (room_ < 1) {
      ++left_out_;
      return false;
    }
    room_ -= 1;
    left_out = std::exchange(left_out_, 0);
  }
  if (!log_enabled(LogLevel::kInfo)) return true;
  if (left_out > 0)
    log(LogLevel::kInfo, "audit", "lines were left out before this one, for there were too many",
        {{"left_out", std::to_string(left_out)}});
  log(LogLevel::kInfo, "audit", text, fields);
  return true;
}

}  // namespace slime::ctrl
