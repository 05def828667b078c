#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <utility>

#include "agent/peer_agent.h"
#include "kv/broadcast.h"
#include "kv/replica.h"
#include "tests/kv/broadcast_bytes.h"
#include "tests/support/eventually.h"
#include "tests/support/settings.h"

namespace slime::kv::test {

inline std::unique_ptr<PeerAgent> broadcast_agent(Progress progress = Progress::kThread) {
  auto agent = PeerAgent::start({.provider = slime::test::provider(), .progress = progress});
  INFO(agent.status().to_string());
  REQUIRE(agent.has_value());
  return std::move(*agent);
}

}  // namespace slime::kv::test
