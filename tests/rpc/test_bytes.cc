#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>

#include "tests/rpc/forger.h"

// Methods of bytes: no msgpack in, none out.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace bytes_test {
namespace {

ByteVector reversed(Bytes bytes) { return {bytes.rbegin(), bytes.rend()}; }

// Serves on side 1: "reverse"; "place" notes where what it gets begins; all of them inline, since
// the time is simulated.
struct BytesLink : Link {
  explicit BytesLink(Fixture& f) : Link(f) {
    Service service("bytes");
    const auto add = [&](std::string_view method, auto handler) {
      REQUIRE(service.add_bytes(method, std::move(handler), {Run::kInline}).ok());
    };
    add("reverse", reversed);
    add("place", [this](Bytes bytes) {
      places.insert(reinterpret_cast<std::uintptr_t>(bytes.data()) % Service::kBytesAlignment);
    });
    add("fail", [](Bytes) { return Status(Code::kAborted, "not today"); });
    add("throw", [](Bytes) -> Result<ByteVector> { throw std::runtime_error("what now"); });
    add("who", [](const CallInfo& info, Bytes) {
      const Bytes name = as_bytes(info.peer);
      return ByteVector(name.begin(), name.end());
    });
    REQUIRE(servers[1]->add(service).ok());
  }
  Result<Payload> call_bytes(std::string_view method, ByteVector body, std::string_view service = "bytes",
                             std::shared_ptr<CallContext> context = {}) {
    Reply reply;
    a().call_attached({service, method, in(20s), std::move(context)}, {.body = std::move(body), .raw = true},
                      reply.handler());
    REQUIRE(until([&] { return reply.done(); }));
    return std::move(*reply.value);
  }
  std::set<std::uintptr_t> places;
};

void check_refused(const Result<Payload>& reply, std::string_view hint) {
  CHECK(reply.status().code() == Code::kUnimplemented);
  CHECK_FALSE(reply.status().maybe_executed());
  CHECK_MESSAGE(reply.status().text().find(hint) != std::string::npos, reply.status().text());
}

}  // namespace

TEST_CASE("bytes of any size come as they are, and so does the answer") {
  SimFixture sim(kSeed);
  BytesLink link(sim);
  for (const std::size_t size : {0, 1, 7, 100, 4000, 8100, 8192, 100'000, 3 << 20}) {
    CAPTURE(size);
    const ByteVector body = pattern(size);
    const auto reply = link.call_bytes("reverse", body);
    REQUIRE_MESSAGE(reply.has_value(), reply.status().to_string());
    CHECK(std::equal(body.rbegin(), body.rend(), reply->bytes().begin(), reply->bytes().end()));
  }
  CHECK(link.a().idle());
}

TEST_CASE("what a method of bytes gets, and what its caller gets, begins at a multiple of 8") {
  SimFixture sim(kSeed);
  BytesLink link(sim);
  for (std::size_t size = 1; size < 300; size += 7) {
    // Behind names, metadata of every length, and nothing.
    auto context = std::make_shared<CallContext>();
    REQUIRE(context->metadata.set("key", std::string(size % 16, 'v')).ok());
    REQUIRE(link.call_bytes("place", pattern(size), "bytes", context).has_value());
    REQUIRE(link.call_bytes("place", pattern(size)).has_value());
    const auto reply = link.call_bytes("reverse", pattern(size));
    REQUIRE(reply.has_value());
    CHECK(reinterpret_cast<std::uintptr_t>(reply->bytes().data()) % Service::kBytesAlignment == 0);
  }
  CHECK(link.places == std::set<std::uintptr_t>{0});
}

TEST_CASE("a method of bytes is called with bytes, any other one with arguments, or nothing is executed") {
  SimFixture sim(kSeed);
  BytesLink link(sim);
  for (int i = 0; i < 2; ++i) {  // by name, by number
    check_refused(link.call_raw("bytes", "place", encode_arguments(1)), "bytes.place takes bytes");
    check_refused(link.call_bytes("add", encode_arguments(2, 3), "test"), "test.add takes arguments");
    REQUIRE(link.call_bytes("place", {}).has_value());
    CHECK(value_of<int>(link.call("add", 2, 3)) == 5);
  }
  CHECK(link.places.size() == 1);
  CHECK(link.servers[1]->counters().running == 0);
  Reply streamed;
  link.a().stream({"bytes", "place", link.in(20s)}, {encode_arguments()},
                  std::make_shared<StreamEnd>(nullptr, true), streamed.handler());
  REQUIRE(link.until([&] { return streamed.done(); }));
  check_refused(*streamed.value, "bytes.place takes bytes");
}

TEST_CASE("a method of bytes fails, throws, knows its caller as any other") {
  SimFixture sim(kSeed);
  BytesLink link(sim);
  const auto failed = link.call_bytes("fail", pattern(10));
  CHECK(failed.status().code() == Code::kAborted);
  CHECK(failed.status().maybe_executed());
  CHECK(link.call_bytes("throw", {}).status().text().find("what now") != std::string::npos);
  const auto name = link.call_bytes("who", {});
  REQUIRE(name.has_value());
  CHECK(as_text(name->bytes()) == "a");
  const auto unknown = link.call_bytes("nothing", {});
  CHECK(unknown.status().code() == Code::kNotFound);
}

TEST_CASE("one-way calls of bytes are executed, and their failures counted") {
  SimFixture sim(kSeed);
  BytesLink link(sim);
  for (int i = 0; i < 2; ++i) {
    Done done;
    link.a().call_one_way({"bytes", "place", link.in(20s)}, {.body = pattern(100), .raw = true},
                          done.handler());
    REQUIRE(link.until([&] { return done.done() && link.places.size() == 1; }));
    CHECK(done.status.ok());
    link.places.clear();
  }
  Done refused;
  link.a().call_one_way({"test", "add", link.in(20s)}, {.body = encode_arguments(1, 2), .raw = true},
                        refused.handler());
  REQUIRE(link.until([&] { return !link.owners[0].one_way_failures.empty(); }));
  CHECK(link.owners[0].one_way_failures[0].code() == Code::kUnimplemented);
}

TEST_CASE("a handler of bytes may answer later, if its description says that it is one") {
  SimFixture sim(kSeed);
  BytesLink link(sim);
  Service service("later");
  std::vector<Request> held;
  REQUIRE(service
              .add_raw("bytes", [&](Request request) { held.push_back(std::move(request)); }, Run::kInline,
                       {.parameters = {{.name = "body", .type = "raw"}}, .result = "raw"})
              .ok());
  REQUIRE(link.servers[1]->add(service).ok());
  check_refused(link.call_raw("later", "bytes", encode_arguments()), "takes bytes");
  Reply reply;
  link.a().call_attached({"later", "bytes", link.in(20s)}, {.body = pattern(50), .raw = true},
                         reply.handler());
  REQUIRE(link.until([&] { return held.size() == 1; }));
  CHECK(held[0].info().raw);
  held[0].reply({held[0].body().begin(), held[0].body().end()});
  REQUIRE(link.until([&] { return reply.done(); }));
  REQUIRE(reply.value->has_value());
  CHECK(std::ranges::equal((*reply.value)->bytes(), pattern(50)));
}

TEST_CASE("a peer that knows no methods of bytes is sent none") {
  const std::uint64_t others = wire::kOptionalFeatures & ~wire::kFeatureRaw;
  for (const bool early : {false, true}) {
    CAPTURE(early);
    Reply reply;
    Reply plain;  // ends with the channel
    SimFixture sim(kSeed);
    Forger peer(sim);
    const auto greet = [&] {
      peer.hello({.max_requests = 100, .optional_features = others, .max_payload_bytes = 1 << 20});
    };
    if (!early) {
      greet();
      REQUIRE(sim.until([&] { return peer.owner.ready == 1; }));
    }
    peer.channel->call_attached({"calc", "pack", sim.now() + 60s}, {.body = pattern(10), .raw = true},
                                reply.handler());
    peer.channel->call({"calc", "add", sim.now() + 60s}, encode_arguments(2, 3), plain.handler());
    if (early) greet();
    REQUIRE(sim.until([&] { return reply.done(); }));
    check_refused(*reply.value, "knows no methods of bytes");
    // Behind its hello comes the other call.
    CHECK(peer.wait(1).flags == 0);
  }
}

TEST_CASE("nothing goes beside bytes") {
  SimFixture sim(kSeed);
  BytesLink link(sim);
  Reply reply;
  link.a().call_attached({"bytes", "reverse", link.in(20s)},
                         {.body = {}, .attachments = {Attachment(pattern(10))}, .raw = true},
                         reply.handler());
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(reply.status().code() == Code::kInvalidArgument);
  CHECK_FALSE(reply.status().maybe_executed());
}

TEST_CASE("a flag that bytes cannot have ends the connection") {
  for (const std::uint8_t flag : {wire::kFlagStream, wire::kFlagAttachments}) {
    SimFixture sim(kSeed);
    Forger peer(sim);
    peer.hello();
    FrameHeader header = Forger::header(FrameType::kRequest, kId);
    header.flags = wire::kFlagRaw | flag;
    peer.send(header, wire::encode_names("s", "one"), encode_arguments());
    peer.expect_reset(Code::kCorrupt);
  }
}

TEST_CASE("reflection says which methods take bytes") {
  Service service("codec");
  REQUIRE(service.add_bytes("pack", reversed, {.parameters = {"message"}, .doc = "Packs it."}).ok());
  const MethodInfo& info = service.methods().at("pack")->info;
  CHECK(info.raw());
  CHECK(info.result == "raw");
  CHECK(info.doc == "Packs it.");
  REQUIRE(info.parameters.size() == 1);
  CHECK(info.parameters[0].name == "message");
  CHECK(info.parameters[0].type == "raw");
}

}  // namespace bytes_test
