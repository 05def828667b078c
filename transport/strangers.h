#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "transport/handshake_io.h"

namespace slime::transport {

// Source of a connection: an IPv4 address, or the first 64 bits of an IPv6 address (one host or
// site gets 64 bits). An IPv4-mapped IPv6 address counts as the IPv4 address.
using Source = std::array<std::byte, 16>;
Source source_of(const SocketAddress& peer);

// A connection whose peer has not proved itself yet. Borrowed.
struct Stranger {
  Source source{};
  TimePoint accepted{};
  const HandshakeIo* io = nullptr;
};

// The strangers of a listener. choose() says which of them a full listener drops: of the source
// with the most strangers, the oldest without a whole HELLO, else the oldest. So a flood drops its
// own connections first. No source has a fixed share, because peers may share the address of a
// flood. Thread: one.
class Strangers {
 public:
  void add(const Stranger& stranger);
  void remove(const Stranger& stranger);  // does nothing if it was not added

  struct Choice {
    const Stranger* stranger = nullptr;  // null: none may be dropped now
    TimePoint again = kNever;            // if null: call again then; kNever: when a handshake ends
  };
  // Spares connections younger than kSilentLeastTime or kAnswerLeastTime, and those with unread
  // bytes.
  [[nodiscard]] Choice choose(TimePoint now) const;

 private:
  std::map<Source, std::vector<const Stranger*>> by_source_;  // each in order of arrival, never empty
};

}  // namespace slime::transport
