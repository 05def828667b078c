#include <algorithm>
#include <cstring>

#include "agent/stub.h"
#include "tests/agent/agents.h"

namespace slime::attachments_test {
namespace {

using namespace test;

struct Pair {
  Pair() : a(start("a")), b(start("b")), peer(a->peer(b->address())) {
    rpc::Service service("echo");
    REQUIRE(service.add("same", [](Attachment attachment) { return attachment; }).ok());
    REQUIRE(b->serve(service).ok());
  }
  std::unique_ptr<PeerAgent> a;
  std::unique_ptr<PeerAgent> b;
  Peer peer;
};

TEST_CASE("a region goes to the peer as it is, and comes back into another one, with no copy in between") {
  Pair pair;
  auto from = take(pair.a->allocate(4 << 20, Rights::kRemoteRead));
  auto to = take(pair.a->allocate(5 << 20, Rights::kLocal));
  for (std::size_t i = 0; i < from.length_bytes(); ++i) from.data()[i] = static_cast<std::byte>(i * 7);
  CallOptions options;
  options.into.push_back(take(into(to, 1000)));
  const auto back = take(
      pair.peer.call<Attachment>(std::move(options), "echo", "same", take(attach(from, 4096))).wait(kSoon));
  CHECK(back.size() == from.length_bytes() - 4096);
  CHECK(back.bytes().data() == to.data() + 1000);
  CHECK(std::memcmp(to.data() + 1000, from.data() + 4096, back.size()) == 0);
  CHECK(number_in(to_json(pair.peer.info()), "copied_bytes") == 0);
  CHECK(number_in(to_json(pair.peer.info()), "pulled_bytes") == static_cast<std::int64_t>(back.size()));
}

TEST_CASE("plain bytes and regions that cannot be used") {
  Pair pair;
  const ByteVector bytes(300'000, std::byte{3});
  const auto back = take(pair.peer.call<Attachment>("echo", "same", Attachment(bytes)).wait(kSoon));
  CHECK(std::equal(bytes.begin(), bytes.end(), back.bytes().begin(), back.bytes().end()));
  auto region = take(pair.a->allocate(100'000, Rights::kRemoteRead));
  CHECK(code_of(attach(region, 100'001)) == Code::kInvalidArgument);
  CHECK(code_of(attach(region, 1, 100'000)) == Code::kInvalidArgument);
  CHECK(code_of(attach(MemoryRegion())) == Code::kInvalidArgument);
  const Attachment attachment = take(attach(region));
  auto theirs = take(pair.b->allocate(100'000, Rights::kRemoteRead));
  CHECK(code_of(pair.peer.call<Attachment>("echo", "same", take(attach(theirs))).wait(kSoon)) ==
        Code::kInvalidArgument);
  REQUIRE(region.close().ok());
  const auto closed = pair.peer.call<Attachment>("echo", "same", attachment).wait(kSoon);
  CHECK(code_of(closed) == Code::kInvalidArgument);
  CHECK(!closed.status().maybe_executed());
}

TEST_CASE("what was received stays as it is while more comes, and goes back in parts") {
  Pair pair;
  std::vector<Attachment> kept;
  for (int i = 0; i < 12; ++i) {
    const ByteVector bytes(1 << 20, static_cast<std::byte>(i));
    kept.push_back(take(pair.peer.call<Attachment>("echo", "same", Attachment(bytes)).wait(kSoon)));
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const Bytes bytes = kept[i].bytes();
    CHECK(
        std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == static_cast<std::byte>(i); }));
  }
  const Attachment& last = kept.back();
  CHECK(code_of(last.part(1 << 20, 1)) == Code::kInvalidArgument);
  CHECK(code_of(last.part(1, 1 << 20)) == Code::kInvalidArgument);
  const Attachment half = take(last.part(1 << 19, 1 << 19));
  CHECK(half.bytes().data() == last.bytes().data() + (1 << 19));
  const auto back = take(pair.peer.call<Attachment>("echo", "same", half).wait(kSoon));
  CHECK(std::equal(half.bytes().begin(), half.bytes().end(), back.bytes().begin(), back.bytes().end()));
}

TEST_CASE("what one peer sent is passed on to another, and outlives the connection that it came over") {
  Pair pair;
  auto c = start("c");
  std::vector<Attachment> kept;
  for (int i = 0; i < 4; ++i) {
    const ByteVector bytes(1 << 20, static_cast<std::byte>(i + 1));
    auto received = take(pair.peer.call<Attachment>("echo", "same", Attachment(bytes)).wait(kSoon));
    kept.push_back(
        take(pair.a->peer(pair.b->address()).call<Attachment>("echo", "same", received).wait(kSoon)));
  }
  // Over a connection of its own, whose peer was never told of that memory.
  rpc::Service service("echo");
  REQUIRE(service.add("same", [](Attachment attachment) { return attachment; }).ok());
  REQUIRE(c->serve(service).ok());
  const auto passed = take(pair.a->peer(c->address()).call<Attachment>("echo", "same", kept[2]).wait(kSoon));
  REQUIRE(pair.peer.disconnect().ok());
  REQUIRE(pair.a->close().ok());
  CHECK(passed.bytes().back() == std::byte{3});
  for (std::size_t i = 0; i < kept.size(); ++i)
    CHECK(kept[i].bytes().back() == static_cast<std::byte>(i + 1));
}

TEST_CASE("pages that are given back read as zeros, and the next attachment is whole again") {
  Pair pair;
  const ByteVector bytes(1 << 20, std::byte{9});
  for (int i = 0; i < 4; ++i) {
    const auto back = take(pair.peer.call<Attachment>("echo", "same", Attachment(bytes)).wait(kSoon));
    CHECK(std::equal(bytes.begin(), bytes.end(), back.bytes().begin(), back.bytes().end()));
    back.discard();
    // The first comes into memory that is registered for it, the others into blocks: where the
    // device pins those, they stay what they are.
    const std::byte left = i > 0 && provider() == "verbs" ? std::byte{9} : std::byte{};
    CHECK(back.bytes().front() == left);
    CHECK(back.bytes().back() == left);
  }
}

// What a stub asks of it; a struct with an attachment inside, and a stream that ends with one.
struct Picture {
  std::string name;
  std::vector<Attachment> layers;
  MSGPACK_DEFINE(name, layers)
};

TEST_CASE("a stub's calls and streams carry attachments, also those that are inside of other values") {
  Pair pair;
  rpc::Service service("pictures");
  REQUIRE(service.add("same", [](Picture picture) { return picture; }).ok());
  REQUIRE(service
              .add("layers",
                   [](rpc::ServerStream<None, std::size_t, Attachment> stream, Picture picture) {
                     for (const Attachment& layer : picture.layers)
                       stream.write(layer.size()).wait().status().ignore();
                     stream.finish(picture.layers.back());
                   })
              .ok());
  REQUIRE(pair.b->serve(service).ok());
  Stub stub("pictures", pair.peer);
  const ByteVector bytes(300'000, std::byte{3});
  const Picture picture{"one", {Attachment(ByteVector(10, std::byte{1})), Attachment(bytes)}};
  const auto back = take(stub.call<Picture>("same", picture).wait(kSoon));
  REQUIRE(back.layers.size() == 2);
  CHECK(std::ranges::equal(back.layers[1].bytes(), bytes));
  CHECK(take(stub.raw().call_attached("same", rpc::encode_attached_arguments(picture)).wait(kSoon))
            .attachments()
            .size() == 2);

  auto stream = stub.stream<None, std::size_t, Attachment>("layers", picture);
  CHECK(take(stream.read().wait(kSoon)) == 10);
  CHECK(take(stream.read().wait(kSoon)) == bytes.size());
  CHECK_FALSE(take(stream.read().wait(kSoon)).has_value());
  CHECK(std::ranges::equal(take(stream.finish().wait(kSoon)).bytes(), bytes));
}

}  // namespace
}  // namespace slime::attachments_test
