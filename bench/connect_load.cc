// From a new agent to the reply of its first call.
#include "base/random.h"
#include "base/str.h"
#include "bench/load.h"
#include "bench/process.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

// Connects new agents, one after the other. Their starts and ends do not count.
class Connections final : public Load {
 public:
  Connections(const Options& options, std::string address)
      : Load(1, false), options_(options), address_(std::move(address)), payload_(options.size) {
    Rng(kSeed).fill(payload_);
  }
  [[nodiscard]] const std::string& provider() const { return provider_; }

  Status warm_up(Nanos) override {
    Outcome unused;
    return connect_one(unused);
  }
  Status run(Nanos, Outcome& out) override {
    const double cpu_before = cpu_seconds();
    for (std::uint32_t i = 0; i < options_.count; ++i) SLIME_TRY(connect_one(out));
    out.cpu = cpu_seconds() - cpu_before;
    return {};
  }

 private:
  Status start(std::uint32_t) override { return {}; }
  Status finish(std::uint32_t) override { return {}; }

  Status connect_one(Outcome& out) {
    auto agent = PeerAgent::start(agent_options(options_, str("bench-connect-", agents_++)));
    if (!agent) return std::move(agent).error();
    const TimePoint begin = steady_clock().now();
    Peer peer = (*agent)->peer(address_);
    const auto reply = peer.call<ByteVector>("bench", "echo", payload_).wait();
    const Nanos spent = steady_clock().now() - begin;
    if (!reply) return reply.error();
    out.verified = out.verified && *reply == payload_;
    out.latency.add(static_cast<std::uint64_t>(spent.count()));
    out.seconds += std::chrono::duration<double>(spent).count();
    ++out.operations;
    provider_ = peer.info().provider;
    return (*agent)->close();
  }

  const Options options_;
  const std::string address_;
  ByteVector payload_;
  std::string provider_;
  std::uint64_t agents_ = 0;
};

}  // namespace

Result<LoadClient> make_connect_load(const Options& options, const std::string& address) {
  auto load = std::make_unique<Connections>(options, address);
  SLIME_TRY(load->warm_up({}));  // which learns the provider
  const std::string provider = load->provider();
  return LoadClient{std::move(load), provider};
}

}  // namespace slime::bench
