// The process holds a bounded number of bytes for its peers: requests stay with their callers until
// a worker and memory are free, and unread answers are revoked.

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "rpc/codec/attachments.h"
#include "rpc/server/budget.h"
#include "tests/rpc/forger.h"
#include "tests/rpc/server_caller.h"
#include "tests/support/eventually.h"

using namespace slime;
using namespace slime::rpc;
using namespace slime::rpc::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kSize = 100'000;  // bytes of a lent body
constexpr std::uint64_t kBudget = 4 << 20;
constexpr std::size_t kShare = (kBudget / 4) / kSize;  // bodies that one connection may hold

struct Calls {
  std::vector<std::unique_ptr<Reply>> replies;
  void add(Channel& channel, std::string_view service, std::string_view method, TimePoint deadline,
           std::size_t n, std::size_t size = kSize) {
    for (std::size_t i = 0; i < n; ++i) {
      replies.push_back(std::make_unique<Reply>());
      channel.call({service, method, deadline}, pattern(size), replies.back()->handler());
    }
  }
  [[nodiscard]] std::size_t done() const {
    return static_cast<std::size_t>(
        std::count_if(replies.begin(), replies.end(), [](const auto& reply) { return reply->done(); }));
  }
  [[nodiscard]] std::size_t ended(Code code) const {
    return static_cast<std::size_t>(std::count_if(replies.begin(), replies.end(), [&](const auto& reply) {
      return reply->done() && reply->status().code() == code;
    }));
  }
};

// Waits for threads of the server, while the simulated time goes on slowly.
template <class F>
bool with_threads(SimFixture& sim, F done) {
  return test::eventually([&] {
    sim.pass(100us);
    return done();
  });
}

// Serves a method whose handler waits for the gate.
void serve_slow(Link& link, Gate& gate) {
  Service service("slow");
  REQUIRE(service
              .add_raw("wait",
                       [&gate](Request request) {
                         gate.pass();
                         request.reply(ByteVector());
                       })
              .ok());
  REQUIRE(link.servers[1]->add(service).ok());
}

LinkOptions one_worker() {
  LinkOptions options;
  options.server.workers = 1;
  return options;
}

LinkOptions small_budget() {
  LinkOptions options;
  options.a.memory_bytes = options.b.memory_bytes = kBudget;
  return options;
}

// Waits for calls whose answers go 5 bodies beyond the share: these 5 are refused, and nothing
// stays held.
void check_refused_beyond_share(Link& link, Calls& calls) {
  REQUIRE(link.until([&] { return calls.done() == kShare + 5; }));
  CHECK(calls.ended(Code::kOk) == kShare);
  CHECK(calls.ended(Code::kResourceExhausted) == 5);
  CHECK(calls.replies.back()->status().maybe_executed());
  CHECK(link.a().counters().over_budget == 5);
  REQUIRE(link.until([&] { return link.a().counters().held_bytes == 0; }));
}

}  // namespace

TEST_CASE("answers that their callers do not read are revoked after deadline and grace, and freed") {
  SimFixture sim(kSeed);
  Link link(sim);
  Calls calls;
  calls.add(link.b(), "test", "hold", link.in(2s), 8, 10);
  REQUIRE(link.until([&] { return link.held.size() == 8; }));
  sim.freeze_b(link.pair);
  for (Request& request : link.held) request.reply(pattern(kSize));
  REQUIRE(link.until([&] { return link.a().counters().lent_buffers == 8; }));
  CHECK(link.a().counters().held_bytes == 8 * kSize);
  sim.pass(2s + rpc::limits::kAnswerGrace - 100ms);
  CHECK(link.a().counters().answers_revoked == 0);
  sim.pass(1s);
  CHECK(link.a().counters().answers_revoked == 8);
  CHECK(link.a().counters().lent_buffers == 0);
  CHECK(link.a().counters().held_bytes == 0);
  sim.thaw_b(link.pair);
  REQUIRE(link.until([&] { return calls.done() == 8; }));
  CHECK(calls.ended(Code::kDeadlineExceeded) == 8);
}

TEST_CASE("an answer that comes after the deadline of its call lends nothing") {
  SimFixture sim(kSeed);
  Link link(sim);
  Calls calls;
  calls.add(link.b(), "test", "hold", link.in(2s), 1, 10);
  REQUIRE(link.until([&] { return link.held.size() == 1; }));
  sim.freeze_b(link.pair);
  sim.pass(3s);
  link.held.front().reply(pattern(kSize));
  sim.pass(1s);
  CHECK(link.a().counters().lent_buffers == 0);
  CHECK(link.a().counters().held_bytes == 0);
}

TEST_CASE("answers beyond the share of a connection are refused, and the others arrive") {
  SimFixture sim(kSeed);
  Link link(sim, small_budget());
  const std::size_t n = kShare + 5;
  Calls calls;
  calls.add(link.b(), "test", "hold", link.in(20s), n, 10);
  REQUIRE(link.until([&] { return link.held.size() == n; }));
  for (Request& request : link.held) request.reply(pattern(kSize));
  check_refused_beyond_share(link, calls);
}

TEST_CASE("answers that wait for the loop are counted, and refused at once beyond the share") {
  Calls calls;
  Calls more;
  SimFixture sim(kSeed);
  Link link(sim, small_budget());
  const std::size_t n = kShare + 5;
  calls.add(link.b(), "test", "hold", link.in(20s), n, 10);
  REQUIRE(link.until([&] { return link.held.size() == n; }));
  // No thread drives the loop here, so the answers wait for it.
  for (Request& request : link.held) request.reply(pattern(kSize));
  CHECK(held_bytes() == kShare * kSize);
  check_refused_beyond_share(link, calls);
  // A connection that ends before its loop takes its answers gives their bytes back.
  more.add(link.b(), "test", "hold", link.in(20s), 3, 10);
  REQUIRE(link.until([&] { return link.held.size() == n + 3; }));
  for (std::size_t i = n; i < n + 3; ++i) link.held[i].reply(pattern(kSize));
  CHECK(held_bytes() == 3 * kSize);
  link.channels[0].reset();
  CHECK(held_bytes() == 0);
  REQUIRE(link.until([&] { return more.done() == 3; }));
}

TEST_CASE("the bytes of requests stay with their callers until a worker is free") {
  SimFixture sim(kSeed);
  Link link(sim, one_worker());
  Gate gate;
  serve_slow(link, gate);
  Calls calls;
  calls.add(link.a(), "slow", "wait", kNever, 20);
  REQUIRE(with_threads(sim, [&] { return link.servers[1]->counters().queued == 19; }));
  gate.wait_inside(1);
  REQUIRE(with_threads(sim, [&] { return link.a().counters().lent_buffers == 19; }));
  CHECK(link.b().counters().pulled_bytes == kSize);
  CHECK(link.b().counters().held_bytes == kSize);
  gate.open();
  REQUIRE(with_threads(sim, [&] { return calls.done() == 20; }));
  CHECK(calls.ended(Code::kOk) == 20);
  REQUIRE(with_threads(sim, [&] { return link.a().idle() && link.b().idle(); }));
  CHECK(link.b().counters().held_bytes == 0);
}

TEST_CASE(
    "a request that waits with its caller ends at its deadline, and by a cancel; the caller has its memory") {
  SimFixture sim(kSeed);
  Link link(sim, one_worker());
  Gate gate;
  serve_slow(link, gate);
  Calls calls;
  calls.add(link.a(), "slow", "wait", kNever, 1);
  REQUIRE(with_threads(sim, [&] { return link.b().counters().pulled_bytes == kSize; }));
  gate.wait_inside(1);
  calls.add(link.a(), "slow", "wait", link.in(2s), 3);
  Reply cancelled;
  const Ticket ticket = link.a().call({"slow", "wait", link.in(10s)}, pattern(kSize), cancelled.handler());
  REQUIRE(with_threads(sim, [&] { return link.servers[1]->counters().queued == 4; }));
  link.a().cancel(ticket);
  REQUIRE(with_threads(sim, [&] { return link.servers[1]->counters().queued == 3; }));
  sim.pass(3s);
  CHECK(calls.ended(Code::kDeadlineExceeded) == 3);
  REQUIRE(with_threads(sim, [&] { return link.a().counters().lent_buffers == 0; }));
  CHECK(link.servers[1]->counters().queued == 0);
  CHECK(link.b().counters().pulled_bytes == kSize);
  gate.open();
  REQUIRE(with_threads(sim, [&] { return calls.done() == 4; }));
}

TEST_CASE("requests beyond the share of their connection wait with their callers; others have theirs") {
  SimFixture sim(kSeed);
  Link link(sim, small_budget());
  Calls calls;
  calls.add(link.a(), "test", "hold", kNever, kShare + 5);
  REQUIRE(with_threads(sim, [&] { return link.held.size() == kShare; }));
  sim.pass(1s);
  CHECK(link.held.size() == kShare);
  CHECK(link.b().counters().pulled_bytes == kShare * kSize);
  {
    SimFixture other_sim(kSeed + 1);
    Link other(other_sim, small_budget());
    const ByteVector bytes = pattern(3 * kSize);
    CHECK(value_of<ByteVector>(other.call("echo", bytes)) == bytes);
  }
  for (std::size_t answered = 0; answered < kShare + 5; ++answered) {
    REQUIRE(with_threads(sim, [&] { return link.held.size() > answered; }));
    link.held[answered].reply(ByteVector());
  }
  REQUIRE(with_threads(sim, [&] { return calls.done() == kShare + 5; }));
  CHECK(calls.ended(Code::kOk) == kShare + 5);
  CHECK(link.b().counters().over_budget == 0);
}

TEST_CASE("all connections together hold no more than the budget of the process") {
  std::vector<std::unique_ptr<SimFixture>> sims;
  std::vector<std::unique_ptr<Link>> links;
  std::vector<Calls> calls(6);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    sims.push_back(std::make_unique<SimFixture>(kSeed + i));
    links.push_back(std::make_unique<Link>(*sims.back(), small_budget()));
    calls[i].add(links.back()->a(), "test", "hold", kNever, kShare);
    sims.back()->pass(1s);
    CHECK(held_bytes() <= kBudget);
  }
  CHECK(held_bytes() > kBudget - kSize);
  CHECK(links.back()->held.empty());
  links.erase(links.begin());  // gives its bytes back
  REQUIRE(with_threads(*sims.back(), [&] { return !links.back()->held.empty(); }));
  links.clear();
  CHECK(held_bytes() == 0);
}

TEST_CASE("a request larger than the share of its connection is refused, and not read") {
  SimFixture sim(kSeed);
  Link link(sim, small_budget());
  const auto reply = link.call_raw("test", "raw", pattern(kBudget / 4 + 1));
  CHECK(reply.status().code() == Code::kResourceExhausted);
  CHECK(!reply.status().maybe_executed());
  CHECK(reply.status().text().find("(a quarter of the server's memory_bytes)") != std::string::npos);
  CHECK(link.b().counters().over_budget == 1);
  CHECK(link.b().counters().pulled_bytes == 0);
}

TEST_CASE("calls of many large bodies at once pass under the default budget") {
  SimFixture sim(kSeed);
  Link link(sim);
  Calls calls;
  calls.add(link.a(), "test", "raw", kNever, 64, 1 << 20);
  REQUIRE(link.until([&] { return calls.done() == 64; }));
  CHECK(calls.ended(Code::kOk) == 64);
  CHECK(2 * 64 * (std::uint64_t{16} << 20) < rpc::limits::kMemoryBytes / 4);  // requests and answers
}

TEST_CASE("attachments that all name the same memory count as often as they name it") {
  for (const bool offered : {false, true}) {
    CAPTURE(offered);
    SimFixture sim(kSeed);
    Forger forger(sim, {.peer_name = "forger", .memory_bytes = kBudget});
    forger.hello();
    ByteVector memory(64 * 1024);
    auto region = sim.device(0).register_memory(memory.data(), memory.size(), transport::Rights::kRemoteRead);
    REQUIRE(region.has_value());
    wire::AttachmentTable table;
    table.lease = {7, 1};
    const std::size_t entries = offered ? rpc::limits::kMaxAttachments : 20;  // 20: all that fit a message
    for (std::size_t i = 0; i < entries; ++i) {
      wire::AttachmentEntry& entry = table.entries.emplace_back();
      entry.length_bytes = memory.size();
      entry.lent = true;
      entry.region = region->describe();
    }
    ByteVector body = wire::encode_attachments(table);
    auto lent = sim.device(0).register_memory(body.data(), body.size(), transport::Rights::kRemoteRead);
    REQUIRE(lent.has_value());
    const wire::Offer offer{.lease = {7, 1}, .length_bytes = body.size(), .region = lent->describe()};
    FrameHeader header = Forger::header(FrameType::kRequest, kId);
    header.flags = wire::kFlagAttachments | (offered ? wire::kFlagRendezvous : 0);
    forger.send(header, wire::encode_names("s", "raw"), offered ? offer.encode() : body);
    CHECK(forger.wait(1).type == FrameType::kRelease);
    const wire::Frame reply = forger.frame(2);
    CHECK(reply.header.type == FrameType::kReply);
    CHECK(error_code_from_wire(reply.header.code) == Code::kResourceExhausted);
    CHECK(forger.channel->counters().pulled_bytes == (offered ? body.size() : 0));
    CHECK(forger.channel->counters().over_budget == 1);
    CHECK(forger.channel->counters().held_bytes == 0);
    CHECK(forger.owner.closed == 0);
  }
}
