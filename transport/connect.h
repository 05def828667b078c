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

// Names one of the key sets that this side has had, one after another. Counted from the start of
// this side.
struct KeySetVersion {
  std::uint64_t changes = 0;      // sets before this one
  std::uint64_t revocations = 0;  // of these changes: those that left no earlier key valid
};

// The keys that a handshake uses instead of the token.
struct HandshakeKeys {
  std::vector<Secret> keys;  // this side proves the first, and accepts any of them from a peer
  KeySetVersion version;
};

// Options of this side for all its handshakes.
struct HandshakeOptions {
  PeerIdentity self;
  // shared secret; empty: none. The handshake fails unless both sides have the same
  std::string token;
  std::string provider{};  // the provider, for functions that take one port
  Nanos timeout = limits::kHandshakeTimeout;
  // Returns the keys to use instead of the token. Called on the loop for each handshake. No keys:
  // the handshake goes on as without a token.
  std::function<HandshakeKeys()> keys = {};
};

// A provider known to this side: the port to connect over, or the reason why there is none. Borrows
// the pointers.
struct Outlet {
  std::string provider;
  Port* port = nullptr;
  const Device* device = nullptr;                // the peer gets its hint; null: no hint
  Status available{};                            // not OK: there is no port
  const ProviderTraits* traits = &kPlainTraits;  // never null
};
// Returns the outlets in order of preference. Called on the loop for each handshake.
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
  // version of this side's keys in the handshake; none: no keys
  std::optional<KeySetVersion> key_set{};
};

// Accepts or refuses the peers of a listener, and gets their connections. Called on the loop.
class Acceptor {
 public:
  // Called when a peer has proved that it has the token or a key. An error refuses the peer, which
  // gets code and text. Must not destroy the listener.
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
  // Like the function above, over one port of the provider that the options name.
  static Result<std::unique_ptr<Listener>> listen(Loop& loop, Port& port, const std::string& address,
                                                  bool insecure, HandshakeOptions options,
                                                  Acceptor& acceptor);
  virtual ~Listener() = default;                          // ends the handshakes that are under way
  [[nodiscard]] virtual std::string address() const = 0;  // with the real port
  // Connections dropped to make room for others, before their peers had proved themselves.
  [[nodiscard]] virtual std::uint64_t strangers_evicted() const = 0;
};

// A provider that both sides had chosen and that could not be set up on this side, and the peer.
struct Unreached {
  std::string provider;
  PeerIdentity peer;
};

// A handshake in progress, at the initiator. Destroying it ends the handshake without calling the
// handler.
class Connecting {
 public:
  virtual ~Connecting() = default;
  // Call after a failure. Returns the provider whose path failed, so that the caller can try
  // another provider; null after any other failure.
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
