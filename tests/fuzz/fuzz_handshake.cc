// Both roles of the handshake, and the messages after it, against a peer's bytes. The first byte of
// the input chooses the test:
//   0, 1  acceptor, initiator: raw bytes of a peer without the token, in pieces
//   2     acceptor: the body of AUTH, after a valid opening and with a valid proof
//   3, 4  initiator: the body of ACCEPT, or of REFUSE, with a valid proof
//   5     acceptor: the body of SETUP, after a valid AUTH
//   6, 7  like 0 and 2, with an acceptor that accepts several keys
//   8     a proof of a key, sent by the initiator after the handshake
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "transport/choice.h"
#include "transport/handshake.h"
#include "transport/limits.h"

namespace {

using slime::Bytes;
using slime::ByteVector;
using slime::ByteWriter;
using namespace slime::transport;

constexpr std::string_view kToken = "token";

// What the acceptor of offers has: hints that say something, so that a peer's are decoded.
// Traits last as long as the process, so they outlive the provider.
Holding holding(std::string_view provider, std::size_t hint_bytes) {
  return {std::string(provider), ByteVector(hint_bytes), {}, &(*make_provider(provider))->traits()};
}
const std::array<Holding, 3> kHoldings{holding("shm", 36), holding("verbs", 20), holding("tcp", 0)};

void require(bool condition) {
  if (!condition) std::abort();
}

Handshake::Config config(unsigned char fill) {
  Handshake::Config out{{"name", {}}, std::string(kToken), {{"shm", ByteVector(3)}, {"tcp", {}}}, {1, 2}, {}};
  out.self.instance.bytes.fill(std::byte{fill});
  out.nonce.fill(std::byte{fill});
  return out;
}

// The token is the last of the configured keys.
Handshake::Config config_with_keys(unsigned char fill) {
  Handshake::Config out = config(fill);
  out.token.clear();
  for (const std::string_view key : {std::string_view("next"), std::string_view("now"), kToken})
    out.keys.emplace_back(slime::as_bytes(key));
  return out;
}

ByteVector take(Handshake& from) {
  ByteVector out(from.output().begin(), from.output().end());
  from.sent(out.size());
  return out;
}

ByteVector take_hello() {
  Handshake initiator = Handshake::initiator(config(2), {});
  return take(initiator);
}

// Returns the number of bytes consumed.
std::size_t feed(Handshake& to, Bytes bytes, std::size_t piece) {
  std::size_t taken = 0;
  while (taken < bytes.size() && to.wanted() > 0) {
    require(to.wanted() <= limits::kHandshakeFrameBytes);
    const std::size_t n = std::min({to.wanted(), piece, bytes.size() - taken});
    to.feed(bytes.subspan(taken, n));
    taken += n;
  }
  return taken;
}

// Returns a frame with `body` and a valid proof of the sender.
ByteVector proved(std::string_view label, Bytes transcript, HandshakeFrame type, Bytes body) {
  body = body.first(std::min<std::size_t>(body.size(), limits::kHandshakeFrameBytes - 64));
  HandshakeHeader header;
  header.type = type;
  header.body_bytes = static_cast<std::uint16_t>(body.size() + sizeof(HandshakeMac));
  ByteVector frame;
  ByteWriter writer(frame);
  writer.write(header);
  writer.append(body);
  ByteVector text;
  ByteWriter signed_text(text);
  signed_text.append(slime::as_bytes(label));
  signed_text.append(transcript);
  signed_text.append(frame);
  HandshakeMac mac;
  unsigned int size = 0;
  require(::HMAC(::EVP_sha256(), kToken.data(), static_cast<int>(kToken.size()),
                 reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                 reinterpret_cast<unsigned char*>(mac.data()), &size) != nullptr);
  writer.append(mac);
  return frame;
}

void check_end(const Handshake& side) {
  using State = Handshake::State;
  require(side.state() == State::kReading || side.wanted() == 0);
  require(side.state() != State::kFailed || !side.error().ok());
  require(side.outcome().peer.name.size() <= limits::kNameBytes);
  require(side.outcome().parameters.size() <= limits::kProviderParameterBytes);
}

void raw(bool acceptor, Handshake side, Bytes input) {
  const std::size_t piece = input.empty() ? 1 : 1 + static_cast<std::size_t>(input.front());
  if (!input.empty()) input = input.subspan(1);
  input = input.subspan(feed(side, input, piece));
  // An initiator sends its proof to any valid opening; an acceptor must not reach this state.
  if (!acceptor && side.state() == Handshake::State::kDeciding) {
    side.set_up(0, ByteVector(9));
    feed(side, input, piece);
  }
  check_end(side);
  // Nothing is authenticated without the token.
  require(!side.authenticated());
  require(side.state() != Handshake::State::kDeciding && side.state() != Handshake::State::kDone);
}

void auth(Handshake acceptor, Bytes body) {
  ByteVector transcript = take_hello();
  feed(acceptor, transcript, 4096);
  const ByteVector challenge = take(acceptor);
  transcript.insert(transcript.end(), challenge.begin(), challenge.end());
  feed(acceptor, proved("slime handshake 3 initiator", transcript, HandshakeFrame::kAuth, body), 4096);
  require(acceptor.authenticated());
  check_end(acceptor);
  if (acceptor.state() != Handshake::State::kDeciding) return;
  // Each offer is compared with the acceptor's own.
  const auto& offers = acceptor.outcome().offers;
  require(!offers.empty() && offers.size() <= limits::kOffers);
  const auto choice = choose(acceptor.outcome().peer.name, offers, "name", kHoldings);
  if (!choice) {
    require(!choice.error().text().empty());
    return acceptor.refuse(choice.error());
  }
  require(choice->offer < offers.size() && choice->holding < kHoldings.size());
  require(offers[choice->offer].provider == kHoldings[choice->holding].provider);
  acceptor.accept(choice->offer, choice->reason, {});
}

void setup(Bytes body) {
  Handshake initiator = Handshake::initiator(config(2), {});
  Handshake acceptor = Handshake::acceptor(config(1));
  ByteVector transcript = take(initiator);
  feed(acceptor, transcript, 4096);
  const ByteVector challenge = take(acceptor);
  feed(initiator, challenge, 4096);
  transcript.insert(transcript.end(), challenge.begin(), challenge.end());
  const ByteVector auth = take(initiator);
  feed(acceptor, auth, 4096);
  transcript.insert(transcript.end(), auth.begin(), auth.end());
  require(acceptor.state() == Handshake::State::kDeciding);
  acceptor.accept(1, "reason", {});
  feed(acceptor, proved("slime handshake 3 initiator", transcript, HandshakeFrame::kSetup, body), 4096);
  check_end(acceptor);
  // Either done, or not: a SETUP for the other offer is ignored, and a valid SETUP may follow.
  require(acceptor.state() != Handshake::State::kDeciding);
}

void answer(HandshakeFrame type, Bytes body) {
  Handshake initiator = Handshake::initiator(config(1), {});
  Handshake other = Handshake::acceptor(config(2));
  ByteVector transcript = take(initiator);
  feed(other, transcript, 4096);
  const ByteVector challenge = take(other);
  feed(initiator, challenge, 4096);
  transcript.insert(transcript.end(), challenge.begin(), challenge.end());
  const ByteVector sent = take(initiator);
  transcript.insert(transcript.end(), sent.begin(), sent.end());
  initiator.set_up(1, {});
  feed(initiator, proved("slime handshake 3 acceptor", transcript, type, body), 4096);
  check_end(initiator);
  if (initiator.state() == Handshake::State::kDeciding) {
    require(initiator.outcome().choice == 0U);
    initiator.set_up(0, {});
  }
  require(initiator.state() == Handshake::State::kDone || initiator.state() == Handshake::State::kFailed);
}

// A parsed key proof is encoded to the same bytes, up to the MAC, and is valid only with the right
// MAC.
void key_proof(Bytes input) {
  HandshakeProofs initiator(HandshakeRole::kInitiator);
  HandshakeProofs acceptor(HandshakeRole::kAcceptor);
  const ByteVector shared = take_hello();
  initiator.add_shared(shared);
  acceptor.add_shared(shared);
  const slime::Secret key(slime::as_bytes(kToken));
  const bool fits = acceptor.fits(key, input);
  const auto proof = decode_key_proof(input);
  if (!proof) return;
  const ByteVector again = encode_key_proof(initiator, key, *proof);
  require(again.size() == input.size());
  const auto before_mac = static_cast<std::ptrdiff_t>(again.size() - sizeof(HandshakeMac));
  require(std::equal(again.begin(), again.begin() + before_mac, input.begin()));
  require(fits == std::equal(again.begin(), again.end(), input.begin()));
  require(acceptor.fits(key, again) && !initiator.fits(key, again));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes input = Bytes(reinterpret_cast<const std::byte*>(data), size).subspan(1);
  switch (data[0] % 9) {
    case 0:
      raw(true, Handshake::acceptor(config(1)), input);
      break;
    case 1:
      raw(false, Handshake::initiator(config(1), {"expected", {}}), input);
      break;
    case 2:
      auth(Handshake::acceptor(config(1)), input);
      break;
    case 3:
      answer(HandshakeFrame::kAccept, input);
      break;
    case 4:
      answer(HandshakeFrame::kRefuse, input);
      break;
    case 5:
      setup(input);
      break;
    case 6:
      raw(true, Handshake::acceptor(config_with_keys(1)), input);
      break;
    case 7:
      auth(Handshake::acceptor(config_with_keys(1)), input);
      break;
    default:
      key_proof(input);
      break;
  }
  return 0;
}
