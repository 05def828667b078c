#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "transport/handshake_io.h"

namespace slime::transport {

// Source of a connection: an IPv4 address, or the first 64 bits of an IPv6 address, because one
// host or site has all addresses with these bits. An IPv4-mapped IPv6 address counts as the IPv4
// address.
using Source = std::array<std::byte, 16>;
Source source_of(const SocketAddress& peer);

// A connection whose peer has not proved itself yet. Borrows `io`.
struct Stranger {
  Source source{};
  TimePoint accepted{};
  const HandshakeIo* io = nullptr;
};

// The strangers of a listener. choose() returns the stranger that a full listener drops. It takes
// the source with the most strangers, and of these the oldest that has not sent a whole HELLO; if
// all have sent one, the oldest. So a source that floods the listener loses its own connections
// first. Sources get no fixed share, because other peers may share the address of a flood. Thread:
// one.
class Strangers {
 public:
  void add(const Stranger& stranger);
  void remove(const Stranger& stranger);  // does nothing if it was not added

  struct Choice {
    const Stranger* stranger = nullptr;  // null: none may be dropped now
    // if stranger is null: when to call choose() again; kNever: when a handshake ends
    TimePoint again = kNever;
  };
  // Chooses the stranger to drop. Spares those younger than kSilentLeastTime (without a HELLO) or
  // kAnswerLeastTime (with a HELLO), and those whose bytes were not read yet.
  [[nodiscard]] Choice choose(TimePoint now) const;

 private:
  std::map<Source, std::vector<const Stranger*>> by_source_;  // each in order of arrival, never empty
};

}  // namespace slime::transport
