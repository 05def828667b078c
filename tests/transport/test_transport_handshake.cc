#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "tests/transport/handshake_sides.h"
#include "transport/limits.h"

namespace slime::transport::testing {
namespace {

TEST_CASE("two sides learn each other's name, instance and parameters") {
  for (const char* token : {"", "a shared secret"}) {
    Sides s = sides(config("worker:0", 1, token), config("server", 5, token), {"server", instance(5)});
    run(s.a, s.b, 4096, as_bytes("from a"), as_bytes("from b"));
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
  Sides s = sides(config("a", 1, "token"), config("b", 5, "token"));
  run(s.a, s.b, 1, as_bytes("parameters"), as_bytes("answer"));
  CHECK(s.a.state() == State::kDone);
  CHECK(s.b.state() == State::kDone);
  CHECK(as_text(s.b.outcome().parameters) == "parameters");
}

TEST_CASE("no byte that follows the handshake is taken") {
  Sides s = sides(config("a", 1), config("b", 5));
  prove(s);
  s.a.set_up(0, {});
  s.b.accept(0, "", {});
  ByteVector setup = take_output(s.a);
  const std::size_t size = setup.size();
  setup.resize(size + 100);
  CHECK(give(s.b, setup) == size);
  CHECK(s.b.state() == State::kDone);
  ByteVector accept = take_output(s.b);
  const std::size_t accept_size = accept.size();
  accept.resize(accept_size + 100);
  CHECK(give(s.a, accept) == accept_size);
  CHECK(s.a.state() == State::kDone);
}

TEST_CASE("both sides may send what they have made at once, or either first") {
  for (const int first : {0, 1, 2}) {
    CAPTURE(first);
    Sides s = sides(config("a", 1, "k"), config("b", 5, "k"));
    prove(s);
    if (first != 1) s.a.set_up(0, as_bytes("from a"));
    if (first != 0) s.b.accept(0, "", as_bytes("from b"));
    const ByteVector setup = take_output(s.a);
    const ByteVector accept = take_output(s.b);
    // What comes while a side still makes its own waits for it.
    CHECK(give(s.b, setup) == (first == 0 ? 0 : setup.size()));
    CHECK(give(s.a, accept) == (first == 1 ? 0 : accept.size()));
    if (first == 1) s.a.set_up(0, as_bytes("from a"));
    if (first == 0) s.b.accept(0, "", as_bytes("from b"));
    if (first == 0) give(s.b, setup);
    if (first == 1) give(s.a, accept);
    give(s.b, take_output(s.a));
    give(s.a, take_output(s.b));
    REQUIRE(s.a.state() == State::kDone);
    REQUIRE(s.b.state() == State::kDone);
    CHECK(as_text(s.a.outcome().parameters) == "from b");
    CHECK(as_text(s.b.outcome().parameters) == "from a");
  }
}

TEST_CASE("an initiator that cannot go on says so to nobody but its owner") {
  Sides s = sides(config("a", 1, "k"), config("b", 5, "k"));
  give(s.b, take_output(s.a));
  give(s.a, take_output(s.b));
  take_output(s.a);
  s.a.refuse(Status(Code::kResourceExhausted, "no slots here"));
  CHECK(s.a.state() == State::kFailed);
  CHECK(s.a.error().code() == Code::kResourceExhausted);
  CHECK(s.a.error().text() == "no slots here");
  CHECK(s.a.output().empty());
}

TEST_CASE("the frames are the documented ones, byte by byte") {
  Handshake::Config initiator = config("al", 0x11, "k");
  initiator.offers = {{"shm", {std::byte{'h'}}}, {"tcp", {}}};
  Sides s = sides(std::move(initiator), config("bo", 0x22, "k"), {"bo", {}});
  const auto nonce_hex = [](const char* byte) {
    std::string out;
    for (int i = 0; i < 32; ++i) out += byte;
    return out;
  };
  const ByteVector hello = take_output(s.a);
  CHECK(to_hex(hello) ==
        "534c4853"
        "01"
        "03"
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
        "03"
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
      "03"
      "5800"
      "11111111111111111111111111111111"
      "00000000000000000000000000000000"
      "0200616c"
      "0200626f"
      "02"
      "030073686d"
      "010068"
      "0300746370"
      "0000";
  CHECK(to_hex(Bytes(auth).first(auth.size() - 32)) == auth_fields);
  // HMAC-SHA256("k", "slime handshake 3 initiator" HELLO CHALLENGE AUTH-without-MAC), computed by
  // another implementation (Python's hmac module).
  CHECK(to_hex(Bytes(auth).last(32)) == "d946f27b28bbe6d02eeb353d554934bd62ebdd9b86762d8a1767143ffeb4edd9");
  give(s.b, auth);
  REQUIRE(s.a.state() == State::kDeciding);
  s.a.set_up(1, as_bytes("P"));
  const ByteVector setup = take_output(s.a);
  CHECK(to_hex(Bytes(setup).first(setup.size() - 32)) ==
        "534c4853"
        "06"
        "03"
        "2400"
        "01"
        "010050");
  // The same over HELLO CHALLENGE AUTH SETUP-without-MAC.
  CHECK(to_hex(Bytes(setup).last(32)) == "a1026823e09d86bb78adbd7abc7e540b4e6bdc81156aaee98d7e7af21914d428");
  REQUIRE(s.b.state() == State::kDeciding);
  s.b.accept(1, "R", as_bytes("Q"));
  const ByteVector accept = take_output(s.b);
  CHECK(to_hex(Bytes(accept).first(accept.size() - 32)) ==
        "534c4853"
        "04"
        "03"
        "3b00"
        "22222222222222222222222222222222"
        "0200626f"
        "01"
        "010052"
        "010051");
  // With the label "slime handshake 3 acceptor", over HELLO CHALLENGE AUTH ACCEPT-without-MAC:
  // SETUP may be under way still.
  CHECK(to_hex(Bytes(accept).last(32)) == "81ffd98b8290908cef627fc00ad163ecffbc998c4af814787414fc25b1bd2e3c");
  give(s.b, setup);
  CHECK(s.b.state() == State::kDone);
  give(s.a, accept);
  CHECK(s.a.state() == State::kDone);
  // Later, over HELLO CHALLENGE AUTH SETUP ACCEPT PROOF-without-MAC, by either side.
  const Secret key(as_bytes("k"));
  const ByteVector from_a = encode_key_proof(s.a.proofs(), key, {7, 1});
  const std::string proof_fields =
      "534c4853"
      "07"
      "03"
      "3000"
      "0700000000000000"
      "0100000000000000";
  CHECK(to_hex(from_a) == proof_fields + "9bb779d75987d22585e851b3183285b12c0023faf15f6e55e5ceb8a37758d8b0");
  const ByteVector from_b = encode_key_proof(s.b.proofs(), key, {7, 1});
  CHECK(to_hex(from_b) == proof_fields + "26c7a6fba3bc7e294fd71c8d4ca39db6e81dc9ae02384c26909e319376ca5676");
  CHECK(s.b.proofs().fits(key, from_a));
  CHECK(s.a.proofs().fits(key, from_b));
  CHECK_FALSE(s.a.proofs().fits(key, from_a));
  const auto read = decode_key_proof(from_a);
  REQUIRE(read.has_value());
  CHECK(read->key == 7);
  CHECK(read->number == 1);
}

// An AUTH, SETUP or ACCEPT of a peer that has the key and has seen the frames before.
ByteVector made_with_key(HandshakeRole role, Bytes before, HandshakeFrame type, ByteVector body) {
  HandshakeProofs proofs(role);
  proofs.add_shared(before);
  HandshakeHeader header;
  header.type = type;
  header.body_bytes = static_cast<std::uint16_t>(body.size() + sizeof(HandshakeMac));
  ByteVector frame;
  ByteWriter writer(frame);
  writer.write(header);
  writer.append(body);
  writer.append(proofs.prove(Secret(as_bytes("k")), frame));
  return frame;
}

TEST_CASE("a member between two others cannot pass a later proof of one on to the other") {
  Sides s = sides(config("a", 1, "k"), config("b", 5, "k"));
  const ByteVector hello = take_output(s.a);
  give(s.b, hello);
  const ByteVector challenge = take_output(s.b);
  give(s.a, challenge);
  const ByteVector auth = take_output(s.a);
  give(s.b, auth);
  ByteVector before = hello;
  for (const ByteVector& frame : {challenge, auth}) before.insert(before.end(), frame.begin(), frame.end());
  s.a.set_up(0, as_bytes("from a"));
  s.b.accept(0, "", as_bytes("from b"));
  take_output(s.a);
  take_output(s.b);
  // "a" asked for an address, not for a name: the one in the middle answers as itself, and speaks
  // as "a".
  ByteVector accept;
  ByteWriter writer(accept);
  writer.write(instance(9));
  writer.text("middle");
  writer.write(std::uint8_t{0});
  writer.text("");
  writer.text("from the middle");
  give(s.a, made_with_key(HandshakeRole::kAcceptor, before, HandshakeFrame::kAccept, accept));
  ByteVector setup;
  ByteWriter(setup).write(std::uint8_t{0});
  ByteWriter(setup).text("from the middle");
  give(s.b, made_with_key(HandshakeRole::kInitiator, before, HandshakeFrame::kSetup, setup));
  REQUIRE(s.a.state() == State::kDone);
  REQUIRE(s.b.state() == State::kDone);
  const Secret newer(as_bytes("a key that the middle has not"));
  CHECK_FALSE(s.b.proofs().fits(newer, encode_key_proof(s.a.proofs(), newer, {7, 1})));
  CHECK_FALSE(s.a.proofs().fits(newer, encode_key_proof(s.b.proofs(), newer, {7, 1})));
}

TEST_CASE("a refusal after the proof carries its code and text") {
  Sides s = sides(config("a", 1, "k"), config("b", 5, "k"));
  prove(s);
  CHECK(s.b.outcome().peer.name == "a");
  s.a.set_up(0, {});
  s.b.refuse(Status(Code::kResourceExhausted, "no slots"));
  CHECK(s.b.error().code() == Code::kResourceExhausted);
  give(s.a, take_output(s.b));
  REQUIRE(s.a.state() == State::kFailed);
  CHECK(s.a.error().code() == Code::kResourceExhausted);
  CHECK(s.a.error().text() == "it refused: no slots");
  CHECK(s.a.authenticated());
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

// An initiator with two offers and an acceptor that has read them.
Sides with_two_offers() {
  Handshake::Config a = config("a", 1, "k");
  a.offers = {{"shm", {std::byte{7}}}, {"tcp", {}}};
  Sides s = sides(std::move(a), config("b", 5, "k"));
  prove(s);
  return s;
}

TEST_CASE("the acceptor learns the offers in their order, and the initiator what was chosen and why") {
  Sides s = with_two_offers();
  REQUIRE(s.b.outcome().offers.size() == 2);
  CHECK(s.b.outcome().offers[0].provider == "shm");
  CHECK(s.b.outcome().offers[0].hint == ByteVector{std::byte{7}});
  CHECK(s.b.outcome().offers[1].provider == "tcp");
  CHECK(s.b.outcome().offers[1].hint.empty());
  s.a.set_up(1, as_bytes("from a"));
  s.b.accept(1, "other host", as_bytes("from b"));
  give(s.b, take_output(s.a));
  give(s.a, take_output(s.b));
  REQUIRE(s.a.state() == State::kDone);
  REQUIRE(s.b.state() == State::kDone);
  for (const Handshake* side : {&s.a, &s.b}) {
    CHECK(side->outcome().choice == 1);
    CHECK(side->outcome().reason == "other host");
  }
}

TEST_CASE("who waits for the choice sets up what was chosen") {
  Sides s = with_two_offers();
  s.a.await_choice();
  CHECK(take_output(s.a).empty());
  s.b.accept(0, "same host and user", as_bytes("from b"));
  give(s.a, take_output(s.b));
  REQUIRE(s.a.state() == State::kDeciding);
  CHECK(s.a.outcome().choice == 0);
  s.a.set_up(0, as_bytes("from a"));
  CHECK(s.a.state() == State::kDone);
  give(s.b, take_output(s.a));
  REQUIRE(s.b.state() == State::kDone);
  CHECK(as_text(s.b.outcome().parameters) == "from a");
}

TEST_CASE("what was set up for another offer than the chosen one is void, and the right one follows") {
  Sides s = with_two_offers();
  s.a.set_up(0, as_bytes("for shm"));
  s.b.accept(1, "other host", as_bytes("from b"));
  give(s.b, take_output(s.a));
  REQUIRE(s.b.state() == State::kReading);
  give(s.a, take_output(s.b));
  REQUIRE(s.a.state() == State::kDeciding);
  s.a.set_up(1, as_bytes("for tcp"));
  const ByteVector again = take_output(s.a);
  SUBCASE("once") {
    give(s.b, again);
    REQUIRE(s.b.state() == State::kDone);
    CHECK(as_text(s.b.outcome().parameters) == "for tcp");
  }
  SUBCASE("not twice: it knows the choice by then") {
    Sides other = with_two_offers();
    other.a.set_up(0, as_bytes("for shm"));
    const ByteVector void_setup = take_output(other.a);
    other.b.accept(1, "other host", {});
    give(other.b, void_setup);
    give(other.b, void_setup);
    CHECK(other.b.state() == State::kFailed);
    CHECK(other.b.error().code() == Code::kCorrupt);
  }
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
  CHECK(as_text(refusal).find("version 3") != std::string::npos);
  refusal[5] = std::byte{4};  // as an acceptor of version 4 would say it
  give(s.a, refusal);
  CHECK(s.a.error().code() == Code::kCorrupt);
  CHECK(s.a.error().text().find("version 4") != std::string::npos);
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
    Handshake a = Handshake::initiator(config("a", 1), {});
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
  for (const ByteVector& bytes :
       {frame(HandshakeFrame::kHello, 55), frame(HandshakeFrame::kHello, 57),
        frame(HandshakeFrame::kHello, 0), frame(HandshakeFrame::kAuth, 80),
        frame(HandshakeFrame::kChallenge, 56), frame(HandshakeFrame::kRefuse, 40),
        frame(HandshakeFrame::kSetup, 40), frame(HandshakeFrame{0}, 0), frame(HandshakeFrame{200}, 9)}) {
    Handshake b = Handshake::acceptor(config("b", 5));
    give(b, bytes);
    CHECK(b.state() == State::kFailed);
    CHECK(b.error().code() == Code::kCorrupt);
    CHECK(b.output().empty());
  }
  for (const ByteVector& bytes : {frame(HandshakeFrame::kHello, 56), frame(HandshakeFrame::kAccept, 60),
                                  frame(HandshakeFrame::kRefuse, 3)}) {
    Handshake a = Handshake::initiator(config("a", 1), {});
    take_output(a);
    give(a, bytes);
    CHECK(a.state() == State::kFailed);
    CHECK(a.error().code() == Code::kCorrupt);
  }
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

TEST_CASE("the largest names, token, offers and parameters fit a frame; larger ones are refused before") {
  Handshake::Config a =
      config(std::string(limits::kNameBytes, 'n'), 1, std::string(limits::kTokenBytes, 't'));
  a.offers.assign(limits::kOffers,
                  {std::string(limits::kProviderNameBytes, 'p'), ByteVector(limits::kHintBytes)});
  Handshake::Config b =
      config(std::string(limits::kNameBytes, 'm'), 5, std::string(limits::kTokenBytes, 't'));
  const ByteVector parameters(limits::kProviderParameterBytes);
  Sides s = sides(a, b, {b.self.name, b.self.instance});
  prove(s);
  s.a.set_up(0, parameters);
  s.b.accept(0, std::string(5000, 'r'), parameters);
  give(s.b, take_output(s.a));
  give(s.a, take_output(s.b));
  CHECK(s.a.state() == State::kDone);
  CHECK(s.a.outcome().parameters == parameters);
  CHECK(s.a.outcome().reason.size() == limits::kChoiceReasonBytes);
  CHECK(s.b.outcome().parameters == parameters);
  CHECK(s.b.outcome().offers.size() == limits::kOffers);
  a.offers.back().hint.emplace_back();
  CHECK(Handshake::validate(a).code() == Code::kInvalidArgument);
  a.offers.pop_back();
  CHECK(Handshake::validate(a).ok());
  a.offers.back().provider += 'p';
  CHECK(Handshake::validate(a).code() == Code::kInvalidArgument);
  a.offers.assign(limits::kOffers + 1, {"tcp", {}});
  CHECK(Handshake::validate(a).code() == Code::kInvalidArgument);
  a.offers.resize(1);
  b.self.name += 'm';
  CHECK(Handshake::validate(b).code() == Code::kInvalidArgument);
  a.token += 't';
  CHECK(Handshake::validate(a).code() == Code::kInvalidArgument);
  CHECK(Handshake::validate(config("a", 1), ByteVector(limits::kProviderParameterBytes + 1)).code() ==
        Code::kInvalidArgument);
}

TEST_CASE("a refusal's text is cut to its limit") {
  Sides s = sides(config("a", 1), config("b", 5));
  prove(s);
  s.a.set_up(0, {});
  s.b.refuse(Status(Code::kUnavailable, std::string(5000, 'x')));
  give(s.a, take_output(s.b));
  CHECK(s.a.error().code() == Code::kUnavailable);
  CHECK(s.a.error().text().size() == limits::kErrorTextBytes + std::strlen("it refused: "));
}

}  // namespace
}  // namespace slime::transport::testing
