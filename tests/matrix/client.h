#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "agent/peer_agent.h"
#include "base/str.h"
#include "tests/support/settings.h"

namespace slime::matrix {

inline const Nanos kSoon = test::patient(std::chrono::seconds(20));  // only a failing test waits
                                                                     // this long

// ---- expectations

[[noreturn]] inline void fail(const std::string& text) { throw std::runtime_error(text); }
inline void expect(bool condition, std::string_view what) {
  if (!condition) fail(str("not so: ", what));
}
template <class A, class B>
void expect_equal(const A& actual, const B& expected, std::string_view what) {
  if (actual == expected) return;
  if constexpr (requires(std::ostream & out) { out << actual << expected; })
    fail(str(what, ": ", actual, ", not ", expected));
  else
    fail(str(what, ": not as expected"));
}
template <class T>
T take(Result<T> result, std::string_view what = "it") {
  if (!result) fail(str(what, " failed: ", result.error().to_string()));
  return std::move(*result);
}
inline void take(const Status& status, std::string_view what = "it") {
  if (!status.ok()) fail(str(what, " failed: ", status.to_string()));
}
// Returns the error, which must have that code.
template <class T>
Status error_of(const Result<T>& result, Code code, std::string_view what) {
  if (result.status().code() != code)
    fail(str(what, ": ", result.status().to_string(), ", not ", code_name(code)));
  return result.status();
}

template <class T>
void expect_code(const Result<T>& result, Code code, std::string_view what) {
  error_of(result, code, what).ignore();
}

// ---- the state of one feature's run

struct Place {
  std::string address;   // the server's
  std::string provider;  // of all agents
  std::string ctrl;      // nanoctrl
  std::string scope;     // this row's scope
  std::string victim;    // name of a provider that may be killed
};

class Run {
 public:
  Run(const Place& where, std::string_view feature);
  // Starts an agent for this feature, and connects its peer for the server.
  std::unique_ptr<PeerAgent> start(bool registered = false) const;
  Peer peer_of(PeerAgent& agent) const { return agent.peer(place.address).with_timeout(kSoon); }
  // Starts a server agent for this feature, with its own threads and queue.
  Peer start_small(std::size_t workers, std::size_t queue_limit);

  // Calls a method of "Matrix" that must succeed.
  template <class R, class... A>
  auto ask(std::string_view method, const A&... args) {
    return take(peer.call<R>("Matrix", method, args...).wait(kSoon), method);
  }
  void await_count(std::string_view name, std::int64_t least) {
    ask<std::int64_t>("await_count", std::string(name), least);
  }

  const Place& place;
  const std::string key;     // unique to this run
  std::string small_name{};  // name of the agent of start_small()
  std::unique_ptr<PeerAgent> agent;
  Peer peer;
};

// Returns the counter of that name in peer.info().
std::int64_t counter(const Peer& peer, std::string_view name);

struct Feature {
  std::string_view name;
  void (*run)(Run& run);
};
std::span<const Feature> call_features();
std::span<const Feature> ending_features();
std::span<const Feature> server_features();
std::span<const Feature> byte_features();
std::span<const Feature> stream_features();
std::span<const Feature> attachment_features();

}  // namespace slime::matrix
