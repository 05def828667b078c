#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "transport/handshake.h"

// Both sides of a handshake without anything between them, for its tests.
namespace slime::transport::testing {

using State = Handshake::State;

inline InstanceId instance(unsigned char fill) {
  InstanceId out;
  out.bytes.fill(std::byte{fill});
  return out;
}

inline Handshake::Config config(std::string name, unsigned char fill, std::string token = "") {
  Handshake::Config out{{std::move(name), instance(fill)}, std::move(token), {{"tcp", {}}}, {}, {}};
  out.nonce.fill(std::byte{static_cast<unsigned char>(fill + 1)});
  return out;
}

// Gives `bytes` to `to` in pieces of at most `piece`; returns how many it took.
inline std::size_t give(Handshake& to, Bytes bytes, std::size_t piece = 4096) {
  std::size_t taken = 0;
  while (taken < bytes.size() && to.wanted() > 0) {
    const std::size_t n = std::min({to.wanted(), piece, bytes.size() - taken});
    to.feed(bytes.subspan(taken, n));
    taken += n;
  }
  return taken;
}

inline ByteVector take_output(Handshake& from) {
  ByteVector out(from.output().begin(), from.output().end());
  from.sent(out.size());
  return out;
}

// What one side has sent and the other has not read yet.
struct Stream {
  ByteVector bytes;
  void carry(Handshake& from, Handshake& to, std::size_t piece) {
    const ByteVector more = take_output(from);
    bytes.insert(bytes.end(), more.begin(), more.end());
    const auto taken = static_cast<std::ptrdiff_t>(give(to, bytes, piece));
    bytes.erase(bytes.begin(), bytes.begin() + taken);
  }
};

// Carries bytes both ways until neither side has any; both accept when asked to.
inline void run(Handshake& a, Handshake& b, std::size_t piece = 4096, Bytes offer = {}, Bytes answer = {}) {
  Stream to_a;
  Stream to_b;
  for (int round = 0; round < 10; ++round) {
    if (a.state() == State::kDeciding) a.set_up(0, offer);
    to_b.carry(a, b, piece);
    if (b.state() == State::kDeciding) b.accept(0, "the only one", answer);
    to_a.carry(b, a, piece);
  }
}

struct Sides {
  Handshake a;
  Handshake b;
};

inline Sides sides(Handshake::Config a, Handshake::Config b, PeerIdentity expected = {}) {
  return {Handshake::initiator(std::move(a), std::move(expected)), Handshake::acceptor(std::move(b))};
}

// As far as AUTH, which the acceptor has read.
inline void prove(Sides& s) {
  give(s.b, take_output(s.a));
  give(s.a, take_output(s.b));
  give(s.b, take_output(s.a));
  REQUIRE(s.a.state() == State::kDeciding);
  REQUIRE(s.b.state() == State::kDeciding);
}

}  // namespace slime::transport::testing
