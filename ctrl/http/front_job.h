#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "ctrl/http/codec.h"
#include "ctrl/http/framing.h"

namespace slime::ctrl {

// One request on its way between the loop, which owns the connections, and the threads with the handler.
struct FrontJob {
  std::uint64_t connection = 0;
  RawRequest request;
  std::string client;
  std::string tenant;         // who takes turns with others
  bool scan = false;          // takes long, and much of a processor
  bool last_refusal = false;  // a 429 ends the connection
  bool answer_now = false;
  std::uint64_t wakes = 0;                     // how many there had been before the handler looked
  std::optional<TimePoint> parked_until = {};  // set once it was parked
  Handled handled;
};

}  // namespace slime::ctrl
