// Drops the last reference to an agent (the PeerAgent or a Peer) in a handler, an interceptor or a
// callback: the agent ends, and no thread waits for itself.

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "agent/dump.h"
#include "base/reaper.h"
#include "rpc/interceptor.h"
#include "tests/agent/agents.h"

namespace slime {
namespace {

using namespace test;

// An agent and a Peer of it. drop() drops both, once.
struct Subject {
  std::mutex mutex;
  std::unique_ptr<PeerAgent> agent;
  std::optional<Peer> peer;
  std::atomic<bool> dropped{false};

  void drop() {
    std::unique_ptr<PeerAgent> last_agent;
    std::optional<Peer> last_peer;
    {
      const std::lock_guard lock(mutex);
      last_agent.swap(agent);
      last_peer.swap(peer);
    }
    last_agent.reset();
    last_peer.reset();
    dropped = true;
  }
};
using Shared = std::shared_ptr<Subject>;

// Makes a call that may end with any error, because the agent is dropped during the call.
void call(PeerAgent& from, const std::string& address, std::string_view method) {
  static_cast<void>(from.peer(address).call<std::int64_t>("drop", method).wait(kSoon));
}

struct Place {
  const char* name;
  // Makes subject->drop() run at this place. `other` is an agent that stays.
  void (*arrange)(const Shared& subject, PeerAgent& other);
  Progress progress = Progress::kThread;
};

void serve(PeerAgent& agent, const Shared& subject, rpc::MethodOptions options) {
  rpc::Service service("drop");
  REQUIRE(service
              .add(
                  "now", [subject] { subject->drop(); }, std::move(options))
              .ok());
  REQUIRE(agent.serve(service).ok());
}

struct DropsBefore final : rpc::ServerInterceptor {
  explicit DropsBefore(Shared s) : subject(std::move(s)) {}
  Status before(rpc::ServerCall&) override {
    subject->drop();
    return {};
  }
  Shared subject;
};
struct DropsAfter final : rpc::ServerInterceptor {
  explicit DropsAfter(Shared s) : subject(std::move(s)) {}
  void after(const rpc::CallInfo&, const Status&, const rpc::CallTiming&) override { subject->drop(); }
  Shared subject;
};
struct ClientDropsBefore final : rpc::ClientInterceptor {
  explicit ClientDropsBefore(Shared s) : subject(std::move(s)) {}
  Status before(rpc::ClientCall&) override {
    subject->drop();
    return {};
  }
  Shared subject;
};
struct ClientDropsAfter final : rpc::ClientInterceptor {
  explicit ClientDropsAfter(Shared s) : subject(std::move(s)) {}
  void after(const rpc::ClientCall&, const Status&, const rpc::CallTiming&) override { subject->drop(); }
  Shared subject;
};

// Calls the other agent with the subject's Peer, which is dropped during the call.
void call_add(const Shared& subject) {
  Future<std::int64_t> sum = subject->peer->call<std::int64_t>("calc", "add", 1, 1);
  static_cast<void>(sum.wait(kSoon));
}

template <class Interceptor>
void intercept_server(const Shared& subject, PeerAgent& other) {
  subject->agent->add_interceptor(std::make_shared<Interceptor>(subject));
  rpc::Service calc = calculator();
  REQUIRE(subject->agent->serve(calc).ok());
  static_cast<void>(
      other.peer(subject->agent->address()).call<std::int64_t>("calc", "add", 1, 1).wait(kSoon));
}

const Place kPlaces[] = {
    {"a handler on the pool",
     [](const Shared& subject, PeerAgent& other) {
       serve(*subject->agent, subject, {});
       call(other, subject->agent->address(), "now");
     }},
    {"a handler on the pool, of a one-way call",
     [](const Shared& subject, PeerAgent& other) {
       serve(*subject->agent, subject, {});
       static_cast<void>(other.peer(subject->agent->address()).one_way("drop", "now").wait(kSoon));
     }},
    {"an inline handler",
     [](const Shared& subject, PeerAgent& other) {
       serve(*subject->agent, subject, {.run = rpc::Run::kInline});
       call(other, subject->agent->address(), "now");
     }},
    {"then() of a call",
     [](const Shared& subject, PeerAgent&) {
       subject->peer->call<std::int64_t>("calc", "add", 1, 1).then([subject](const auto&) {
         subject->drop();
       });
     }},
    {"then() of a call, in poll()",
     [](const Shared& subject, PeerAgent&) {
       subject->peer->call<std::int64_t>("calc", "add", 1, 1).then([subject](const auto&) {
         subject->drop();
       });
       PeerAgent* const agent = subject->agent.get();
       while (!subject->dropped) agent->poll(milliseconds(1));
     },
     Progress::kCaller},
    {"then() of a call that another thread has posted, in the next call",
     [](const Shared& subject, PeerAgent&) {
       PeerAgent* const agent = subject->agent.get();
       // While this thread drives the loop, in a callback, the other thread can only post.
       const auto posted = std::make_shared<std::atomic<bool>>(false);
       subject->peer->connect().then([subject, agent, posted](const auto&) {
         std::thread([subject, agent] {
           agent->peer("nobody").connect().then([subject](const auto&) { subject->drop(); });
         }).join();
         *posted = true;
       });
       while (!*posted) agent->poll(milliseconds(1));
       CHECK_FALSE(subject->dropped);
       static_cast<void>(subject->peer->send(1, as_bytes("x")));
     },
     Progress::kCaller},
    {"then() of a read",
     [](const Shared& subject, PeerAgent&) {
       subject->peer->connect().then([subject](const auto&) { subject->drop(); });
     }},
    {"then() of a message of a stream",
     [](const Shared& subject, PeerAgent&) {
       auto [stream, result] =
           subject->peer->raw().stream("calc", "none", rpc::encode_arguments(), false, kSoon);
       std::move(result).then([subject, stream = stream](const auto&) { subject->drop(); });
     }},
    {"a client interceptor, before",
     [](const Shared& subject, PeerAgent&) {
       subject->agent->add_interceptor(std::make_shared<ClientDropsBefore>(subject));
       call_add(subject);
     }},
    {"a client interceptor of the Peer, before",
     [](const Shared& subject, PeerAgent&) {
       subject->peer = subject->peer->with_interceptor(std::make_shared<ClientDropsBefore>(subject));
       call_add(subject);
     }},
    {"a client interceptor, after",
     [](const Shared& subject, PeerAgent&) {
       subject->agent->add_interceptor(std::make_shared<ClientDropsAfter>(subject));
       call_add(subject);
     }},
    {"a server interceptor, before", &intercept_server<DropsBefore>},
    {"a server interceptor, after", &intercept_server<DropsAfter>},
    {"on_imm",
     [](const Shared& subject, PeerAgent& other) {
       MemoryRegion theirs = take(subject->agent->allocate(4096, Rights::kReadWrite));
       REQUIRE(subject->agent->publish("here", theirs).ok());
       subject->agent->on_imm([subject](const Peer&, std::uint32_t) { subject->drop(); });
       Peer peer = other.peer(subject->agent->address());
       const MemoryRegion ours = take(other.allocate(4096, Rights::kLocal));
       const RemoteRegion remote = take(peer.region("here"));
       const Copy copy{ours, 0, remote, 0, 64};
       static_cast<void>(peer.write_with_imm({&copy, 1}, 7).wait(kSoon));
       REQUIRE(eventually([&] { return subject->dropped.load(); }));  // keeps `theirs` until then
     }},
    {"on_disconnect",
     [](const Shared& subject, PeerAgent&) {
       REQUIRE(subject->peer->connect().wait(kSoon).has_value());
       subject->agent->on_disconnect([subject](const std::string&, std::uint64_t) { subject->drop(); });
       REQUIRE(subject->peer->disconnect().ok());
     }},
    {"the cancel of a request",
     [](const Shared& subject, PeerAgent& other) {
       rpc::Service service("drop");
       const auto began = std::make_shared<std::atomic<bool>>(false);
       const auto kept = std::make_shared<std::optional<rpc::Request>>();
       REQUIRE(service
                   .add_raw("now",
                            [subject, began, kept](rpc::Request request) {
                              request.on_cancel([subject] { subject->drop(); });
                              kept->emplace(std::move(request));
                              *began = true;
                            })
                   .ok());
       REQUIRE(subject->agent->serve(service).ok());
       auto pending = other.peer(subject->agent->address()).call<std::int64_t>("drop", "now");
       REQUIRE(eventually([&] { return began->load(); }));
       pending.cancel();
       REQUIRE(eventually([&] { return subject->dropped.load(); }));
       kept->reset();
     }},
};

// Returns whether the agent has ended: dump() shows it no more.
bool gone(const std::string& name) { return dump().find("agent " + name) == std::string::npos; }

TEST_CASE("the last agent and the last Peer may be dropped at any place") {
  for (const Place& place : kPlaces) {
    CAPTURE(place.name);
    PeerAgentOptions options;
    options.name = "other";
    auto other = start(std::move(options));
    rpc::Service calc = calculator();
    REQUIRE(other->serve(calc).ok());
    {
      const auto subject = std::make_shared<Subject>();
      subject->agent = start("subject", place.progress);
      subject->peer = subject->agent->peer(other->address());
      place.arrange(subject, *other);
      REQUIRE(eventually([&] { return subject->dropped.load(); }));
      REQUIRE(eventually([] { return gone("subject"); }));
    }
    CHECK(eventually([] { return reaping() == 0; }));
    CHECK(other->close().ok());
  }
}

TEST_CASE("a handler on the pool holds the last Peer of an agent whose close ran out") {
  auto client = start("client");
  auto server = start("server");
  const auto peer = std::make_shared<std::optional<Peer>>(server->peer(client->address()));
  std::atomic<bool> running{false};
  std::atomic<bool> release{false};
  std::atomic<bool> ended{false};
  rpc::Service service("slow");
  REQUIRE(service
              .add("wait",
                   [&] {
                     std::optional<Peer> own;
                     own.swap(*peer);
                     running = true;
                     release.wait(false);
                     CHECK(code_of(own->connect().wait(kSoon)) == Code::kUnavailable);
                     own.reset();
                     ended = true;
                   })
              .ok());
  REQUIRE(server->serve(service).ok());
  auto call = client->peer(server->address()).call<void>("slow", "wait");
  REQUIRE(eventually([&] { return running.load(); }));
  CHECK(server->close(milliseconds(20)).code() == Code::kDeadlineExceeded);
  server.reset();
  release = true;
  release.notify_all();
  CHECK_FALSE(call.wait(kSoon).has_value());
  REQUIRE(eventually([&] { return ended.load(); }));
  CHECK(eventually([] { return reaping() == 0; }));
  CHECK(gone("server"));
}

TEST_CASE("a handler that owns a Peer of its agent does not keep it alive after the close ran out") {
  auto client = start("client");
  auto server = start("server");
  const auto running = std::make_shared<std::atomic<bool>>(false);
  const auto release = std::make_shared<std::atomic<bool>>(false);
  {
    rpc::Service service("slow");
    REQUIRE(service
                .add("wait",
                     [running, release, peer = server->peer(client->address())] {
                       *running = true;
                       release->wait(false);
                     })
                .ok());
    REQUIRE(server->serve(service).ok());
  }
  auto call = client->peer(server->address()).call<void>("slow", "wait");
  REQUIRE(eventually([&] { return running->load(); }));
  CHECK(server->close(milliseconds(20)).code() == Code::kDeadlineExceeded);
  server.reset();
  *release = true;
  release->notify_all();
  CHECK_FALSE(call.wait(kSoon).has_value());
  CHECK(eventually([] { return gone("server") && reaping() == 0; }));
}

TEST_CASE("a request that waits when the close runs out is not executed any more") {
  auto client = start("client");
  PeerAgentOptions options;
  options.name = "server";
  options.server.workers = 1;
  auto server = start(std::move(options));
  const auto running = std::make_shared<std::atomic<int>>(0);
  const auto release = std::make_shared<std::atomic<bool>>(false);
  rpc::Service service("slow");
  REQUIRE(service
              .add("wait",
                   [running, release] {
                     ++*running;
                     release->wait(false);
                   })
              .ok());
  REQUIRE(server->serve(service).ok());
  const Peer kept = server->peer(client->address());  // so that the destructor does not wait for the handlers
  Peer peer = client->peer(server->address());
  auto first = peer.call<void>("slow", "wait");
  REQUIRE(eventually([&] { return running->load() == 1; }));
  auto second = peer.call<void>("slow", "wait");
  REQUIRE(eventually([&] { return number_in(to_json(server->info()), "queued") == 1; }));
  CHECK(server->close(milliseconds(20)).code() == Code::kDeadlineExceeded);
  server.reset();
  *release = true;
  release->notify_all();
  CHECK_FALSE(first.wait(kSoon).has_value());
  CHECK_FALSE(second.wait(kSoon).has_value());
  CHECK(eventually([] { return reaping() == 0; }));
  CHECK(running->load() == 1);
}

}  // namespace
}  // namespace slime
