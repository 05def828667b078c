// p2p with messages: both sides.
#include "bench/messages.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/random.h"
#include "bench/load.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

constexpr std::uint64_t kThere = 1;  // tags
constexpr std::uint64_t kBack = 2;
constexpr Nanos kMessageLook = std::chrono::milliseconds(100);  // for the end
constexpr std::size_t kComparedEnd = 4096;

// The bytes of each message of one measurement.
ByteVector message_of(const Options& options) {
  ByteVector out(options.size);
  Rng(kSeed).fill(out);
  return out;
}

// Compares the length and both ends. A comparison of all bytes would take a part of the time that
// is measured.
bool same_message(Bytes got, Bytes sent) {
  const std::size_t end = std::min(sent.size(), kComparedEnd);
  return got.size() == sent.size() && same_bytes(got.first(end), sent.first(end)) &&
         same_bytes(got.last(end), sent.last(end));
}

class Messages final : public Load {
 public:
  Messages(const Options& options, Connection connection)
      : Load(1, false),
        options_(options),
        connection_(std::move(connection)),
        message_(message_of(options)) {}

  Result<bool> verify() override {
    const auto wrong = connection_.peer.call<std::uint64_t>("bench", "wrong").wait();
    if (!wrong) return wrong.error();
    return right_ && *wrong == 0;
  }

 private:
  Status start(std::uint32_t) override {
    for (std::uint32_t i = 0; i < options_.count; ++i) {
      sends_.push_back(connection_.peer.send(kThere, message_));
      if (options_.dual) receives_.push_back(connection_.peer.recv(kBack));
    }
    return {};
  }
  Status finish(std::uint32_t) override {
    for (auto& send : std::exchange(sends_, {})) SLIME_TRY(send.wait().status());
    for (auto& receive : std::exchange(receives_, {})) {
      const auto got = receive.wait();
      if (!got) return got.error();
      right_ = right_ && same_message(got->bytes(), message_);
    }
    return {};
  }

  const Options options_;
  Connection connection_;
  const ByteVector message_;
  std::vector<Future<None>> sends_;
  std::vector<Future<Payload>> receives_;
  bool right_ = true;
};

}  // namespace

// What handlers of the agent use, which may outlive the MessageServer.
struct MessageServer::State {
  explicit State(const Options& with) : options(with), message(message_of(with)) {}

  // Serves each connection in a thread until `over`.
  void serve_all(PeerAgent& agent) {
    std::vector<std::thread> threads;
    while (!over) {
      std::vector<std::uint64_t> fresh;
      {
        const MutexLock lock(mutex);
        if (connections.empty()) changed.wait_for(mutex, kMessageLook);
        fresh.swap(connections);
      }
      for (const std::uint64_t connection : fresh) {
        auto peer = agent.peer_of(connection);
        if (peer) threads.emplace_back([this, peer = *peer] { serve(peer); });
      }
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Returns when the connection has ended.
  void serve(Peer peer) {
    Future<None> sending;
    while (!over) {
      if (options.dual && !sending.valid()) sending = peer.send(kBack, message);
      auto got = peer.recv(kThere, kMessageLook).wait();
      if (!got && got.error().code() == Code::kDeadlineExceeded) continue;
      if (!got) return;
      if (!same_message(got->bytes(), message)) ++wrong;
      if (options.dual && !std::exchange(sending, {}).wait()) return;
    }
  }

  const Options options;
  const ByteVector message;
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<bool> over{false};
  Mutex mutex;
  CondVar changed;
  std::vector<std::uint64_t> connections SLIME_GUARDED_BY(mutex);
};

MessageServer::MessageServer(std::shared_ptr<State> state, std::thread thread)
    : state_(std::move(state)), thread_(std::move(thread)) {}

MessageServer::~MessageServer() {
  state_->over = true;
  thread_.join();
}

Result<std::unique_ptr<MessageServer>> MessageServer::start(PeerAgent& agent, rpc::Service& service,
                                                            const Options& options) {
  auto state = std::make_shared<State>(options);
  SLIME_TRY(service.add("wrong", [state] { return state->wrong.load(); }));
  agent.on_connect([state](const std::string&, std::uint64_t connection) {
    const MutexLock lock(state->mutex);
    state->connections.push_back(connection);
    state->changed.notify_one();
  });
  std::thread thread([state, &agent] { state->serve_all(agent); });
  return std::unique_ptr<MessageServer>(new MessageServer(std::move(state), std::move(thread)));
}

Result<LoadClient> make_message_load(const Options& options, const std::string& address) {
  auto connection = connect_agent(options, address, 0);
  if (!connection) return std::move(connection).error();
  const std::string provider = connection->peer.info().provider;
  return LoadClient{std::make_unique<Messages>(options, std::move(*connection)), provider};
}

}  // namespace slime::bench
