// Repeats one kind of operation SLIME_INSTRUCTIONS_COUNT times, for count.py, which runs this
// program under callgrind. Both ends are in this thread, on the fake fabric or over shared memory.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "base/check.h"
#include "tests/rpc/channel_fixture.h"
#include "tests/transport/socket_fixture.h"
#include "tests/transport/verbs/fake_fixture.h"

namespace slime::rpc::testing {
namespace {

using transport::testing::FakeVerbsFixture;

std::uint64_t wanted() {
  static const std::uint64_t all = [] {
    const char* const count = std::getenv("SLIME_INSTRUCTIONS_COUNT");
    return count != nullptr ? std::strtoull(count, nullptr, 10) : 1;
  }();
  return all;
}

template <class Done>
void drive(Fixture& fixture, Done done) {
  while (!done()) {
    fixture.loop(0).poll(Nanos::zero());
    fixture.loop(1).poll(Nanos::zero());
  }
}

struct Caller {
  Channel& channel;
  const ByteVector data = pattern(64);
  std::uint64_t left = 0;
  std::uint64_t right = 0;

  std::uint64_t begun = 0;

  // A call that begins another one when it ends, so that as many as were begun are under way.
  void next() {
    ++begun;
    channel.call({"bench", "echo", kNever}, encode_arguments(data), [this](Result<Payload> reply) {
      if (reply) {
        const auto value = decode_value<ByteVector>(reply->bytes());
        right += value && as_text(*value) == as_text(data) ? 1 : 0;
      }
      --left;
      if (begun < wanted()) next();
    });
  }
};

void echo(Fixture& fixture, std::uint64_t under_way) {
  Link link(fixture);
  Service service("bench");
  REQUIRE(service.add("echo", [](const ByteVector& bytes) { return bytes; }, {Run::kInline}).ok());
  REQUIRE(link.servers[1]->add(service).ok());
  Caller caller{link.a()};
  caller.left = wanted();
  while (caller.begun < std::min(under_way, wanted())) caller.next();
  drive(fixture, [&] { return caller.left == 0; });
  CHECK(caller.right == wanted());
}

TEST_CASE("echo") {
  FakeVerbsFixture fixture;
  echo(fixture, 1);
}

TEST_CASE("echo_shm") {
  const auto fixture = transport::testing::SocketFixture::of("shm");
  echo(*fixture, 1);
}

TEST_CASE("echoes_shm") {
  const auto fixture = transport::testing::SocketFixture::of("shm");
  echo(*fixture, 64);
}

struct Reader final : transport::Operation {
  explicit Reader(transport::Endpoint& e) : endpoint(e) {}
  void next() { SLIME_CHECK(endpoint.read({&copy, 1}, *this).ok()); }
  void complete(Status status) noexcept override {
    right += status.ok() ? 1 : 0;
    if (--left > 0) next();
  }
  transport::Endpoint& endpoint;
  transport::CopyBlock copy;
  std::uint64_t left = 0;
  std::uint64_t right = 0;
};

TEST_CASE("read") {
  FakeVerbsFixture fixture;
  Link link(fixture);
  auto local = fixture.device(0).allocate(4096, transport::Rights::kLocal);
  auto remote = fixture.device(1).allocate(4096, transport::Rights::kRemoteRead);
  REQUIRE((local && remote));
  const auto imported = link.a().endpoint().import_region(remote->describe());
  REQUIRE(imported.has_value());
  Reader reader(link.a().endpoint());
  reader.copy = {&*local, 0, &*imported, 0, 64};
  reader.left = wanted();
  reader.next();
  drive(fixture, [&] { return reader.left == 0; });
  CHECK(reader.right == wanted());
}

// Answers each notification with one of its own.
struct Notifier final : transport::Receiver {
  struct Write final : transport::Operation {
    void complete(Status status) noexcept override { SLIME_CHECK(status.ok()); }
  };
  explicit Notifier(std::unique_ptr<transport::Endpoint> e) : endpoint(std::move(e)) {
    endpoint->set_receiver(*this);
  }
  void notify() {
    Write* idle = nullptr;
    for (Write& write : writes) idle = write.posted() ? idle : &write;
    SLIME_CHECK(idle != nullptr && endpoint->write_with_imm({&copy, 1}, 7, *idle).ok());
    --left;
  }
  void on_imm(std::uint32_t imm) noexcept override {
    right += imm == 7 ? 1 : 0;
    if (left > 0) notify();
  }
  void on_message(transport::Message) noexcept override {}
  void on_ready() noexcept override {}
  void on_closed(const Status&) noexcept override {}

  transport::CopyBlock copy;
  std::array<Write, 4> writes;
  std::uint64_t left = wanted();
  std::uint64_t right = 0;
  std::unique_ptr<transport::Endpoint> endpoint;  // completes its writes when it goes
};

TEST_CASE("notify") {
  FakeVerbsFixture fixture;
  fixture.open({});
  auto pair = fixture.connect();
  REQUIRE(pair.has_value());
  auto local = fixture.device(0).allocate(4096, transport::Rights::kRemoteWrite);
  auto remote = fixture.device(1).allocate(4096, transport::Rights::kRemoteWrite);
  REQUIRE((local && remote));
  const auto to_b = pair->a->import_region(remote->describe());
  const auto to_a = pair->b->import_region(local->describe());
  REQUIRE((to_a && to_b));
  Notifier a(std::move(pair->a));
  Notifier b(std::move(pair->b));
  a.copy = {&*local, 0, &*to_b, 0, 64};
  b.copy = {&*remote, 0, &*to_a, 0, 64};
  a.notify();
  drive(fixture, [&] { return a.right == wanted(); });
  CHECK(b.right == wanted());
}

}  // namespace
}  // namespace slime::rpc::testing
