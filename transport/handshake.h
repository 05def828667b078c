#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/probe.h"
#include "base/result.h"
#include "base/secret.h"
#include "transport/choice.h"
#include "transport/connect.h"
#include "transport/handshake_frame.h"
#include "transport/handshake_proof.h"
#include "transport/mac.h"

namespace slime::transport {

// The handshake, byte by byte in docs/wire-format.md. The frames:
//
//   initiator                       acceptor
//   HELLO  version, features,  ->
//          nonce, token?
//                              <-   CHALLENGE  version, features, nonce, token?
//   AUTH   names, instances,   ->
//          offers, MAC
//   SETUP  offer, parameters,  ->
//          MAC
//                              <-   ACCEPT  name, instance, offer, reason, parameters, MAC
//                                   or REFUSE  code, text, MAC
//
// An offer is a provider that the initiator has, in its order of preference; the acceptor chooses
// one. SETUP and ACCEPT cross: once AUTH is sent, each side makes what its parameters describe,
// such as queue pairs, while the other side does the same. With several offers the initiator sends
// SETUP early for the offer that will most likely be chosen, or waits for ACCEPT. A SETUP for
// another offer than the chosen one is void, and the right SETUP follows ACCEPT.
//
// Any stranger can reach the acceptor, so it says nothing about itself, and makes nothing, before
// it has checked the MAC of AUTH. Each MAC is HMAC-SHA256, keyed with the token, over the sender's
// role, the frames up to AUTH and the frame itself. So a message of another handshake (other
// nonces), or a message of ours that is sent back (other role), never fits. Instead of a token
// there may be several keys, such as during a change of keys: the initiator proves its first key,
// the acceptor accepts any of its own, and that key is used for all later MACs.

using HandshakeNonce = std::array<std::byte, 32>;

// Bits that change what follows the handshake. No bit is in use yet.
struct HandshakeFeatures {
  std::uint64_t required = 0;  // the peer must know these
  std::uint64_t optional = 0;  // used if both know them
  [[nodiscard]] std::uint64_t known() const { return required | optional; }
};

// The body of HELLO and of CHALLENGE.
struct HandshakeOpening {
  std::uint64_t required_features = 0;
  std::uint64_t optional_features = 0;
  HandshakeNonce nonce{};
  std::uint8_t has_token = 0;
  std::array<std::uint8_t, 7> reserved{};
};
static_assert(sizeof(HandshakeOpening) == 56);

// One side of one handshake as a state machine: bytes in, bytes out; no I/O, no clock, no
// randomness of its own. The acceptor also answers the liveness probe. Thread: one.
class Handshake {
 public:
  enum class State {
    kReading,  // wants more bytes
    // Wants an answer. The initiator: set_up(), await_choice() or refuse(); either AUTH is in the
    // output and the peer has proved nothing yet, or outcome().choice says what was chosen. The
    // acceptor: accept() or refuse(); the peer has proved its identity.
    kDeciding,
    kDone,    // outcome() is there
    kProbed,  // it was a probe, and the answer is in the output
    kFailed,  // error() says why; the output may hold a refusal
  };
  struct Config {
    PeerIdentity self;
    std::string token;
    std::vector<Offer> offers;  // the initiator's: at least one
    HandshakeFeatures features;
    HandshakeNonce nonce{};         // random, never used twice
    std::vector<Secret> keys = {};  // in place of the token
  };
  struct Outcome {
    PeerIdentity peer;
    std::vector<Offer> offers;          // the acceptor: what the peer offers
    std::optional<std::size_t> choice;  // which of the initiator's offers was chosen
    std::string reason;                 // and why
    ByteVector parameters;              // the peer's
    std::uint64_t features = 0;         // those that both know
  };

  // kInvalidArgument when names, token, offers or parameters exceed their limits.
  static Status validate(const Config& config, Bytes parameters = {});
  // `expected`: an empty name or a zero instance means any. Both take a valid config.
  static Handshake initiator(Config config, PeerIdentity expected);
  static Handshake acceptor(Config config);

  [[nodiscard]] State state() const { return state_; }
  // Returns the most bytes that feed() takes now. None of them follows the handshake.
  [[nodiscard]] std::size_t wanted() const;
  void feed(Bytes bytes);
  // Returns the bytes to send. sent() drops a prefix of them.
  [[nodiscard]] Bytes output() const { return Bytes(output_).subspan(output_begin_); }
  void sent(std::size_t bytes);

  // In kDeciding only, when outcome() says which peer the acceptor is and what it offers. Send
  // output() first, because making the parameters takes time.
  //
  // The initiator gives its parameters for `offer`; once an offer was chosen, for the chosen one.
  void set_up(std::size_t offer, Bytes parameters);
  // The initiator, while no offer is chosen: waits for the choice before it sends parameters.
  void await_choice();
  // The acceptor accepts with this offer. A reason that is too long is cut.
  void accept(std::size_t offer, std::string_view reason, Bytes parameters);
  void refuse(Status reason);  // an acceptor sends code and text to the peer; an initiator fails with them

  [[nodiscard]] const Outcome& outcome() const { return outcome_; }
  // Returns the id of this handshake, equal at both ends: the acceptor's nonce.
  [[nodiscard]] const HandshakeNonce& id() const {
    return role() == Role::kAcceptor ? config_.nonce : peer_opening_.nonce;
  }
  // In kDone: for further proofs on the connection.
  [[nodiscard]] const HandshakeProofs& proofs() const { return proofs_; }
  [[nodiscard]] const Status& error() const { return error_; }
  // Returns whether the peer's MAC was right.
  [[nodiscard]] bool authenticated() const { return authenticated_; }
  // Acceptor: true after the peer's whole HELLO has arrived.
  [[nodiscard]] bool opened() const { return role() == Role::kAcceptor && awaited_ != Awaited::kHello; }
  // Acceptor: true after the peer's first proof: a valid MAC, or the HELLO if no token is set
  // (anybody can make the MAC without a token).
  [[nodiscard]] bool proved() const { return authenticated_ || (opened() && keys_.front().empty()); }

 private:
  enum class Awaited { kHello, kChallenge, kAuth, kSetup, kAccept };
  using Role = HandshakeRole;

  Handshake(Role self, Config config);
  void on_bytes();
  void on_probe();
  void on_frame(const HandshakeHeader& header);
  void on_opening(Bytes body);
  void on_auth(Bytes body);
  void on_setup(Bytes body);
  void on_accept(Bytes body);
  void on_refuse(Bytes body);
  Status check_expected(const PeerIdentity& expected, const PeerIdentity& real) const;
  void send_opening(HandshakeFrame type);
  void send_auth();
  void send_refusal(const Status& reason, bool proved);
  void send_frame(HandshakeFrame type, Bytes body);
  ByteVector send_proved(HandshakeFrame type, ByteVector body);  // returns the frame
  void finish();
  [[nodiscard]] bool proof_fits() const { return proofs_.fits(keys_.front(), frame_); }
  [[nodiscard]] Role role() const { return proofs_.role(); }
  void fail(Code code, std::string text);

  Config config_;             // without the secrets
  std::vector<Secret> keys_;  // at least one; an empty key means no token
  PeerIdentity expected_;
  State state_ = State::kReading;
  Awaited awaited_;
  ByteVector frame_;        // the incoming frame
  HandshakeProofs proofs_;  // over HELLO, CHALLENGE, AUTH, as far as they went; in kDone over all frames
  // Whole frames: the initiator's SETUP (the chosen one in the end) and the acceptor's ACCEPT. They
  // cross, so neither is under the other's MAC.
  ByteVector setup_, accept_;
  ByteVector output_;
  std::size_t output_begin_ = 0;
  HandshakeOpening peer_opening_;
  Outcome outcome_;
  Status error_;
  bool authenticated_ = false;
  // the initiator: the offer whose SETUP was sent before the choice was known
  std::optional<std::size_t> set_up_for_;
  bool void_setup_ = false;  // the acceptor: a SETUP of another offer has come
};

}  // namespace slime::transport
