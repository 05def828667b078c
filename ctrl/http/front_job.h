#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "ctrl/http/answer.h"
#include "ctrl/http/framing.h"

namespace slime::ctrl {

// One request that the loop, which owns the connections, passes to a handler thread and gets back
// with the reply.
struct FrontJob {
  std::uint64_t connection = 0;
  RawRequest request;
  std::string client;
  std::string tenant;         // key of FairQueue
  bool scan = false;          // uses much processor time
  bool last_refusal = false;  // a 429 closes the connection
  bool answer_now = false;
  std::uint64_t wakes = 0;                     // FrontMailbox::wakes() before the handler ran
  std::optional<TimePoint> parked_until = {};  // set once the request was parked
  Handled handled;
};

}  // namespace slime::ctrl
