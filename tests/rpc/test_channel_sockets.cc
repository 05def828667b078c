#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "base/str.h"
#include "tests/rpc/channel_fixture.h"
#include "tests/support/settings.h"
#include "tests/transport/socket_fixture.h"

// Over real sockets and the provider that SLIME_TEST_PROVIDER names, with handlers on threads.
using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;
using transport::testing::SocketFixture;

namespace {

const Nanos kSoon = test::patient(20s);

SocketFixture make_sockets() {
  return SocketFixture([] { return transport::make_provider(test::endpoint_provider()); });
}

// `size` bytes of which every block differs.
ByteVector large(std::size_t size) {
  const ByteVector block = pattern(1 << 20);
  ByteVector out(size);
  for (std::size_t at = 0, n = 0; at < size; at += block.size(), ++n) {
    std::memcpy(out.data() + at, block.data(), std::min(block.size(), size - at));
    std::memcpy(out.data() + at, &n, sizeof n);
  }
  return out;
}

bool all_done(const std::vector<std::unique_ptr<Reply>>& replies) {
  return std::all_of(replies.begin(), replies.end(), [](const auto& reply) { return reply->done(); });
}

}  // namespace

TEST_CASE("sockets: handlers on the pool answer many calls of both sides, small and large") {
  SocketFixture sockets = make_sockets();
  Link link(sockets);
  Service service("pool");
  std::atomic<int> runs{0};
  REQUIRE(service
              .add("echo",
                   [&](ByteVector bytes) {
                     ++runs;
                     return bytes;
                   })
              .ok());
  REQUIRE(link.servers[0]->add(service).ok());
  REQUIRE(link.servers[1]->add(service).ok());
  std::vector<std::unique_ptr<Reply>> replies;
  for (std::size_t i = 0; i < 200; ++i) {
    replies.push_back(std::make_unique<Reply>());
    Channel& channel = i % 2 == 0 ? link.a() : link.b();
    channel.call({"pool", "echo", link.in(kSoon)}, encode_arguments(pattern(i * 211, i)),
                 replies.back()->handler());
  }
  REQUIRE(link.until([&] { return all_done(replies); }));
  for (std::size_t i = 0; i < replies.size(); ++i)
    CHECK(value_of<ByteVector>(*replies[i]->value) == pattern(i * 211, i));
  CHECK(runs == 200);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("sockets: a full pool queue answers, inline methods go on") {
  SocketFixture sockets = make_sockets();
  LinkOptions options;
  options.server = {.workers = 1, .queue_limit = 1};
  Link link(sockets, options);
  Service service("pool");
  std::atomic<bool> go{false};
  std::atomic<bool> inside{false};
  REQUIRE(service
              .add("wait",
                   [&] {
                     inside = true;
                     inside.notify_all();
                     go.wait(false);
                   })
              .ok());
  REQUIRE(link.servers[1]->add(service).ok());
  std::vector<std::unique_ptr<Reply>> replies;
  const auto call = [&] {
    replies.push_back(std::make_unique<Reply>());
    link.a().call({"pool", "wait", link.in(kSoon)}, encode_arguments(), replies.back()->handler());
  };
  call();
  REQUIRE(link.until([&] { return inside.load(); }));
  call();
  REQUIRE(link.until([&] { return link.servers[1]->counters().queued == 1; }));
  call();
  REQUIRE(link.until([&] { return replies[2]->done(); }));
  CHECK(replies[2]->status().code() == Code::kResourceExhausted);
  CHECK(!replies[2]->status().maybe_executed());
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);
  go = true;
  go.notify_all();
  REQUIRE(link.until([&] { return all_done(replies); }));
  CHECK(replies[0]->value->has_value());
  CHECK(replies[1]->value->has_value());
}

TEST_CASE(
    "sockets: a request that is cancelled before a thread is free never runs, and a handler that looks "
    "stops") {
  SocketFixture sockets = make_sockets();
  LinkOptions options;
  options.server = {.workers = 1, .queue_limit = 8};
  Link link(sockets, options);
  Service service("pool");
  std::atomic<bool> go{false};
  std::atomic<int> ran{0};
  std::atomic<bool> stopped{false};
  REQUIRE(service
              .add("wait",
                   [&] {
                     ran.fetch_add(1);
                     go.wait(false);
                   })
              .ok());
  REQUIRE(service
              .add("work",
                   [&](const Request& request, int) {
                     ran.fetch_add(1);
                     while (!request.cancelled()) std::this_thread::yield();
                     stopped = true;
                   })
              .ok());
  REQUIRE(link.servers[1]->add(service).ok());
  Reply first, second, third;
  link.a().call({"pool", "wait", link.in(kSoon)}, encode_arguments(), first.handler());
  REQUIRE(link.until([&] { return ran == 1; }));
  const Ticket ticket = link.a().call({"pool", "wait", link.in(kSoon)}, encode_arguments(), second.handler());
  REQUIRE(link.until([&] { return link.servers[1]->counters().queued == 1; }));
  link.a().cancel(ticket);
  CHECK(value_of<int>(link.call("add", 1, 2)) == 3);  // behind the cancel
  go = true;
  go.notify_all();
  REQUIRE(link.until([&] { return first.done() && link.servers[1]->counters().cancelled == 1; }));
  CHECK(ran == 1);
  CHECK(second.status().code() == Code::kCancelled);
  const Ticket working =
      link.a().call({"pool", "work", link.in(kSoon)}, encode_arguments(1), third.handler());
  REQUIRE(link.until([&] { return ran == 2; }));
  link.a().cancel(working);
  REQUIRE(link.until([&] { return stopped.load(); }));
}

TEST_CASE("sockets: the channel goes while handlers run on the pool") {
  for (int round = 0; round < 10; ++round) {
    // Outlives the pool, whose threads may run the handler after the replies have arrived.
    std::atomic<int> inside{0};
    SocketFixture sockets = make_sockets();
    Link link(sockets);
    Service service("pool");
    REQUIRE(service
                .add("work",
                     [&](const ByteVector& bytes) {
                       ++inside;
                       return bytes;
                     })
                .ok());
    REQUIRE(link.servers[1]->add(service).ok());
    std::vector<std::unique_ptr<Reply>> replies;
    for (std::size_t i = 0; i < 50; ++i) {
      replies.push_back(std::make_unique<Reply>());
      link.a().call({"pool", "work", link.in(kSoon)}, encode_arguments(pattern(i * 400, i)),
                    replies.back()->handler());
    }
    REQUIRE(link.until([&] { return inside > round * 3; }));
    link.channels[1].reset();
    REQUIRE(link.until([&] { return link.owners[0].closed == 1; }));
    CHECK(all_done(replies));
    for (const auto& reply : replies) CHECK(reply->calls == 1);
  }
}

TEST_CASE("sockets: a peer that dies ends the calls at once") {
  SocketFixture sockets = make_sockets();
  Link link(sockets);
  Reply reply;
  link.a().call({"test", "hold", link.in(kSoon)}, encode_arguments(), reply.handler());
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  const TimePoint start = sockets.now();
  sockets.cut(link.pair);
  REQUIRE(link.until([&] { return reply.done(); }));
  CHECK(sockets.now() - start < test::patient(5s));
  CHECK(reply.status().code() == Code::kUnavailable);
  CHECK(reply.status().maybe_executed());
  link.held.clear();
}

TEST_CASE("sockets: an echo of a gibibyte, or of as much as the scale says") {
  SocketFixture sockets = make_sockets();
  Link link(sockets);
  const int most = kSanitized ? 64 : 1024;
  const std::size_t size = static_cast<std::size_t>(std::min(most, test::scaled(most))) << 20;
  ByteVector sent = large(size);
  Reply reply;
  link.a().call({"test", "raw", link.in(10 * kSoon)}, std::move(sent), reply.handler());
  const TimePoint end = sockets.now() + 10 * kSoon;
  while (!reply.done() && sockets.now() < end) sockets.step();
  REQUIRE(reply.done());
  REQUIRE_MESSAGE(reply.value->has_value(), reply.status().to_string());
  const Bytes got = (*reply.value)->bytes();
  REQUIRE(got.size() == size);
  const ByteVector block = pattern(1 << 20);
  bool same = true;
  for (std::size_t at = 0, n = 0; at < size; at += block.size(), ++n) {
    same = same && std::memcmp(got.data() + at, &n, sizeof n) == 0;
    same = same &&
           std::memcmp(got.data() + at + sizeof n, block.data() + sizeof n, block.size() - sizeof n) == 0;
  }
  CHECK(same);
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}

TEST_CASE("sockets: a gibibyte goes to the peer and back into memory that is named, and nobody copies it") {
  SocketFixture sockets = make_sockets();
  Link link(sockets);
  Service service("same");
  REQUIRE(service.add("same", [](Attachment attachment) { return attachment; }).ok());
  REQUIRE(link.servers[1]->add(service).ok());
  const int most = kSanitized ? 64 : 1024;
  const std::size_t size = static_cast<std::size_t>(std::min(most, test::scaled(most))) << 20;
  const auto sent = std::make_shared<const ByteVector>(large(size));
  Buffer back(size);
  REQUIRE(back.data() != nullptr);
  AttachedBody request = encode_attached_arguments(Attachment(*sent, sent));
  request.into.emplace_back(MutableBytes(back.data(), size));
  Reply reply;
  link.a().call_attached({"same", "same", link.in(10 * kSoon)}, std::move(request), reply.handler());
  const TimePoint end = sockets.now() + 10 * kSoon;
  while (!reply.done() && sockets.now() < end) sockets.step();
  REQUIRE(reply.done());
  REQUIRE_MESSAGE(reply.value->has_value(), reply.status().to_string());
  REQUIRE((*reply.value)->attachments().size() == 1);
  CHECK((*reply.value)->attachments()[0].bytes().data() == back.data());
  CHECK(std::memcmp(back.data(), sent->data(), size) == 0);
  for (Channel* channel : {&link.a(), &link.b()}) {
    CHECK(channel->counters().copied_bytes == 0);
    CHECK(channel->counters().pulled_bytes == size);
  }
  REQUIRE(link.until([&] { return link.a().idle() && link.b().idle(); }));
}
