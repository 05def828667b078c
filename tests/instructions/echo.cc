// Echo calls of 64 bytes over a channel, both ends in this thread, on the fake fabric: what count.py
// has callgrind count. The number of calls is in SLIME_INSTRUCTIONS_CALLS.
#include <cstdlib>

#include "tests/rpc/channel_fixture.h"
#include "tests/transport/verbs/fake_fixture.h"

namespace slime::rpc::testing {
namespace {

struct Caller {
  Channel& channel;
  const ByteVector data = pattern(64);
  std::uint64_t left = 0;
  std::uint64_t right = 0;

  // A call that begins the next one when it ends, as a caller does that waits for each.
  [[gnu::noinline]] void next() {
    channel.call("bench", "echo", encode_arguments(data), kNever, [this](Result<Payload> reply) {
      if (reply) {
        const auto value = decode_value<ByteVector>(reply->bytes());
        right += value && *value == data ? 1 : 0;
      }
      if (--left > 0) next();
    });
  }
};

TEST_CASE("echo") {
  const char* const calls = std::getenv("SLIME_INSTRUCTIONS_CALLS");
  const std::uint64_t count = calls != nullptr ? std::strtoull(calls, nullptr, 10) : 1;
  transport::testing::FakeVerbsFixture fixture;
  Link link(fixture);
  Service service("bench");
  REQUIRE(service.add("echo", [](const ByteVector& bytes) { return bytes; }, {Run::kInline}).ok());
  REQUIRE(link.servers[1]->add(service).ok());
  Caller caller{link.a()};
  caller.left = count;
  caller.next();
  while (caller.left > 0) {
    fixture.loop(0).poll(Nanos::zero());
    fixture.loop(1).poll(Nanos::zero());
  }
  CHECK(caller.right == count);
}

}  // namespace
}  // namespace slime::rpc::testing
