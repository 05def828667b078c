#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "transport/handshake_io.h"

namespace slime::transport {

// Where a connection comes from: an IPv4 address, or the first 64 bits of an IPv6 address, which is what one
// host or site gets. An IPv4 address mapped into IPv6 counts as the IPv4 address.
using Source = std::array<std::byte, 16>;
Source source_of(const SocketAddress& peer);

// A connection whose peer has not proved itself yet. Borrowed.
struct Stranger {
  Source source{};
  TimePoint accepted{};
  const HandshakeIo* io = nullptr;
};

// The strangers of a listener, and which of them makes room when all places are taken. A flood ends its own
// connections first: the choice falls on the source that has most, and there on the connection that has said
// least and is oldest. No source has a fixed share, because peers may come from the address of a flood.
// Thread: one.
class Strangers {
 public:
  void add(const Stranger& stranger);
  void remove(const Stranger& stranger);  // not there: ignored

  struct Choice {
    const Stranger* stranger = nullptr;  // null: nobody makes room now
    TimePoint again = kNever;            // then: when somebody may; kNever: when a connection ends
  };
  // Spares whoever had too little time to speak, and whoever has spoken and was not heard yet.
  [[nodiscard]] Choice choose(TimePoint now) const;

 private:
  std::map<Source, std::vector<const Stranger*>> by_source_;  // in order of arrival; none is empty
};

}  // namespace slime::transport
