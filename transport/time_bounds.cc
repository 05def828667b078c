#include "transport/time_bounds.h"

#include <chrono>
#include <string>

#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport {
namespace {

std::string no_progress(Nanos stall) {
  return str("its connection made no progress for ", std::chrono::duration<double>(stall).count(), " s");
}

}  // namespace

Status TimeBounds::not_started(std::string_view peer) const {
  return Status(Code::kDeadlineExceeded,
                passed == Overdue::kStall
                    ? str("a one-sided operation with ", peer, " could not start: ", no_progress(stall))
                    : str("a one-sided operation with ", peer, " could not start before its deadline"));
}

Status TimeBounds::not_ended(std::string_view peer) const {
  return Status(Code::kDeadlineExceeded, passed == Overdue::kStall
                                             ? str("no end of a one-sided operation with ", peer, ": ",
                                                   no_progress(stall), ", and was reset")
                                             : str("no end of a one-sided operation with ", peer,
                                                   " before its deadline; the connection was reset"));
}

Status TimeBounds::reset_reason(std::string_view peer) const {
  return Status(Code::kDeadlineExceeded,
                passed == Overdue::kStall
                    ? str("a one-sided operation with ", peer, " stalled: ", no_progress(stall))
                    : str("a one-sided operation with ", peer, " passed its deadline"));
}

}  // namespace slime::transport
