#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/random.h"
#include "transport/handshake.h"
#include "transport/limits.h"

namespace slime::transport {
namespace {

using State = Handshake::State;

InstanceId instance(unsigned char fill) {
  InstanceId out;
  out.bytes.fill(std::byte{fill});
  return out;
}

Handshake::Config config(std::string name, unsigned char fill, std::string token = "") {
  Handshake::Config out{{std::move(name), instance(fill)}, std::move(token), "tcp", {}, {}};
  out.nonce.fill(std::byte{static_cast<unsigned char>(fill + 1)});
  return out;
}

ByteVector bytes_of(std::string_view text) {
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

// Gives `bytes` to `to` in pieces of at most `piece`; returns how many it took.
std::size_t give(Handshake& to, Bytes bytes, std::size_t piece = 4096) {
  std::size_t taken = 0;
  while (taken < bytes.size() && to.wanted() > 0) {
    const std::size_t n = std::min({to.wanted(), piece, bytes.size() - taken});
    to.feed(bytes.subspan(taken, n));
    taken += n;
  }
  return taken;
}

ByteVector take_output(Handshake& from) {
  ByteVector out(from.output().begin(), from.output().end());
  from.sent(out.size());
  return out;
}

// Carries bytes both ways until neither side has any; accepts when asked to.
void run(Handshake& a, Handshake& b, std::size_t piece = 4096, Bytes answer = {}) {
  for (int round = 0; round < 10; ++round) {
    if (b.state() == State::kDeciding) b.accept(answer);
    give(b, take_output(a), piece);
    if (b.state() == State::kDeciding) b.accept(answer);
    give(a, take_output(b), piece);
  }
}

struct Sides {
  Handshake a;
  Handshake b;
};

Sides sides(Handshake::Config a, Handshake::Config b, PeerIdentity expected = {},
            ByteVector parameters = {}) {
  return {Handshake::initiator(std::move(a), std::move(expected), std::move(parameters)),
          Handshake::acceptor(std::move(b))};
}

TEST_CASE("two sides learn each other's name, instance and parameters") {
  for (const char* token : {"", "a shared secret"}) {
    Sides s = sides(config("worker:0", 1, token), config("server", 5, token), {"server", instance(5)},
                    bytes_of("from a"));
    run(s.a, s.b, 4096, as_bytes("from b"));
    REQUIRE(s.a.state() == State::kDone);
    REQUIRE(s.b.state() == State::kDone);
    CHECK(s.a.outcome().peer.name == "server");
    CHECK(s.a.outcome().peer.instance == instance(5));
    CHECK(as_text(s.a.outcome().parameters) == "from b");
    CHECK(s.b.outcome().peer.name == "worker:0");
    CHECK(s.b.outcome().peer.instance == instance(1));
    CHECK(as_text(s.b.outcome().parameters) == "from a");
    CHECK(s.a.wanted() == 0);
    CHECK(s.b.wanted() == 0);
  }
}

TEST_CASE("it works one byte at a time") {
  Sides s = sides(config("a", 1, "token"), config("b", 5, "token"), {}, bytes_of("parameters"));
  run(s.a, s.b, 1, as_bytes("answer"));
  CHECK(s.a.state() == State::kDone);
  CHECK(s.b.state() == State::kDone);
  CHECK(as_text(s.b.outcome().parameters) == "parameters");
}

TEST_CASE("no byte that follows the handshake is taken") {
  Sides s = sides(config("a", 1), config("b", 5));
  give(s.b, take_output(s.a));
  give(s.a, take_output(s.b));
  ByteVector auth = take_output(s.a);
  const std::size_t size = auth.size();
  auth.resize(size + 100);
  CHECK(give(s.b, auth) == size);
  s.b.accept({});
  ByteVector accept = take_output(s.b);
  const std::size_t accept_size = accept.size();
  accept.resize(accept_size + 100);
  CHECK(give(s.a, accept) == accept_size);
  CHECK(s.a.state() == State::kDone);
}

TEST_CASE("the frames are the documented ones, byte by byte") {
  Sides s = sides(config("al", 0x11, "k"), config("bo", 0x22, "k"), {"bo", {}}, bytes_of("P"));
  const auto nonce_hex = [](const char* byte) {
    std::string out;
    for (int i = 0; i < 32; ++i) out += byte;
    return out;
  };
  const ByteVector hello = take_output(s.a);
  CHECK(to_hex(hello) ==
        "534c4853"
        "01"
        "01"
        "3800"
        "0000000000000000"
        "0000000000000000" +
            nonce_hex("12") +
            "01"
            "00000000000000");
  give(s.b, hello);
  const ByteVector challenge = take_output(s.b);
  CHECK(to_hex(challenge) ==
        "534c4853"
        "02"
        "01"
        "3800"
        "0000000000000000"
        "0000000000000000" +
            nonce_hex("23") +
            "01"
            "00000000000000");
  give(s.a, challenge);
  const ByteVector auth = take_output(s.a);
  const std::string auth_fields =
      "534c4853"
      "03"
      "01"
      "5000"
      "11111111111111111111111111111111"
      "00000000000000000000000000000000"
      "0200616c"
      "0200626f"
      "0300746370"
      "010050";
  CHECK(to_hex(Bytes(auth).first(auth.size() - 32)) == auth_fields);
  // HMAC-SHA256("k", "slime handshake 1 initiator" HELLO CHALLENGE AUTH-without-MAC), computed by another
  // implementation (Python's hmac module).
  CHECK(to_hex(Bytes(auth).last(32)) == "a27efedf102ca6e94e0793dce389bb831db709f4766f005880533e953c7ab82d");
  give(s.b, auth);
  REQUIRE(s.b.state() == State::kDeciding);
  s.b.accept(as_bytes("Q"));
  const ByteVector accept = take_output(s.b);
  CHECK(to_hex(Bytes(accept).first(accept.size() - 32)) ==
        "534c4853"
        "04"
        "01"
        "3700"
        "22222222222222222222222222222222"
        "0200626f"
        "010051");
  CHECK(to_hex(Bytes(accept).last(32)) == "bbb5ab19c835241c0bcfe61d189edf51aa45b52f0b23bff7c2459e3e674ff78c");
  give(s.a, accept);
  CHECK(s.a.state() == State::kDone);
}

TEST_CASE("a refusal after the proof carries its code and text") {
  Sides s = sides(config("a", 1, "k"), config("b", 5, "k"));
  give(s.b, take_output(s.a));
  give(s.a, take_output(s.b));
  give(s.b, take_output(s.a));
  REQUIRE(s.b.state() == State::kDeciding);
  CHECK(s.b.outcome().peer.name == "a");
  s.b.refuse(Status(Code::kResourceExhausted, "no slots"));
  CHECK(s.b.error().code() == Code::kResourceExhausted);
  give(s.a, take_output(s.b));
  REQUIRE(s.a.state() == State::kFailed);
  CHECK(s.a.error().code() == Code::kResourceExhausted);
  CHECK(s.a.error().text() == "it refused: no slots");
  CHECK(s.a.authenticated());
}

// Everything that the acceptor says to somebody without the token, and what the initiator makes of it.
void expect_nothing_learnt(Handshake::Config a, const std::string& acceptor_token) {
  Sides s = sides(std::move(a), config("secret-name", 0x77, acceptor_token));
  ByteVector heard;
  for (int round = 0; round < 5; ++round) {
    give(s.b, take_output(s.a));
    const ByteVector out = take_output(s.b);
    heard.insert(heard.end(), out.begin(), out.end());
    give(s.a, out);
  }
  REQUIRE(s.a.state() == State::kFailed);
  CHECK(s.a.error().code() == Code::kUnauthenticated);
  CHECK_FALSE(s.a.authenticated());
  CHECK_FALSE(s.b.authenticated());
  CHECK(s.b.state() != State::kDone);
  CHECK(s.b.state() != State::kDeciding);
  CHECK(as_text(heard).find("secret-name") == std::string::npos);
  CHECK(to_hex(heard).find(instance(0x77).to_string()) == std::string::npos);
}

TEST_CASE("a wrong token learns nothing but that it is wrong") {
  expect_nothing_learnt(config("a", 1, "wrong"), "right");
  expect_nothing_learnt(config("a", 1, "right "), "right");
}

TEST_CASE("a token on one side only is told to the side that can mend it") {
  expect_nothing_learnt(config("a", 1), "right");
  expect_nothing_learnt(config("a", 1, "right"), "");
  Sides none = sides(config("a", 1), config("b", 5, "right"));
  run(none.a, none.b);
  CHECK(none.a.error().text() == "it requires a token, and none is set here");
  Sides extra = sides(config("a", 1, "right"), config("b", 5));
  run(extra.a, extra.b);
  CHECK(extra.a.error().text() == "a token is set here, and it has none");
}

TEST_CASE("a peer that denies having a token is not believed") {
  // It says that there is none and proves itself with the empty key, as it would without a token.
  Handshake a = Handshake::initiator(config("a", 1), {}, {});
  Handshake b = Handshake::acceptor(config("b", 5, "right"));
  give(b, take_output(a));
  ByteVector challenge = take_output(b);
  challenge[8 + 48] = std::byte{0};  // so that the initiator goes on
  give(a, challenge);
  REQUIRE(a.state() == State::kReading);
  give(b, take_output(a));
  CHECK(b.state() == State::kFailed);
  CHECK(b.error().code() == Code::kUnauthenticated);
}

TEST_CASE("an acceptor without the token is found out") {
  Handshake a = Handshake::initiator(config("a", 1, "right"), {}, {});
  Handshake impostor = Handshake::acceptor(config("b", 5, "wrong"));
  give(impostor, take_output(a));
  give(a, take_output(impostor));
  take_output(a);
  // It takes us in all the same, with the only proof it can make.
  Handshake peer_of_impostor = Handshake::initiator(config("x", 9, "wrong"), {}, {});
  Handshake other = Handshake::acceptor(config("b", 5, "wrong"));
  run(peer_of_impostor, other);
  Handshake again = Handshake::acceptor(config("b", 5, "wrong"));
  Handshake driver = Handshake::initiator(config("x", 9, "wrong"), {}, {});
  give(again, take_output(driver));
  give(driver, take_output(again));
  give(again, take_output(driver));
  again.accept({});
  give(a, take_output(again));
  REQUIRE(a.state() == State::kFailed);
  CHECK(a.error().code() == Code::kUnauthenticated);
  CHECK_FALSE(a.authenticated());
}

TEST_CASE("messages of an earlier handshake do not fit a later one") {
  Sides first = sides(config("a", 1, "k"), config("b", 5, "k"));
  const ByteVector hello = take_output(first.a);
  give(first.b, hello);
  give(first.a, take_output(first.b));
  const ByteVector auth = take_output(first.a);
  give(first.b, auth);
  REQUIRE(first.b.state() == State::kDeciding);

  Handshake::Config fresh = config("b", 5, "k");
  fresh.nonce.fill(std::byte{0x99});
  Handshake b = Handshake::acceptor(std::move(fresh));
  give(b, hello);
  give(b, auth);
  CHECK(b.state() == State::kFailed);
  CHECK(b.error().code() == Code::kUnauthenticated);
}

TEST_CASE("what we send does not pass when it is sent back to us") {
  // The mirror has no token: it returns HELLO as its CHALLENGE and AUTH as its ACCEPT.
  Handshake a = Handshake::initiator(config("a", 1, "k"), {}, {});
  ByteVector challenge = take_output(a);
  challenge[4] = static_cast<std::byte>(HandshakeFrame::kChallenge);
  give(a, challenge);
  REQUIRE(a.state() == State::kReading);
  ByteVector accept = take_output(a);
  accept[4] = static_cast<std::byte>(HandshakeFrame::kAccept);
  give(a, accept);
  CHECK(a.state() == State::kFailed);
  CHECK(a.error().code() == Code::kUnauthenticated);
}

TEST_CASE("every flipped bit of a proved frame is noticed") {
  Sides s = sides(config("a", 1, "k"), config("b", 5, "k"), {}, bytes_of("parameters"));
  const ByteVector hello = take_output(s.a);
  give(s.b, hello);
  give(s.a, take_output(s.b));
  const ByteVector auth = take_output(s.a);
  for (std::size_t i = 8; i < auth.size(); ++i) {
    Handshake b = Handshake::acceptor(config("b", 5, "k"));
    give(b, hello);
    ByteVector changed = auth;
    changed[i] ^= std::byte{1};
    give(b, changed);
    CHECK(b.error().code() == Code::kUnauthenticated);
  }
  give(s.b, auth);
  s.b.accept(as_bytes("x"));
  const ByteVector accept = take_output(s.b);
  for (std::size_t i = 8; i < accept.size(); ++i) {
    Handshake a = Handshake::initiator(config("a", 1, "k"), {}, bytes_of("parameters"));
    Handshake b = Handshake::acceptor(config("b", 5, "k"));
    give(b, take_output(a));
    give(a, take_output(b));
    ByteVector changed = accept;
    changed[i] ^= std::byte{1};
    give(a, changed);
    CHECK(a.error().code() == Code::kUnauthenticated);
  }
}

TEST_CASE("another name or instance than the expected one is aborted") {
  Sides name = sides(config("a", 1), config("b", 5), {"c", {}});
  run(name.a, name.b);
  CHECK(name.a.error().code() == Code::kAborted);
  CHECK(name.a.error().text() == "it refused: 'c' is not here, this is 'b'");
  CHECK(name.b.error().code() == Code::kAborted);
  Sides restarted = sides(config("a", 1), config("b", 5), {"b", instance(4)});
  run(restarted.a, restarted.b);
  CHECK(restarted.a.error().code() == Code::kAborted);
  CHECK(restarted.a.error().text().find("has restarted") != std::string::npos);
}

TEST_CASE("another provider is refused, and both sides are told which there are") {
  Handshake::Config a = config("a", 1);
  Handshake::Config b = config("b", 5);
  a.provider = "verbs";
  b.provider = "tcp";
  Sides s = sides(std::move(a), std::move(b));
  run(s.a, s.b);
  const std::string both =
      "the providers differ: 'a', which connects, has 'verbs', 'b' has 'tcp'; both need the same one";
  CHECK(s.a.error().code() == Code::kUnimplemented);
  CHECK(s.a.error().text() == "it refused: " + both);
  CHECK(s.b.error().text() == "we refused it: " + both);
}

TEST_CASE("features: unknown required ones refuse, unknown optional ones are masked") {
  Handshake::Config a = config("a", 1);
  Handshake::Config b = config("b", 5);
  a.features = {0b0001, 0b0110};
  b.features = {0b0001, 0b1010};
  Sides fits = sides(a, b);
  run(fits.a, fits.b);
  REQUIRE(fits.a.state() == State::kDone);
  CHECK(fits.a.outcome().features == 0b0011);
  CHECK(fits.b.outcome().features == 0b0011);

  b.features = {0, 0b0010};
  Sides initiator_needs_more = sides(a, b);
  run(initiator_needs_more.a, initiator_needs_more.b);
  CHECK(initiator_needs_more.a.error().code() == Code::kUnimplemented);
  CHECK(initiator_needs_more.a.error().text().find("0x1") != std::string::npos);

  a.features = {0, 0};
  b.features = {0x80, 0};
  Sides acceptor_needs_more = sides(a, b);
  run(acceptor_needs_more.a, acceptor_needs_more.b);
  CHECK(acceptor_needs_more.a.error().code() == Code::kUnimplemented);
  CHECK(acceptor_needs_more.a.error().text().find("0x80") != std::string::npos);
}

TEST_CASE("another version is named on both sides") {
  Sides s = sides(config("a", 1), config("b", 5));
  ByteVector hello = take_output(s.a);
  hello[5] = std::byte{9};
  give(s.b, hello);
  REQUIRE(s.b.state() == State::kFailed);
  CHECK(s.b.error().code() == Code::kCorrupt);
  CHECK(s.b.error().text().find("version 9") != std::string::npos);
  ByteVector refusal = take_output(s.b);
  REQUIRE(refusal.size() > 8);
  CHECK(refusal[4] == static_cast<std::byte>(HandshakeFrame::kRefuse));
  CHECK(as_text(refusal).find("version 1") != std::string::npos);
  refusal[5] = std::byte{2};  // as an acceptor of version 2 would say it
  give(s.a, refusal);
  CHECK(s.a.error().code() == Code::kCorrupt);
  CHECK(s.a.error().text().find("version 2") != std::string::npos);
}

TEST_CASE("garbage is found out at its first wrong byte") {
  for (const char* text : {"GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH", "SLH?", "\x16\x03\x01\x02", "SLP2"}) {
    CAPTURE(text);
    Handshake b = Handshake::acceptor(config("b", 5));
    give(b, as_bytes(text), 1);
    CHECK(b.state() == State::kFailed);
    CHECK(b.error().code() == Code::kCorrupt);
    CHECK(b.output().empty());
    CHECK(b.wanted() == 0);
    Handshake a = Handshake::initiator(config("a", 1), {}, {});
    take_output(a);
    give(a, as_bytes(text), 1);
    CHECK(a.state() == State::kFailed);
    CHECK(a.error().code() == Code::kCorrupt);
  }
}

TEST_CASE("a frame that is too large is refused by its header") {
  Handshake b = Handshake::acceptor(config("b", 5));
  HandshakeHeader header;
  header.type = HandshakeFrame::kHello;
  header.body_bytes = limits::kHandshakeFrameBytes - sizeof header + 1;
  give(b, std::as_bytes(std::span(&header, 1)));
  CHECK(b.state() == State::kFailed);
  CHECK(b.error().code() == Code::kCorrupt);
}

TEST_CASE("frames of the wrong size, kind or order are corrupt") {
  const auto frame = [](HandshakeFrame type, std::size_t body) {
    HandshakeHeader header;
    header.type = type;
    header.body_bytes = static_cast<std::uint16_t>(body);
    ByteVector out;
    ByteWriter(out).append(std::as_bytes(std::span(&header, 1)));
    out.resize(out.size() + body);
    return out;
  };
  for (const ByteVector& bytes : {frame(HandshakeFrame::kHello, 55), frame(HandshakeFrame::kHello, 57),
                                  frame(HandshakeFrame::kHello, 0), frame(HandshakeFrame::kAuth, 80),
                                  frame(HandshakeFrame::kChallenge, 56), frame(HandshakeFrame::kRefuse, 40),
                                  frame(HandshakeFrame{0}, 0), frame(HandshakeFrame{200}, 9)}) {
    Handshake b = Handshake::acceptor(config("b", 5));
    give(b, bytes);
    CHECK(b.state() == State::kFailed);
    CHECK(b.error().code() == Code::kCorrupt);
    CHECK(b.output().empty());
  }
  for (const ByteVector& bytes : {frame(HandshakeFrame::kHello, 56), frame(HandshakeFrame::kAccept, 60),
                                  frame(HandshakeFrame::kRefuse, 3)}) {
    Handshake a = Handshake::initiator(config("a", 1), {}, {});
    take_output(a);
    give(a, bytes);
    CHECK(a.state() == State::kFailed);
    CHECK(a.error().code() == Code::kCorrupt);
  }
}

TEST_CASE("a shortened AUTH has no proof") {
  Handshake b = Handshake::acceptor(config("b", 5));
  Handshake a = Handshake::initiator(config("a", 1), {}, {});
  give(b, take_output(a));
  take_output(b);
  HandshakeHeader header;
  header.type = HandshakeFrame::kAuth;
  header.body_bytes = 31;
  ByteVector bytes;
  ByteWriter(bytes).append(std::as_bytes(std::span(&header, 1)));
  bytes.resize(bytes.size() + 31);
  give(b, bytes);
  CHECK(b.error().code() == Code::kUnauthenticated);
}

TEST_CASE("an early refusal of a stranger is not passed on") {
  Handshake a = Handshake::initiator(config("a", 1, "k"), {}, {});
  take_output(a);
  HandshakeHeader header;
  header.type = HandshakeFrame::kRefuse;
  ByteVector body;
  ByteWriter writer(body);
  writer.write(static_cast<std::uint8_t>(Code::kAborted));
  writer.text("your peer has moved to evil.example");
  writer.write(HandshakeMac{});
  header.body_bytes = static_cast<std::uint16_t>(body.size());
  ByteVector frame;
  ByteWriter(frame).append(std::as_bytes(std::span(&header, 1)));
  ByteWriter(frame).append(body);
  give(a, frame);
  CHECK(a.error().code() == Code::kUnauthenticated);
  CHECK(a.error().text().find("evil") == std::string::npos);
}

TEST_CASE("the probe answers yes or no and nothing else") {
  for (const bool same : {true, false}) {
    Handshake b = Handshake::acceptor(config("b", 5, "k"));
    ProbeRequest request;
    request.instance = instance(same ? 5 : 6).bytes;
    CHECK(give(b, std::as_bytes(std::span(&request, 1)), same ? 1 : 20) == sizeof request);
    CHECK(b.state() == State::kProbed);
    const ByteVector answer = take_output(b);
    ProbeReply reply;
    REQUIRE(answer.size() == sizeof reply);
    std::memcpy(&reply, answer.data(), sizeof reply);
    CHECK(reply.magic == kProbeMagic);
    CHECK(reply.same == (same ? 1 : 0));
  }
}

TEST_CASE("the largest names, token and parameters fit a frame; larger ones are refused before") {
  Handshake::Config a =
      config(std::string(limits::kNameBytes, 'n'), 1, std::string(limits::kTokenBytes, 't'));
  a.provider = std::string(limits::kProviderNameBytes, 'p');
  Handshake::Config b =
      config(std::string(limits::kNameBytes, 'm'), 5, std::string(limits::kTokenBytes, 't'));
  b.provider = a.provider;
  const ByteVector parameters(limits::kProviderParameterBytes);
  Sides s = sides(a, b, {b.self.name, b.self.instance}, parameters);
  run(s.a, s.b, 4096, parameters);
  CHECK(s.a.state() == State::kDone);
  CHECK(s.b.outcome().parameters == parameters);
  b.self.name += 'm';
  CHECK(Handshake::validate(b).code() == Code::kInvalidArgument);
  a.token += 't';
  CHECK(Handshake::validate(a).code() == Code::kInvalidArgument);
  CHECK(Handshake::validate(config("a", 1), ByteVector(limits::kProviderParameterBytes + 1)).code() ==
        Code::kInvalidArgument);
}

TEST_CASE("a refusal's text is cut to its limit") {
  Sides s = sides(config("a", 1), config("b", 5));
  give(s.b, take_output(s.a));
  give(s.a, take_output(s.b));
  give(s.b, take_output(s.a));
  s.b.refuse(Status(Code::kUnavailable, std::string(5000, 'x')));
  give(s.a, take_output(s.b));
  CHECK(s.a.error().code() == Code::kUnavailable);
  CHECK(s.a.error().text().size() == limits::kErrorTextBytes + std::strlen("it refused: "));
}

}  // namespace
}  // namespace slime::transport
