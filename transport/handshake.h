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
// An offer is a provider that the initiator has. AUTH lists the offers in the initiator's order of
// preference, and the acceptor chooses an offer. SETUP and ACCEPT cross: after AUTH, both sides
// make the objects that their parameters describe, such as queue pairs, at the same time. With
// several offers the initiator sends SETUP early for the offer that will most likely be chosen, or
// waits for ACCEPT. A SETUP for an offer that is not chosen is void: another SETUP then follows
// ACCEPT.
//
// Strangers can reach the acceptor. So the acceptor says nothing about itself, and makes nothing,
// before it has checked the MAC of AUTH. Each MAC is HMAC-SHA256, keyed with the token, over the
// sender's role, the frames up to AUTH and the frame itself. So a frame of another handshake (other
// nonces), or a frame that is sent back to its sender (other role), never has a valid MAC. Several
// keys may be used in place of the token, such as during a change of keys. The initiator uses its
// first key; the acceptor accepts any of its own keys, and that key is used for all later MACs.

using HandshakeNonce = std::array<std::byte, 32>;

// Feature bits, for future changes of the protocol after the handshake. No bit is in use yet.
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

// One side of one handshake as a state machine: bytes in, bytes out. It does no I/O, and takes
// neither time nor randomness from elsewhere. The acceptor also answers the liveness probe. Thread:
// one.
class Handshake {
 public:
  enum class State {
    kReading,  // wants more bytes
    // Waits for the caller. An initiator's caller calls set_up(), await_choice() or refuse():
    // either AUTH is in the output and the peer has proved nothing yet, or outcome().choice is set.
    // An acceptor's caller calls accept() or refuse(): the peer has proved its identity.
    kDeciding,
    kDone,    // outcome() is there
    kProbed,  // the peer sent a liveness probe, and the answer is in the output
    kFailed,  // error() has the reason; the output may hold a REFUSE frame
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

  // Returns kInvalidArgument if names, token, keys, offers or parameters exceed their limits.
  static Status validate(const Config& config, Bytes parameters = {});
  // initiator() and acceptor() make a Handshake; `config` must be valid. `expected` is the peer
  // that should answer; an empty name or a zero instance means any.
  static Handshake initiator(Config config, PeerIdentity expected);
  static Handshake acceptor(Config config);

  [[nodiscard]] State state() const { return state_; }
  // Returns the most bytes that feed() takes now: never more than belong to the handshake.
  [[nodiscard]] std::size_t wanted() const;
  void feed(Bytes bytes);
  // Returns the bytes to send. Call sent() with the number of bytes that were sent, which drops
  // them.
  [[nodiscard]] Bytes output() const { return Bytes(output_).subspan(output_begin_); }
  void sent(std::size_t bytes);

  // set_up(), await_choice(), accept() and refuse() answer kDeciding; no other state allows them.
  // Send output() before making the parameters, which takes time. An initiator calls set_up() with
  // its parameters for `offer`, which is the chosen offer if there is a choice.
  void set_up(std::size_t offer, Bytes parameters);
  // Called by the initiator in kDeciding while no offer is chosen: sends no SETUP until the choice
  // is known.
  void await_choice();
  // Called by the acceptor in kDeciding: chooses `offer`, an index into outcome().offers. A reason
  // that is too long is cut.
  void accept(std::size_t offer, std::string_view reason, Bytes parameters);
  // an acceptor sends code and text to the peer; an initiator only fails with them
  void refuse(Status reason);

  [[nodiscard]] const Outcome& outcome() const { return outcome_; }
  // Returns the id of this handshake, equal at both ends: the acceptor's nonce.
  [[nodiscard]] const HandshakeNonce& id() const {
    return role() == Role::kAcceptor ? config_.nonce : peer_opening_.nonce;
  }
  // Call in kDone only. Returns the proofs for later frames on the connection, such as PROOF.
  [[nodiscard]] const HandshakeProofs& proofs() const { return proofs_; }
  [[nodiscard]] const Status& error() const { return error_; }
  // Returns whether the peer's MAC was right.
  [[nodiscard]] bool authenticated() const { return authenticated_; }
  // Returns true at an acceptor after the peer's whole HELLO has arrived.
  [[nodiscard]] bool opened() const { return role() == Role::kAcceptor && awaited_ != Awaited::kHello; }
  // Returns true at an acceptor after the peer's first proof: a valid MAC, or the HELLO if no token
  // is set (any peer can make the MAC of an empty token).
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
  std::vector<Secret> keys_;  // at least one key; an empty key means that this side has no token
  PeerIdentity expected_;
  State state_ = State::kReading;
  Awaited awaited_;
  ByteVector frame_;  // the incoming frame
  // has HELLO, CHALLENGE and AUTH as far as they were exchanged; in kDone SETUP and ACCEPT too
  HandshakeProofs proofs_;
  // Whole frames: the initiator's SETUP (finally the one for the chosen offer) and the acceptor's
  // ACCEPT. The two cross, so neither is covered by the MAC of the other.
  ByteVector setup_, accept_;
  ByteVector output_;
  std::size_t output_begin_ = 0;
  HandshakeOpening peer_opening_;
  Outcome outcome_;
  Status error_;
  bool authenticated_ = false;
  // the initiator: the offer whose SETUP was sent before the choice was known
  std::optional<std::size_t> set_up_for_;
  // the acceptor: a SETUP for an offer that is not the chosen one has arrived
  bool void_setup_ = false;
};

}  // namespace slime::transport
