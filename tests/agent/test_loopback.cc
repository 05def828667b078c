// Peers of one process: an agent that is its own peer, by address and by name, and two agents, in
// all progress modes.
#include <atomic>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "rpc/stream.h"
#include "tests/agent/agents.h"

using namespace slime;
using namespace slime::test;

namespace {

constexpr std::size_t kRegionBytes = 64 << 10;
constexpr std::size_t kLarge = 1 << 20;  // by rendezvous

// Two ends of one process, which may be one agent.
struct Ends {
  explicit Ends(Progress progress, bool itself, bool by_address) {
    server = start("server", progress);
    if (!itself) client = start("client", progress);
    PeerAgent& from = itself ? *server : *client;
    rpc::Service service("loop");
    REQUIRE(service.add("add", [](std::int64_t a, std::int64_t b) { return a + b; }).ok());
    REQUIRE(service.add("twice", [](std::int64_t a) { return 2 * a; }, {.run = rpc::Run::kInline}).ok());
    REQUIRE(service.add("echo", [](ByteVector bytes) { return bytes; }).ok());
    REQUIRE(service.add("keep", [](Attachment bytes) { return bytes; }).ok());
    REQUIRE(service
                .add("count",
                     [](rpc::ServerStream<std::int64_t, std::int64_t>& stream) -> Result<std::int64_t> {
                       std::int64_t sum = 0;
                       for (;;) {
                         auto next = stream.read().wait();
                         if (!next) return std::move(next).error();
                         if (!*next) return sum;
                         sum += **next;
                         SLIME_TRY(stream.write(sum).wait().status());
                       }
                     })
                .ok());
    // Waits for a call of its own, to where it runs.
    REQUIRE(
        service
            .add("nested",
                 [this](std::int64_t depth) -> Result<std::int64_t> {
                   if (depth == 0) return std::int64_t{0};
                   auto inner =
                       server->peer(server->address()).call<std::int64_t>("loop", "nested", depth - 1).wait();
                   if (!inner) return std::move(inner).error();
                   return *inner + 1;
                 })
            .ok());
    REQUIRE(server->serve(service).ok());
    if (!itself && progress == Progress::kCaller) {
      // A waiting thread drives the loop of its own agent only.
      driver = std::thread([this] {
        while (!stop.load()) {
          server->poll(milliseconds(1));
          client->poll(milliseconds(1));
        }
      });
    }
    peer = from.peer(by_address ? server->address() : "server");
    // Without a registry the name of another is known once it has been reached.
    if (!by_address && !itself) REQUIRE(from.peer(server->address()).connect(kSoon).wait().has_value());
    agent = &from;
  }
  ~Ends() {
    if (client) CHECK(client->close(kSoon).ok());
    stop = true;
    if (driver.joinable()) driver.join();
    CHECK(server->close(kSoon).ok());
  }

  std::unique_ptr<PeerAgent> server;
  std::unique_ptr<PeerAgent> client;  // null: the server is its own peer
  PeerAgent* agent = nullptr;         // the caller
  Peer peer;
  std::atomic<bool> stop{false};
  std::thread driver;
};

void check_calls(Ends& ends) {
  CHECK(take(ends.peer.call<std::int64_t>("loop", "add", 2, 3).wait()) == 5);
  CHECK(take(ends.peer.call<std::int64_t>("loop", "twice", 4).wait()) == 8);
  const ByteVector large(kLarge, std::byte{7});
  CHECK(take(ends.peer.call<ByteVector>("loop", "echo", large).wait()) == large);
  // Each of these waits in a handler for the next one, as deep as there are handler threads.
  CHECK(take(ends.peer.call<std::int64_t>("loop", "nested", 3).wait()) == 3);
}

void check_attachments(Ends& ends) {
  const ByteVector bytes(kLarge, std::byte{9});
  const Attachment back =
      take(ends.peer.call<Attachment>("loop", "keep", Attachment(ByteVector(bytes))).wait());
  CHECK(ByteVector(back.bytes().begin(), back.bytes().end()) == bytes);
}

void check_streams(Ends& ends) {
  auto stream = ends.peer.stream<std::int64_t, std::int64_t, std::int64_t>("loop", "count");
  std::int64_t sum = 0;
  for (std::int64_t i = 1; i <= 100; ++i) {
    REQUIRE(stream.write(i).wait().has_value());
    sum += i;
    const auto told = take(stream.read().wait());
    REQUIRE(told.has_value());
    CHECK(*told == sum);
  }
  stream.close_writing();
  CHECK_FALSE(take(stream.read().wait()).has_value());
  CHECK(take(stream.finish().wait()) == sum);
}

void check_one_sided(Ends& ends) {
  auto theirs = take(ends.server->allocate(kRegionBytes, Rights::kReadWrite));
  REQUIRE(ends.server->publish("memory", theirs).ok());
  auto ours = take(ends.agent->allocate(kRegionBytes, Rights::kLocal));
  const RemoteRegion remote = take(ends.peer.region("memory"));
  std::memset(ours.data(), 5, kRegionBytes);
  const Copy copy{.local = ours, .remote = remote, .length_bytes = kRegionBytes};
  REQUIRE(ends.peer.write(std::span(&copy, 1)).wait().has_value());
  CHECK(std::to_integer<int>(theirs.bytes().back()) == 5);
  std::memset(theirs.data(), 6, kRegionBytes);
  REQUIRE(ends.peer.read(std::span(&copy, 1)).wait().has_value());
  CHECK(std::to_integer<int>(ours.bytes().back()) == 6);
  CHECK(take(ends.peer.fetch_add(remote, 0, 1).wait()) == 0x0606060606060606);
}

void check_message(Peer to, Peer from, std::size_t size, bool waited_for) {
  const ByteVector bytes(size, std::byte{3});
  Future<Payload> received;
  if (waited_for) received = from.recv(3, kSoon);
  take(to.send(3, bytes, kSoon).wait());
  if (!waited_for) received = from.recv(3, kSoon);
  const Payload message = take(received.wait());
  CHECK(ByteVector(message.bytes().begin(), message.bytes().end()) == bytes);
}

void check_messages(Ends& ends) {
  const Peer sender = ends.server->peer(ends.agent->name());
  for (const std::size_t size : {std::size_t{5}, kLarge}) {
    for (const bool waited_for : {true, false}) {
      check_message(ends.peer, sender, size, waited_for);
      check_message(sender, ends.peer, size, waited_for);
    }
  }
}

// Which provider, and why: the pinned one as such, else the first that works between processes of
// one user.
void check_info(Ends& ends) {
  const auto info = nlohmann::json::parse(to_json(ends.peer.info()));
  CHECK(info["state"] == "ready");
  CHECK(info["peer"] == "server");
  CHECK(info["instance"] == ends.server->instance().to_string());
  const auto chosen = info["provider"].get<std::string>();
  const auto reason = info["reason"].get<std::string>();
  CAPTURE(chosen);
  if (provider() != "auto") {
    CHECK(chosen == provider());
    CHECK(reason == "the only one that '" + ends.agent->name() + "' offers");
  } else if (chosen == "shm") {
    CHECK(reason == "same host and user");
  } else {
    CHECK(reason.find("shm") != std::string::npos);  // says why not that one
  }
}

void check_all(Progress progress, bool itself, bool by_address) {
  Ends ends(progress, itself, by_address);
  check_calls(ends);
  check_attachments(ends);
  check_streams(ends);
  check_one_sided(ends);
  check_messages(ends);
  check_info(ends);
}

}  // namespace

TEST_CASE("an agent is its own peer, by its address") {
  for (const Progress progress : {Progress::kThread, Progress::kCaller}) check_all(progress, true, true);
}

TEST_CASE("an agent is its own peer, by its name") {
  for (const Progress progress : {Progress::kThread, Progress::kCaller}) check_all(progress, true, false);
}

TEST_CASE("an agent that is reached by its name and its address at once has one connection to itself") {
  for (const Progress progress : {Progress::kThread, Progress::kCaller}) {
    const auto agent = start("server", progress);
    Peer by_name = agent->peer("server");
    Peer by_address = agent->peer(agent->address());
    auto received = by_name.recv(1, kSoon);
    auto first = by_name.connect(kSoon);
    auto second = by_address.connect(kSoon);
    take(first.wait());
    take(second.wait());
    CHECK(number_in(to_json(by_name.info()), "connection") ==
          number_in(to_json(by_address.info()), "connection"));
    const ByteVector bytes(5, std::byte{1});
    take(by_address.send(1, bytes, kSoon).wait());
    const Payload message = take(received.wait());
    CHECK(ByteVector(message.bytes().begin(), message.bytes().end()) == bytes);
    CHECK(agent->close(kSoon).ok());
  }
}

TEST_CASE("what an agent waits to receive from itself ends with the connection, or is cancelled") {
  for (const Progress progress : {Progress::kThread, Progress::kCaller}) {
    const auto agent = start("server", progress);
    Peer self = agent->peer("server");
    take(self.connect(kSoon).wait());
    auto cancelled = self.recv(1, kSoon);
    cancelled.cancel();
    CHECK(code_of(cancelled.wait()) == Code::kCancelled);
    auto late = self.recv(1, milliseconds(1));
    CHECK(code_of(late.wait()) == Code::kDeadlineExceeded);
    auto cut = self.recv(1, kSoon);
    REQUIRE(self.disconnect().ok());
    CHECK(code_of(cut.wait()) == Code::kUnavailable);
    // The next connection is as good.
    auto received = self.recv(1, kSoon);
    take(self.send(1, {}, kSoon).wait());
    CHECK(take(received.wait()).bytes().empty());
    CHECK(agent->close(kSoon).ok());
  }
}

TEST_CASE("two agents of one process are peers") {
  for (const Progress progress : {Progress::kThread, Progress::kCaller}) {
    for (const bool by_address : {true, false}) check_all(progress, false, by_address);
  }
}
