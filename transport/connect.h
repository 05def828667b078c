#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/function.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/secret.h"
#include "transport/endpoint.h"
#include "transport/handshake_proof.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime::transport {

struct PeerIdentity {
  std::string name;
  InstanceId instance;
};

// Which of the sets of keys that follow each other at this side. Counted from the start of this
// side.
struct KeySetVersion {
  std::uint64_t changes = 0;      // sets before this one
  std::uint64_t revocations = 0;  // changes that left no earlier key
};

// What a handshake may use in place of the token.
struct HandshakeKeys {
  std::vector<Secret> keys;  // this side proves the first, and accepts any of them from a peer
  KeySetVersion version;
};

// This side of every handshake it takes part in.
struct HandshakeOptions {
  PeerIdentity self;
  std::string token;       // shared secret; empty: none. Both sides have the same one, or the handshake ends.
  std::string provider{};  // where one port is given: its provider
  Nanos timeout = limits::kHandshakeTimeout;
  // In place of the token, keys that change: asked anew for each handshake, on the loop. No keys:
  // as without a token.
  std::function<HandshakeKeys()> keys = {};
};

// One provider that this side knows of: the port to connect over, or why there is none. Borrowed.
struct Outlet {
  std::string provider;
  Port* port = nullptr;
  const Device* device = nullptr;                // whose hint the peer gets; null: none
  Status available{};                            // not OK: there is no port
  const ProviderTraits* traits = &kPlainTraits;  // never null
};
// In order of preference. Asked anew for each handshake, on the loop.
using Outlets = std::function<std::vector<Outlet>()>;

// A finished handshake. The endpoint has no receiver yet.
struct Connected {
  std::unique_ptr<Endpoint> endpoint;
  PeerIdentity peer;
  std::string address;  // the other end of the connection, "127.0.0.1:40112"
  bool initiator = false;
  std::string provider;
  std::string reason;                      // why that one, for people
  std::array<std::byte, 32> handshake{};   // random, the same at both ends: which two belong together
  HandshakeProofs proofs;                  // for further proofs on this connection
  std::optional<KeySetVersion> key_set{};  // of this side's keys in the handshake; none: it was without keys
};

// What a listener asks and tells its owner, on the loop.
class Acceptor {
 public:
  // A peer proved that it has the token. An error refuses it: code and text travel to the peer.
  // Must not destroy the listener.
  virtual Status on_hello(const PeerIdentity& peer) noexcept = 0;
  // May destroy the listener.
  virtual void on_connected(Connected connected) noexcept = 0;
  // A peer was refused that does not have the token, or any of the keys: it may have a newer one.
  virtual void on_unproved() noexcept {}

 protected:
  ~Acceptor() = default;
};

// Accepts handshakes on one TCP address, and answers the liveness probe of nanoctrl (base/probe.h).
// Bounded: handshake size, time and number. When all places are taken, the listener drops a
// connection whose peer has not proved itself (transport/strangers.h). Thread: the loop.
class Listener {
 public:
  // `address` is "host:port" or "[v6]:port", the host numeric or "localhost"; port 0 picks a free
  // one. kInvalidArgument, kAlreadyExists (in use). Binding to anything but loopback needs a
  // token, a source of keys, or `insecure`: else kPermissionDenied.
  static Result<std::unique_ptr<Listener>> listen(Loop& loop, Outlets outlets, const std::string& address,
                                                  bool insecure, HandshakeOptions options,
                                                  Acceptor& acceptor);
  // Over one port, of the provider that the options name.
  static Result<std::unique_ptr<Listener>> listen(Loop& loop, Port& port, const std::string& address,
                                                  bool insecure, HandshakeOptions options,
                                                  Acceptor& acceptor);
  virtual ~Listener() = default;                          // ends the handshakes that are under way
  [[nodiscard]] virtual std::string address() const = 0;  // with the real port
  // Connections dropped to make room for others, before their peers had proved themselves.
  [[nodiscard]] virtual std::uint64_t strangers_evicted() const = 0;
};

// What both sides had chosen and could not be set up on this side, with whom.
struct Unreached {
  std::string provider;
  PeerIdentity peer;
};

// A handshake under way as the initiator; destroying it ends it without a call.
class Connecting {
 public:
  virtual ~Connecting() = default;
  // After it failed: that was this provider, so another one may do. Null: it was something else.
  [[nodiscard]] virtual const Unreached* unreached() const = 0;
};

using ConnectHandler = UniqueFunction<void(Result<Connected>)>;

// Connects to `address` ("host:port", numeric host or name; a name is looked up on a thread of its
// own). `expected` names the peer that should answer: another name or, when it is not zero,
// another instance is kAborted. `handler` is called once on the loop, never from inside connect():
// kUnavailable (nothing listens there), kUnauthenticated (token), kDeadlineExceeded, kCorrupt (not
// Slime, or another version), or the code of a refusal, such as kUnimplemented (no provider that
// both have).
std::unique_ptr<Connecting> connect(Loop& loop, std::vector<Outlet> outlets, const std::string& address,
                                    PeerIdentity expected, HandshakeOptions options, ConnectHandler handler);
std::unique_ptr<Connecting> connect(Loop& loop, Port& port, const std::string& address, PeerIdentity expected,
                                    HandshakeOptions options, ConnectHandler handler);

}  // namespace slime::transport
