#include "transport/handshake.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport {
namespace {

constexpr std::size_t kHeaderBytes = sizeof(HandshakeHeader);
constexpr std::size_t kMacBytes = sizeof(HandshakeMac);

static_assert(std::has_unique_object_representations_v<HandshakeHeader>);
static_assert(std::has_unique_object_representations_v<HandshakeOpening>);
// The largest frames: AUTH, ACCEPT and REFUSE.
static_assert(kHeaderBytes + 2 * sizeof(InstanceId) + 2 * (2 + limits::kNameBytes) +
                  (1 + limits::kOffers * (2 + limits::kProviderNameBytes + 2 + limits::kHintBytes)) +
                  kMacBytes <=
              limits::kHandshakeFrameBytes);
static_assert(kHeaderBytes + sizeof(InstanceId) + (2 + limits::kNameBytes) + 1 +
                  (2 + limits::kChoiceReasonBytes) + (2 + limits::kProviderParameterBytes) + kMacBytes <=
              limits::kHandshakeFrameBytes);
static_assert(kHeaderBytes + 1 + 2 + limits::kErrorTextBytes + kMacBytes <= limits::kHandshakeFrameBytes);

Status too_long(std::string_view what, std::size_t size, std::size_t limit) {
  return Status(Code::kInvalidArgument, str(what, " has ", size, " bytes, the limit is ", limit));
}

ByteVector read_bytes(ByteReader& reader, std::size_t limit) {
  const std::string raw = reader.text(limit);
  const Bytes bytes = as_bytes(raw);
  return ByteVector(bytes.begin(), bytes.end());
}

ByteVector read_parameters(ByteReader& reader) { return read_bytes(reader, limits::kProviderParameterBytes); }

// Returns an empty list if the number of offers is too large; `reader` notes all other faults.
std::vector<Offer> read_offers(ByteReader& reader) {
  const std::size_t count = reader.read<std::uint8_t>();
  std::vector<Offer> out;
  if (count > limits::kOffers) return out;
  for (std::size_t i = 0; i < count && !reader.failed(); ++i) {
    Offer& offer = out.emplace_back();
    offer.provider = reader.text(limits::kProviderNameBytes);
    offer.hint = read_bytes(reader, limits::kHintBytes);
  }
  return out;
}

std::string features_text(std::uint64_t bits) {
  std::ostringstream out;
  out << "0x" << std::hex << bits;
  return std::move(out).str();
}

}  // namespace

Status Handshake::validate(const Config& config, Bytes parameters) {
  using namespace limits;
  if (config.self.name.size() > kNameBytes)
    return too_long("the peer name", config.self.name.size(), kNameBytes);
  if (config.token.size() > kTokenBytes) return too_long("the token", config.token.size(), kTokenBytes);
  if (config.keys.size() > kHandshakeKeys)
    return Status(Code::kInvalidArgument, str(config.keys.size(), " keys, the limit is ", kHandshakeKeys));
  if (config.offers.size() > kOffers)
    return Status(Code::kInvalidArgument,
                  str(config.offers.size(), " providers are offered, the limit is ", kOffers));
  for (const Offer& offer : config.offers) {
    if (offer.provider.size() > kProviderNameBytes)
      return too_long("the provider's name", offer.provider.size(), kProviderNameBytes);
    if (offer.hint.size() > kHintBytes)
      return too_long(str("the hint of ", offer.provider), offer.hint.size(), kHintBytes);
  }
  if (parameters.size() > kProviderParameterBytes)
    return too_long("what the provider tells the peer", parameters.size(), kProviderParameterBytes);
  return {};
}

Handshake::Handshake(Role self, Config config)
    : config_(std::move(config)),
      awaited_(self == Role::kInitiator ? Awaited::kChallenge : Awaited::kHello),
      proofs_(self) {
  SLIME_CHECK(validate(config_).ok());
  keys_ = std::move(config_.keys);
  if (keys_.empty()) keys_.emplace_back(as_bytes(config_.token));
  config_.token.clear();
  if (role() == Role::kInitiator) keys_.resize(1);
}

Handshake Handshake::initiator(Config config, PeerIdentity expected) {
  SLIME_CHECK(expected.name.size() <= limits::kNameBytes && !config.offers.empty());
  Handshake out(Role::kInitiator, std::move(config));
  out.expected_ = std::move(expected);
  out.send_opening(HandshakeFrame::kHello);
  return out;
}

Handshake Handshake::acceptor(Config config) { return {Role::kAcceptor, std::move(config)}; }

// ---------------------------------------------------------------------------------------- bytes in

std::size_t Handshake::wanted() const {
  if (state_ != State::kReading) return 0;
  if (frame_.size() < kHeaderBytes) return kHeaderBytes - frame_.size();
  if (awaited_ == Awaited::kHello && std::memcmp(frame_.data(), kProbeMagic.data(), 4) == 0)
    return sizeof(ProbeRequest) - frame_.size();
  HandshakeHeader header;
  std::memcpy(&header, frame_.data(), kHeaderBytes);
  return kHeaderBytes + header.body_bytes - frame_.size();
}

void Handshake::feed(Bytes bytes) {
  SLIME_CHECK(bytes.size() <= wanted());
  frame_.insert(frame_.end(), bytes.begin(), bytes.end());
  on_bytes();
}

void Handshake::on_bytes() {
  const std::size_t magic_bytes = std::min(frame_.size(), kHandshakeMagic.size());
  const bool probe =
      awaited_ == Awaited::kHello && std::memcmp(frame_.data(), kProbeMagic.data(), magic_bytes) == 0;
  if (!probe && std::memcmp(frame_.data(), kHandshakeMagic.data(), magic_bytes) != 0)
    return fail(
        Code::kCorrupt,
        std::memcmp(frame_.data(), "HTTP", magic_bytes) == 0
            ? "what answers is an HTTP server, such as nanoctrl (which goes into ctrl_url), not a Slime agent"
            : "what answers is not a Slime agent");
  if (frame_.size() < kHeaderBytes) return;
  if (probe) {
    if (frame_.size() == sizeof(ProbeRequest)) on_probe();
    return;
  }
  HandshakeHeader header;
  std::memcpy(&header, frame_.data(), kHeaderBytes);
  if (header.body_bytes > limits::kHandshakeFrameBytes - kHeaderBytes)
    return fail(Code::kCorrupt, str("a handshake frame of ", header.body_bytes, " bytes is too large"));
  if (frame_.size() == kHeaderBytes + header.body_bytes) on_frame(header);
}

void Handshake::on_probe() {
  ProbeRequest request;
  std::memcpy(&request, frame_.data(), sizeof request);
  ProbeReply reply;
  reply.same = request.instance == config_.self.instance.bytes ? 1 : 0;
  ByteWriter(output_).append(std::as_bytes(std::span(&reply, 1)));
  state_ = State::kProbed;
}

void Handshake::on_frame(const HandshakeHeader& header) {
  const Bytes body = Bytes(frame_).subspan(kHeaderBytes);
  if (header.version != kHandshakeVersion) {
    std::string text = str("it speaks version ", int{header.version}, " of the handshake, we speak ",
                           int{kHandshakeVersion}, ": upgrade the older one");
    // The refusal tells the peer our version, which is no secret: the peer can then report why the
    // handshake fails.
    if (role() == Role::kAcceptor)
      send_refusal(Status(Code::kCorrupt, str("it speaks version ", int{kHandshakeVersion},
                                              " of the handshake, we speak ", int{header.version})),
                   false);
    return fail(Code::kCorrupt, std::move(text));
  }
  const bool refusal = header.type == HandshakeFrame::kRefuse && role() == Role::kInitiator;
  if (refusal) {
    on_refuse(body);
  } else if (awaited_ == Awaited::kHello && header.type == HandshakeFrame::kHello) {
    on_opening(body);
  } else if (awaited_ == Awaited::kChallenge && header.type == HandshakeFrame::kChallenge) {
    on_opening(body);
  } else if (awaited_ == Awaited::kAuth && header.type == HandshakeFrame::kAuth) {
    on_auth(body);
  } else if (awaited_ == Awaited::kSetup && header.type == HandshakeFrame::kSetup) {
    on_setup(body);
  } else if (awaited_ == Awaited::kAccept && header.type == HandshakeFrame::kAccept) {
    on_accept(body);
  } else {
    fail(Code::kCorrupt, str("unexpected handshake frame ", static_cast<int>(header.type)));
  }
  frame_.clear();
}

void Handshake::on_opening(Bytes body) {
  if (body.size() != sizeof(HandshakeOpening))
    return fail(Code::kCorrupt, "the opening of the handshake has a wrong size");
  std::memcpy(&peer_opening_, body.data(), sizeof peer_opening_);
  proofs_.add_shared(frame_);
  if (role() == Role::kAcceptor) {
    send_opening(HandshakeFrame::kChallenge);
    awaited_ = Awaited::kAuth;
    return;
  }
  const bool token_there = peer_opening_.has_token != 0;
  if (token_there && keys_.front().empty())
    return fail(
        Code::kUnauthenticated,
        "it requires a token, and none is set here: set the same one, or where nanoctrl hands keys to "
        "the members of a scope register there, with a ctrl_token of role join");
  if (!token_there && !keys_.front().empty())
    return fail(Code::kUnauthenticated, "a token is set here, and it has none");
  const std::uint64_t unknown = peer_opening_.required_features & ~config_.features.known();
  if (unknown != 0)
    return fail(Code::kUnimplemented,
                str("it requires features that we do not know: ", features_text(unknown)));
  send_auth();
  awaited_ = Awaited::kAccept;
  state_ = State::kDeciding;
}

void Handshake::on_auth(Bytes body) {
  // Checks the MAC of AUTH before anything else in the frame is read.
  const bool ours = !keys_.front().empty();
  const bool token_fits = (peer_opening_.has_token != 0) == ours;
  const auto key =
      std::find_if(keys_.begin(), keys_.end(), [&](const Secret& one) { return proofs_.fits(one, frame_); });
  if (!token_fits || key == keys_.end()) {
    send_refusal(Status(Code::kUnauthenticated, {}), false);
    return fail(Code::kUnauthenticated, token_fits ? "it does not have our token"
                                        : ours     ? "it has no token, and one is set here"
                                                   : "it has a token, and none is set here");
  }
  std::swap(keys_.front(), *key);
  keys_.resize(1);
  authenticated_ = true;
  ByteReader reader(body.first(body.size() - kMacBytes));
  outcome_.peer.instance = reader.read<InstanceId>();
  const auto wanted_instance = reader.read<InstanceId>();
  outcome_.peer.name = reader.text(limits::kNameBytes);
  const std::string wanted_name = reader.text(limits::kNameBytes);
  outcome_.offers = read_offers(reader);
  if (!reader.complete() || outcome_.offers.empty())
    return fail(Code::kCorrupt, "its AUTH frame does not parse");
  proofs_.add_shared(frame_);
  outcome_.features = peer_opening_.required_features | peer_opening_.optional_features;
  outcome_.features &= config_.features.known();
  state_ = State::kDeciding;

  const std::uint64_t unknown = peer_opening_.required_features & ~config_.features.known();
  if (unknown != 0)
    return refuse(
        Status(Code::kUnimplemented, str("required features are not known: ", features_text(unknown))));
  if (Status fits = check_expected({wanted_name, wanted_instance}, config_.self); !fits.ok())
    return refuse(std::move(fits));
}

void Handshake::on_setup(Bytes body) {
  if (!proof_fits()) return fail(Code::kUnauthenticated, "it proved itself, but not what it then said");
  ByteReader reader(body.first(body.size() - kMacBytes));
  const std::size_t offer = reader.read<std::uint8_t>();
  ByteVector parameters = read_parameters(reader);
  if (!reader.complete() || offer >= outcome_.offers.size())
    return fail(Code::kCorrupt, "its SETUP frame does not parse");
  if (offer != outcome_.choice) {
    // One SETUP for another offer is allowed: the initiator may send it before it knows the choice.
    // A second one is an error, because the initiator has then seen ACCEPT.
    if (void_setup_) return fail(Code::kCorrupt, "it set up what was not chosen, twice");
    void_setup_ = true;
    return;
  }
  outcome_.parameters = std::move(parameters);
  setup_ = frame_;
  finish();
}

void Handshake::on_accept(Bytes body) {
  if (!proof_fits()) return fail(Code::kUnauthenticated, "it does not have our token, but took us in");
  authenticated_ = true;
  ByteReader reader(body.first(body.size() - kMacBytes));
  outcome_.peer.instance = reader.read<InstanceId>();
  outcome_.peer.name = reader.text(limits::kNameBytes);
  const std::size_t choice = reader.read<std::uint8_t>();
  outcome_.reason = reader.text(limits::kChoiceReasonBytes);
  outcome_.parameters = read_parameters(reader);
  if (!reader.complete() || choice >= config_.offers.size())
    return fail(Code::kCorrupt, "its ACCEPT frame does not parse");
  outcome_.choice = choice;
  outcome_.features = peer_opening_.required_features | peer_opening_.optional_features;
  outcome_.features &= config_.features.known();
  if (Status fits = check_expected(expected_, outcome_.peer); !fits.ok())
    return fail(fits.code(), fits.text());
  accept_ = frame_;
  if (set_up_for_ == choice) return finish();
  state_ = State::kDeciding;
}

void Handshake::on_refuse(Bytes body) {
  if (body.size() < 1 + 2 + kMacBytes) return fail(Code::kCorrupt, "its REFUSE frame does not parse");
  ByteReader reader(body.first(body.size() - kMacBytes));
  const Code code = error_code_from_wire(reader.read<std::uint8_t>());
  std::string text = reader.text(limits::kErrorTextBytes);
  if (!reader.complete()) return fail(Code::kCorrupt, "its REFUSE frame does not parse");
  if (awaited_ == Awaited::kAccept && proof_fits()) {
    authenticated_ = true;
    return fail(code, str("it refused: ", text));
  }
  // The error has a fixed text: without a valid MAC, the text of the REFUSE frame may come from
  // anywhere.
  fail(Code::kUnauthenticated,
       "it did not accept our token: both sides need the same one, or to be members of the same scope");
}

Status Handshake::check_expected(const PeerIdentity& expected, const PeerIdentity& real) const {
  if (!expected.name.empty() && expected.name != real.name)
    return Status(Code::kAborted, str("'", expected.name, "' is not here, this is '", real.name, "'"));
  if (!expected.instance.is_zero() && expected.instance != real.instance)
    return Status(Code::kAborted,
                  str("'", real.name, "' has restarted: instance ", expected.instance.to_string(),
                      " is gone, this is ", real.instance.to_string()));
  return {};
}

// --------------------------------------------------------------------------------------- bytes out

void Handshake::sent(std::size_t bytes) {
  SLIME_CHECK(bytes <= output().size());
  output_begin_ += bytes;
  if (output_begin_ == output_.size()) {
    output_.clear();
    output_begin_ = 0;
  }
}

void Handshake::set_up(std::size_t offer, Bytes parameters) {
  SLIME_CHECK(role() == Role::kInitiator && state_ == State::kDeciding);
  SLIME_CHECK(offer < config_.offers.size() && parameters.size() <= limits::kProviderParameterBytes);
  SLIME_CHECK(!outcome_.choice || offer == *outcome_.choice);
  ByteVector body;
  ByteWriter writer(body);
  writer.write(static_cast<std::uint8_t>(offer));
  writer.text(as_text(parameters));
  setup_ = send_proved(HandshakeFrame::kSetup, std::move(body));
  set_up_for_ = offer;
  if (outcome_.choice) return finish();
  state_ = State::kReading;
}

void Handshake::await_choice() {
  SLIME_CHECK(role() == Role::kInitiator && state_ == State::kDeciding && !outcome_.choice);
  state_ = State::kReading;
}

void Handshake::accept(std::size_t offer, std::string_view reason, Bytes parameters) {
  SLIME_CHECK(role() == Role::kAcceptor && state_ == State::kDeciding);
  SLIME_CHECK(offer < outcome_.offers.size() && parameters.size() <= limits::kProviderParameterBytes);
  outcome_.choice = offer;
  outcome_.reason = reason.substr(0, limits::kChoiceReasonBytes);
  ByteVector body;
  ByteWriter writer(body);
  writer.write(config_.self.instance);
  writer.text(config_.self.name);
  writer.write(static_cast<std::uint8_t>(offer));
  writer.text(outcome_.reason);
  writer.text(as_text(parameters));
  accept_ = send_proved(HandshakeFrame::kAccept, std::move(body));
  awaited_ = Awaited::kSetup;
  state_ = State::kReading;
}

void Handshake::refuse(Status reason) {
  SLIME_CHECK(state_ == State::kDeciding && !reason.ok());
  if (role() == Role::kInitiator) return fail(reason.code(), reason.text());
  send_refusal(reason, true);
  fail(reason.code(), str("we refused it: ", reason.text()));
}

void Handshake::send_opening(HandshakeFrame type) {
  HandshakeOpening opening;
  opening.required_features = config_.features.required;
  opening.optional_features = config_.features.optional;
  opening.nonce = config_.nonce;
  opening.has_token = keys_.front().empty() ? 0 : 1;
  send_frame(type, std::as_bytes(std::span(&opening, 1)));
}

void Handshake::send_auth() {
  ByteVector body;
  ByteWriter writer(body);
  writer.write(config_.self.instance);
  writer.write(expected_.instance);
  writer.text(config_.self.name);
  writer.text(expected_.name);
  writer.write(static_cast<std::uint8_t>(config_.offers.size()));
  for (const Offer& offer : config_.offers) {
    writer.text(offer.provider);
    writer.text(as_text(offer.hint));
  }
  send_proved(HandshakeFrame::kAuth, std::move(body));
}

void Handshake::send_refusal(const Status& reason, bool proved) {
  ByteVector body;
  ByteWriter writer(body);
  writer.write(static_cast<std::uint8_t>(reason.code()));
  writer.text(std::string_view(reason.text()).substr(0, limits::kErrorTextBytes));
  if (proved) {
    send_proved(HandshakeFrame::kRefuse, std::move(body));
    return;
  }
  writer.write(HandshakeMac{});
  send_frame(HandshakeFrame::kRefuse, body);
}

ByteVector Handshake::send_proved(HandshakeFrame type, ByteVector body) {
  HandshakeHeader header;
  header.type = type;
  header.body_bytes = static_cast<std::uint16_t>(body.size() + kMacBytes);
  ByteVector frame;
  ByteWriter writer(frame);
  writer.write(header);
  writer.append(body);
  const HandshakeMac mac = proofs_.prove(keys_.front(), frame);
  writer.append(mac);
  ByteWriter(body).append(mac);
  send_frame(type, body);
  return frame;
}

void Handshake::send_frame(HandshakeFrame type, Bytes body) {
  HandshakeHeader header;
  header.type = type;
  header.body_bytes = static_cast<std::uint16_t>(body.size());
  SLIME_CHECK(kHeaderBytes + body.size() <= limits::kHandshakeFrameBytes);
  ByteWriter writer(output_);
  writer.write(header);
  writer.append(body);
  // SETUP and ACCEPT cross, so each is left out of the bytes that the other's MAC covers.
  const bool shared =
      type == HandshakeFrame::kHello || type == HandshakeFrame::kChallenge || type == HandshakeFrame::kAuth;
  if (!shared) return;
  proofs_.add_shared(std::as_bytes(std::span(&header, 1)));
  proofs_.add_shared(body);
}

void Handshake::finish() {
  proofs_.add_shared(setup_);
  proofs_.add_shared(accept_);
  setup_ = accept_ = {};
  state_ = State::kDone;
}

void Handshake::fail(Code code, std::string text) {
  state_ = State::kFailed;
  error_ = Status(code, std::move(text));
}

}  // namespace slime::transport
