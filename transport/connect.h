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

// Version of this side's set of handshake keys, counted from the start of this side.
struct KeySetVersion {
  std::uint64_t changes = 0;      // sets before this one
  std::uint64_t revocations = 0;  // changes after which no earlier key was valid any more
};

// Keys that a handshake uses in place of the token.
struct HandshakeKeys {
  // an initiator proves the first key; an acceptor accepts a proof of any key
  std::vector<Secret> keys;
  KeySetVersion version;
};

// Options of this side for all its handshakes.
struct HandshakeOptions {
  PeerIdentity self;
  // shared secret; empty: none. A handshake fails unless both sides have equal tokens
  std::string token;
  // name of the provider of `port`, for the overloads of listen() and connect() that take one port
  std::string provider{};
  Nanos timeout = limits::kHandshakeTimeout;
  // Returns the keys to use in place of `token`. Called on the loop for each handshake. If it
  // returns no keys, the handshake uses `token`.
  std::function<HandshakeKeys()> keys = {};
};

// A provider known to this side: the port to connect over, or the reason why there is no port.
// Borrows what its pointers point to.
struct Outlet {
  std::string provider;
  Port* port = nullptr;
  const Device* device = nullptr;                // its hint is sent to the peer; null: no hint is sent
  Status available{};                            // not OK: there is no port
  const ProviderTraits* traits = &kPlainTraits;  // never null
};
// Function that returns the outlets in order of preference. It is called on the loop for each
// handshake.
using Outlets = std::function<std::vector<Outlet>()>;

// A finished handshake. The endpoint has no receiver yet.
struct Connected {
  std::unique_ptr<Endpoint> endpoint;
  PeerIdentity peer;
  std::string address;  // the other end of the connection, "127.0.0.1:40112"
  bool initiator = false;
  std::string provider;
  std::string reason;                     // why this provider was chosen, for people
  std::array<std::byte, 32> handshake{};  // random id of the handshake, equal at both ends
  HandshakeProofs proofs;                 // for later proofs on this connection
  // version of this side's keys that the handshake used; empty: the handshake used no keys
  std::optional<KeySetVersion> key_set{};
};

// Accepts or refuses the peers of a listener, and receives the connections. Called on the loop.
class Acceptor {
 public:
  // Called when a peer has proved that it has the token or a key. If this returns an error, the
  // peer is refused and gets the error's code and text. Must not destroy the listener.
  virtual Status on_hello(const PeerIdentity& peer) noexcept = 0;
  // May destroy the listener.
  virtual void on_connected(Connected connected) noexcept = 0;
  // Called when a peer was refused because it has neither the token nor any of the keys. The peer
  // may have a newer key.
  virtual void on_unproved() noexcept {}

 protected:
  ~Acceptor() = default;
};

// Accepts handshakes on one TCP address, and answers the liveness probe of nanoctrl (base/probe.h).
// The size, the duration and the number of handshakes are bounded. When all places are taken, the
// listener drops a connection whose peer has not proved itself (transport/strangers.h). Thread: the
// loop.
class Listener {
 public:
  // `address` is "host:port" or "[v6]:port", with a numeric host or "localhost"; port 0 picks a
  // free port. Errors: kInvalidArgument (not an address of this machine), kAlreadyExists (in use),
  // and kPermissionDenied for an address other than loopback without a token, a source of keys, or
  // `insecure`.
  static Result<std::unique_ptr<Listener>> listen(Loop& loop, Outlets outlets, const std::string& address,
                                                  bool insecure, HandshakeOptions options,
                                                  Acceptor& acceptor);
  // Like the overload above, with `port`, of the provider options.provider, as the only outlet.
  static Result<std::unique_ptr<Listener>> listen(Loop& loop, Port& port, const std::string& address,
                                                  bool insecure, HandshakeOptions options,
                                                  Acceptor& acceptor);
  virtual ~Listener() = default;                          // ends the handshakes that are under way
  [[nodiscard]] virtual std::string address() const = 0;  // with the real port
  // Returns how many connections were dropped to make room for others, before their peers had
  // proved themselves.
  [[nodiscard]] virtual std::uint64_t strangers_evicted() const = 0;
};

// A provider that could not be set up during a handshake, and the peer of that handshake.
struct Unreached {
  std::string provider;
  PeerIdentity peer;
};

// A handshake in progress, at the initiator. Destroying it ends the handshake without calling the
// handler.
class Connecting {
 public:
  virtual ~Connecting() = default;
  // Call after a failure. Returns the provider that could not be set up and the peer, so that the
  // caller can try another provider; null after any other failure.
  [[nodiscard]] virtual const Unreached* unreached() const = 0;
};

using ConnectHandler = UniqueFunction<void(Result<Connected>)>;

// Connects to `address` ("host:port", numeric host or name; a name is looked up on a thread of its
// own). `expected` names the peer that should answer; an empty name or a zero instance means any.
// `handler` is called once on the loop, never from inside connect(). Errors: kAborted (a peer of
// another name or instance answered), kUnavailable (nothing listens there), kUnauthenticated
// (token), kDeadlineExceeded, kCorrupt (not Slime, or another version), or the code of a refusal,
// such as kUnimplemented (the sides have no provider in common).
std::unique_ptr<Connecting> connect(Loop& loop, std::vector<Outlet> outlets, const std::string& address,
                                    PeerIdentity expected, HandshakeOptions options, ConnectHandler handler);
std::unique_ptr<Connecting> connect(Loop& loop, Port& port, const std::string& address, PeerIdentity expected,
                                    HandshakeOptions options, ConnectHandler handler);

}  // namespace slime::transport
