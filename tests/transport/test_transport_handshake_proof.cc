// What a handshake's proofs keep out.
#include <doctest/doctest.h>

#include <string>

#include "tests/transport/handshake_sides.h"

namespace slime::transport::testing {
namespace {

// Checks what the acceptor says to a peer without the token, and what the initiator makes of it.
void expect_nothing_learnt(Handshake::Config a, const std::string& acceptor_token) {
  Sides s = sides(std::move(a), config("secret-name", 0x77, acceptor_token));
  ByteVector heard;
  for (int round = 0; round < 5; ++round) {
    give(s.b, take_output(s.a));
    const ByteVector out = take_output(s.b);
    heard.insert(heard.end(), out.begin(), out.end());
    give(s.a, out);
    if (s.a.state() == State::kDeciding) s.a.set_up(0, {});
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
  CHECK(none.a.error().text().find("it requires a token, and none is set here") == 0);
  CHECK(none.a.error().text().find("ctrl_token of role join") != std::string::npos);
  Sides extra = sides(config("a", 1, "right"), config("b", 5));
  run(extra.a, extra.b);
  CHECK(extra.a.error().text() == "a token is set here, and it has none");
}

Handshake::Config with_keys(std::string name, unsigned char fill, const std::vector<std::string>& keys) {
  Handshake::Config out = config(std::move(name), fill);
  for (const std::string& key : keys) out.keys.emplace_back(as_bytes(key));
  return out;
}

TEST_CASE("an acceptor takes any of its keys, and both go on under the one that was proved") {
  for (const char* key : {"previous", "current", "next"}) {
    CAPTURE(key);
    Sides s = sides(with_keys("a", 1, {key, "unused"}), with_keys("b", 5, {"current", "next", "previous"}));
    run(s.a, s.b);
    CHECK(s.a.state() == State::kDone);
    CHECK(s.b.state() == State::kDone);
  }
  // Also with a side that has the same as its one token.
  Sides mixed = sides(config("a", 1, "next"), with_keys("b", 5, {"current", "next"}));
  run(mixed.a, mixed.b);
  CHECK(mixed.a.state() == State::kDone);
}

TEST_CASE("who has none of the keys learns nothing, and only the first key of who connects counts") {
  const auto refused = [](Handshake::Config a) {
    Sides s = sides(std::move(a), with_keys("b", 5, {"current", "next"}));
    run(s.a, s.b);
    return s.a.error().code() == Code::kUnauthenticated && s.b.error().code() == Code::kUnauthenticated &&
           !s.b.authenticated();
  };
  CHECK(refused(with_keys("a", 1, {"old"})));
  CHECK(refused(with_keys("a", 1, {"old", "current"})));
  CHECK(refused(config("a", 1, "old")));
  Sides none = sides(config("a", 1), with_keys("b", 5, {"current"}));
  run(none.a, none.b);
  CHECK(none.a.error().code() == Code::kUnauthenticated);
}

TEST_CASE("a peer that denies having a token is not believed") {
  // It says that there is none and proves itself with the empty key, as it would without a token.
  Handshake a = Handshake::initiator(config("a", 1), {});
  Handshake b = Handshake::acceptor(config("b", 5, "right"));
  give(b, take_output(a));
  ByteVector challenge = take_output(b);
  challenge[8 + 48] = std::byte{0};  // so that the initiator goes on
  give(a, challenge);
  REQUIRE(a.state() == State::kDeciding);
  give(b, take_output(a));
  CHECK(b.state() == State::kFailed);
  CHECK(b.error().code() == Code::kUnauthenticated);
}

TEST_CASE("an acceptor without the token is found out") {
  Handshake a = Handshake::initiator(config("a", 1, "right"), {});
  Handshake impostor = Handshake::acceptor(config("b", 5, "wrong"));
  give(impostor, take_output(a));
  give(a, take_output(impostor));
  REQUIRE(a.state() == State::kDeciding);
  a.set_up(0, {});
  take_output(a);
  // It takes us in all the same, with the only proof it can make.
  Handshake peer_of_impostor = Handshake::initiator(config("x", 9, "wrong"), {});
  Handshake other = Handshake::acceptor(config("b", 5, "wrong"));
  run(peer_of_impostor, other);
  Handshake again = Handshake::acceptor(config("b", 5, "wrong"));
  Handshake driver = Handshake::initiator(config("x", 9, "wrong"), {});
  give(again, take_output(driver));
  give(driver, take_output(again));
  give(again, take_output(driver));
  again.accept(0, "", {});
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

TEST_CASE("what an initiator made for one handshake is not taken in another, nor instead of AUTH") {
  Sides first = sides(config("a", 1, "k"), config("b", 5, "k"));
  prove(first);
  first.a.set_up(0, as_bytes("parameters"));
  const ByteVector setup = take_output(first.a);

  Handshake::Config fresh = config("b", 5, "k");
  fresh.nonce.fill(std::byte{0x99});
  Sides later = sides(config("a", 1, "k"), std::move(fresh));
  prove(later);
  later.b.accept(0, "", {});
  give(later.b, setup);
  CHECK(later.b.state() == State::kFailed);
  CHECK(later.b.error().code() == Code::kUnauthenticated);

  Sides skipped = sides(config("a", 1, "k"), config("b", 5, "k"));
  give(skipped.b, take_output(skipped.a));
  give(skipped.b, setup);
  CHECK(skipped.b.state() == State::kFailed);
  CHECK(skipped.b.error().code() == Code::kCorrupt);
  CHECK_FALSE(skipped.b.authenticated());
}

TEST_CASE("what we send does not pass when it is sent back to us") {
  // The mirror has no token: it returns HELLO as its CHALLENGE, and AUTH or SETUP as its ACCEPT.
  for (const bool return_setup : {false, true}) {
    Handshake a = Handshake::initiator(config("a", 1, "k"), {});
    ByteVector challenge = take_output(a);
    challenge[4] = static_cast<std::byte>(HandshakeFrame::kChallenge);
    give(a, challenge);
    REQUIRE(a.state() == State::kDeciding);
    const ByteVector auth = take_output(a);
    a.set_up(0, as_bytes("parameters"));
    const ByteVector setup = take_output(a);
    ByteVector accept = return_setup ? setup : auth;
    accept[4] = static_cast<std::byte>(HandshakeFrame::kAccept);
    give(a, accept);
    CHECK(a.state() == State::kFailed);
    CHECK(a.error().code() == Code::kUnauthenticated);
  }
}

TEST_CASE("every flipped bit of a proved frame is noticed") {
  Sides s = sides(config("a", 1, "k"), config("b", 5, "k"));
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
  s.a.set_up(0, as_bytes("parameters"));
  const ByteVector setup = take_output(s.a);
  for (std::size_t i = 8; i < setup.size(); ++i) {
    Handshake b = Handshake::acceptor(config("b", 5, "k"));
    give(b, hello);
    give(b, auth);
    REQUIRE(b.state() == State::kDeciding);
    b.accept(0, "", as_bytes("x"));
    ByteVector changed = setup;
    changed[i] ^= std::byte{1};
    give(b, changed);
    CHECK(b.state() == State::kFailed);
    CHECK(b.error().code() == Code::kUnauthenticated);
  }
  give(s.b, auth);
  s.b.accept(0, "", as_bytes("x"));
  const ByteVector accept = take_output(s.b);
  for (std::size_t i = 8; i < accept.size(); ++i) {
    Handshake a = Handshake::initiator(config("a", 1, "k"), {});
    Handshake b = Handshake::acceptor(config("b", 5, "k"));
    give(b, take_output(a));
    give(a, take_output(b));
    a.set_up(0, as_bytes("parameters"));
    ByteVector changed = accept;
    changed[i] ^= std::byte{1};
    give(a, changed);
    CHECK(a.error().code() == Code::kUnauthenticated);
  }
}

TEST_CASE("a shortened AUTH has no proof") {
  Handshake b = Handshake::acceptor(config("b", 5));
  Handshake a = Handshake::initiator(config("a", 1), {});
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
  Handshake a = Handshake::initiator(config("a", 1, "k"), {});
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

}  // namespace
}  // namespace slime::transport::testing
