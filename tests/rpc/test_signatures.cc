#include <fstream>
#include <sstream>

#include "rpc/signature.h"
#include "rpc/stream.h"
#include "tests/rpc/forger.h"
#include "tests/support/files.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

// The lines of the golden file that begin with this word, without it: a word, and the rest.
std::vector<std::pair<std::string, std::string>> golden(std::string_view kind) {
  std::ifstream file(test::source_file("tests/rpc/golden/signatures.txt"));
  REQUIRE(file.good());
  std::vector<std::pair<std::string, std::string>> out;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    std::string word;
    std::string rest;
    words >> first >> word >> std::ws;
    std::getline(words, rest);
    if (first == kind) out.emplace_back(word, rest);
  }
  REQUIRE(!out.empty());
  return out;
}

const Signature kAdd("(int, int) -> int");

// Calls "test" of side 1 as what the caller takes it for.
Result<Payload> call_as(Link& link, std::string_view method, const Signature& signature, ByteVector body) {
  Reply reply;
  link.a().call({"test", method, link.in(20s), {}, signature.hash()}, std::move(body), reply.handler());
  REQUIRE(link.until([&] { return reply.done(); }));
  return std::move(*reply.value);
}

void check_refused(const Status& status) {
  CHECK(status.code() == Code::kUnimplemented);
  CHECK_FALSE(status.maybe_executed());
}

}  // namespace

TEST_CASE("the hash of a signature is what is written down") {
  for (const auto& line : golden("signature")) {
    const std::string& text = line.second;
    CAPTURE(text);
    CHECK(Signature(text).hash() == std::stoull(line.first, nullptr, 16));
    CHECK(Signature(text).text() == text);
  }
  CHECK(Signature().hash() == 0);
  CHECK(Signature("").hash() == 0);
}

TEST_CASE("a frame with a signature has the bytes that are written down") {
  for (const auto& line : golden("frame")) {
    CAPTURE(line.second);
    ByteVector bytes(line.first.size() / 2);
    REQUIRE(from_hex(line.first, bytes));
    const auto frame = wire::decode_frame(bytes);
    REQUIRE_MESSAGE(frame.has_value(), frame.status().to_string());
    CHECK(wire::signature_of(*frame) == kAdd.hash());
    CHECK(to_hex(frame->body) == "920203");
    CHECK(frame->service == "calc");
    CHECK(frame->method == "add");
    // Cut or longer it is none.
    for (std::size_t size = 0; size < bytes.size(); ++size)
      CHECK_FALSE(wire::decode_frame(Bytes(bytes).first(size)).has_value());
    // A signature of nothing is not said.
    std::fill(bytes.end() - 11, bytes.end() - 3, std::byte{0});
    CHECK(wire::decode_frame(bytes).status().code() == Code::kCorrupt);
  }
}

TEST_CASE("a signature has types and marks, and no names or docs") {
  MethodInfo info{.name = "find", .result = "list[int]", .doc = "Finds."};
  info.parameters = {{.name = "a", .type = "str"},
                     {.name = "b", .type = "int", .optional = true},
                     {.type = "float", .rest = true}};
  CHECK(Signature(info).text() == "(str, int?, float*) -> list[int]");
  info.reads = "bytes";
  info.writes = "int";
  CHECK(Signature(info).text() == "(str, int?, float*) -> list[int] reads bytes writes int");
  CHECK(Method<Result<bool>(std::string, double)>("s", "m").signature().text() == "(str, float) -> bool");
  CHECK(Method<void(ServerStream<int, std::string>, int)>("s", "m").signature().text() ==
        "(int) -> none reads int writes str");
}

TEST_CASE("a signature is shown until the peer has told a number to who showed it") {
  SimFixture sim(kSeed);
  Forger peer(sim);
  peer.hello();
  REQUIRE(sim.until([&] { return peer.owner.ready == 1; }));
  std::size_t n = 0;
  // What the text of the next call has, which is answered with a number or without.
  const auto call = [&](const Signature& signature, std::uint32_t number) {
    Reply reply;
    peer.channel->call({"calc", "add", sim.now() + 60s, {}, signature.hash()}, encode_arguments(2, 3),
                       reply.handler());
    const FrameHeader request = peer.wait(++n);
    FrameHeader answer = Forger::header(FrameType::kReply, request.id);
    answer.method = number;
    answer.code = static_cast<std::uint8_t>(number == 0 ? Code::kUnimplemented : Code::kOk);
    peer.send(answer, {}, number == 0 ? ByteVector() : encode_value(5));
    REQUIRE(sim.until([&] { return reply.done(); }));
    return request.text_bytes;
  };
  CHECK(call(kAdd, 0) == 11 + 8);
  CHECK(call(kAdd, 7) == 11 + 8);
  CHECK(call(kAdd, 0) == 0);
  // The server has not checked a call with another signature yet.
  CHECK(call(Signature("(int) -> int"), 7) == 11 + 8);
  CHECK(call(Signature("(int) -> int"), 0) == 0);
  CHECK(call(Signature(), 7) == 11);
  CHECK(call(Signature(), 0) == 0);
}

TEST_CASE("a method that has changed is refused before it runs, also for who has called it before") {
  SimFixture sim(kSeed);
  Link link(sim);
  const Signature old("(int, int, int) -> int");
  for (int i = 0; i < 3; ++i) {
    const auto refused = call_as(link, "add", old, encode_arguments(2, 3));
    check_refused(refused.status());
    for (const std::string_view part : {"test.add is (int, int) -> int here", "takes it for another one"})
      CHECK_MESSAGE(refused.status().text().find(part) != std::string::npos, refused.status().text());
    // Others are not in the way of each other.
    CHECK(value_of<int>(link.call("add", 2, 3)) == 5);
    CHECK(value_of<int>(call_as(link, "add", kAdd, encode_arguments(2, 3))) == 5);
  }
  CHECK(link.servers[1]->counters().requests == 6);
}

TEST_CASE("what the caller took it for is told with the refusal, and with nothing else") {
  const Status refused(Code::kUnimplemented, "no");
  CHECK(kAdd.explain(refused).text() == "called as (int, int) -> int: no");
  CHECK(Signature("(any) -> int").explain(refused).text() == "no");
  CHECK(kAdd.explain(Status(Code::kNotFound, "no")).text() == "no");
  CHECK(kAdd.explain(Status(Code::kUnimplemented, "no").with_maybe_executed(true)).text() == "no");
}

TEST_CASE("where a type is not known nobody is refused") {
  SimFixture sim(kSeed);
  Link link(sim);
  const ByteVector body = encode_arguments(std::string("x"));
  CHECK(call_as(link, "raw", kAdd, body).has_value());  // (any*) -> any there
  CHECK(call_as(link, "add", Signature("(any) -> int"), encode_arguments(1, 2)).has_value());
}

TEST_CASE("what is not served is not found, whatever it is taken for") {
  SimFixture sim(kSeed);
  Link link(sim);
  CHECK(call_as(link, "nothing", kAdd, {}).status().code() == Code::kNotFound);
}

TEST_CASE("calls of every kind show what they take the method for") {
  SimFixture sim(kSeed);
  Link link(sim);
  const std::uint64_t wrong = Signature("(str) -> str").hash();
  const ByteVector large(200'000);
  SUBCASE("with metadata") {
    const auto context = std::make_shared<CallContext>();
    REQUIRE(context->metadata.set("k", "v").ok());
    Reply reply;
    link.a().call({"test", "add", link.in(20s), context, wrong}, encode_arguments(1, 2), reply.handler());
    REQUIRE(link.until([&] { return reply.done(); }));
    check_refused(reply.status());
  }
  SUBCASE("with a large body, which is given back") {
    Reply reply;
    link.a().call({"test", "add", link.in(20s), {}, wrong}, large, reply.handler());
    REQUIRE(link.until([&] { return reply.done(); }));
    check_refused(reply.status());
    CHECK(link.until([&] { return link.a().counters().lent_buffers == 0; }));
  }
  SUBCASE("with attachments, which are given back") {
    Reply reply;
    link.a().call_attached({"test", "add", link.in(20s), {}, wrong},
                           encode_attached_arguments(Attachment(large)), reply.handler());
    REQUIRE(link.until([&] { return reply.done(); }));
    check_refused(reply.status());
    CHECK(link.until([&] { return link.a().counters().lent_buffers == 0; }));
  }
  SUBCASE("a stream") {
    Reply reply;
    const auto end = std::make_shared<StreamEnd>(nullptr, false);
    link.a().stream({"test", "add", link.in(20s), {}, wrong}, {encode_arguments(1, 2)}, end, reply.handler());
    REQUIRE(link.until([&] { return reply.done(); }));
    check_refused(reply.status());
    CHECK(link.until([&] { return link.a().counters().streams == 0; }));
  }
  SUBCASE("one-way") {
    Done done;
    link.a().call_one_way({"test", "add", link.in(20s), {}, wrong}, {encode_arguments(1, 2)}, done.handler());
    REQUIRE(link.until([&] { return link.owners[0].one_way_failures.size() == 1; }));
    CHECK(done.status.ok());
    check_refused(link.owners[0].one_way_failures[0]);
  }
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
  CHECK(link.servers[1]->counters().requests == 1);
}

TEST_CASE("a peer that looks at no signatures gets none, also of calls that waited for its hello") {
  for (const bool early : {true, false}) {
    CAPTURE(early);
    SimFixture sim(kSeed);
    Reply reply;
    Reply extended;
    Forger peer(sim);
    const auto greet = [&] {
      const std::uint64_t features =
          wire::kOptionalFeatures & ~(wire::kFeatureSignatures | wire::kFeatureMetadata);
      peer.hello({.max_requests = 100, .optional_features = features, .max_payload_bytes = 1 << 20});
    };
    if (!early) {
      greet();
      REQUIRE(sim.until([&] { return peer.owner.ready == 1; }));
    }
    peer.channel->call({"calc", "add", sim.now() + 60s, {}, kAdd.hash()}, encode_arguments(2, 3),
                       reply.handler());
    const auto context = std::make_shared<CallContext>();
    REQUIRE(context->metadata.set("k", "v", Need::kOptional).ok());
    peer.channel->call({"calc", "add", sim.now() + 60s, context, kAdd.hash()}, encode_arguments(2, 3),
                       extended.handler());
    if (early) greet();
    for (const std::size_t n : {1, 2}) {
      const FrameHeader request = peer.wait(n);
      CHECK(request.text_bytes == 11);
      CHECK(request.flags == 0);
    }
    CHECK(peer.channel->counters().queued_frames == 0);
  }
}

TEST_CASE("a peer without metadata still gets the signature of a call that waited for its hello") {
  SimFixture sim(kSeed);
  Reply reply;
  Forger peer(sim);
  const auto context = std::make_shared<CallContext>();
  REQUIRE(context->metadata.set("k", "v", Need::kOptional).ok());
  peer.channel->call({"calc", "add", sim.now() + 60s, context, kAdd.hash()}, encode_arguments(2, 3),
                     reply.handler());
  peer.hello({.max_requests = 100,
              .optional_features = wire::kOptionalFeatures & ~wire::kFeatureMetadata,
              .max_payload_bytes = 1 << 20});
  CHECK(peer.wait(1).text_bytes == 11 + 8);
  const auto frame = wire::decode_frame(peer.received.messages[1]);
  REQUIRE(frame.has_value());
  CHECK(wire::signature_of(*frame) == kAdd.hash());
}

TEST_CASE("a number that a refusal does not tell is not known") {
  SimFixture sim(kSeed);
  Forger peer(sim);
  peer.hello();
  FrameHeader request = Forger::header(FrameType::kRequest, Handle{1, 1}.packed());
  request.value = wire::kNoDeadline;
  ByteVector text = wire::encode_names("s", "one");
  ByteWriter(text).write(Signature("(str) -> str").hash());
  peer.send(request, text, encode_arguments());
  const FrameHeader refused = peer.wait(1);
  CHECK(refused.code == static_cast<std::uint8_t>(Code::kUnimplemented));
  CHECK(refused.method == 0);
  CHECK(refused.flags == 0);
}
