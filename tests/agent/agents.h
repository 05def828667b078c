#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "agent/peer_agent.h"
#include "tests/support/eventually.h"
#include "tests/support/settings.h"

namespace slime::test {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline const Nanos kSoon = patient(seconds(10));  // a bound that only a failure reaches

// An agent on loopback that must start, on the provider of the run.
inline std::unique_ptr<PeerAgent> start(PeerAgentOptions options) {
  if (options.provider == "auto") options.provider = provider();
  auto agent = PeerAgent::start(std::move(options));
  INFO(agent.status().to_string());
  REQUIRE(agent.has_value());
  return std::move(*agent);
}
inline std::unique_ptr<PeerAgent> start(std::string name = {}, Progress progress = Progress::kThread) {
  PeerAgentOptions options;
  options.name = std::move(name);
  options.progress = progress;
  return start(std::move(options));
}

// The number behind "key": in a JSON text, the first of that name; -1: none.
inline std::int64_t number_in(const std::string& json, std::string_view key) {
  const std::string quoted = "\"" + std::string(key) + "\":";
  const auto at = json.find(quoted);
  return at == std::string::npos ? -1 : std::stoll(json.substr(at + quoted.size()));
}
inline bool has_state(const Peer& peer, std::string_view state) {
  return to_json(peer.info()).find("\"state\":\"" + std::string(state) + "\"") != std::string::npos;
}

// Adds two integers, and a few other things that tests call.
rpc::Service calculator();

// The value of a result that must have one.
template <class T>
T take(Result<T> result) {
  INFO(result.status().to_string());
  REQUIRE(result.has_value());
  return std::move(*result);
}
template <class T>
Code code_of(const Result<T>& result) {
  return result.status().code();
}

}  // namespace slime::test
