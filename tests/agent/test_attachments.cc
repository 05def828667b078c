#include <algorithm>
#include <cstring>

#include "tests/agent/agents.h"

namespace slime {
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
  CHECK(number_in(pair.peer.info(), "copied_bytes") == 0);
  CHECK(number_in(pair.peer.info(), "pulled_bytes") == static_cast<std::int64_t>(back.size()));
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

}  // namespace
}  // namespace slime
