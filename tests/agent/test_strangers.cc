// Floods the port of an agent from the address of its peers. A program of its own, because it needs
// many descriptors and loads the machine.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/address.h"
#include "base/unique_fd.h"
#include "ctrl/api/prober.h"
#include "ctrl/limits.h"
#include "tests/agent/agents.h"
#include "tests/support/descriptors.h"
#include "transport/handshake.h"

namespace slime::test {
namespace {

constexpr int kReserved = 800;  // descriptors besides those of the strangers

// Strangers that connect, and reconnect as soon as the agent ends the connection: a third sends
// nothing, a third half a HELLO, a third one byte of a HELLO per second.
class Flood {
 public:
  Flood(const std::string& address, int count)
      : bytes_(hello()), strangers_(static_cast<std::size_t>(count)) {
    const auto parsed = Address::parse(address);
    REQUIRE(parsed.has_value());
    target_ = *SocketAddress::numeric(*parsed);
    thread_ = std::thread([this] { run(); });
  }
  ~Flood() {
    stop_ = true;
    thread_.join();
  }
  [[nodiscard]] std::uint64_t connects() const { return connects_; }

 private:
  struct Stranger {
    UniqueFd fd;
    std::size_t said = 0;
    TimePoint next = kNever;
  };

  static ByteVector hello() {
    transport::Handshake::Config config;
    config.self = {"stranger", InstanceId::random()};
    config.offers = {{"tcp", {}}};
    const auto handshake = transport::Handshake::initiator(std::move(config), {});
    return {handshake.output().begin(), handshake.output().end()};
  }

  void run() {
    std::vector<pollfd> polled(strangers_.size());
    while (!stop_) {
      for (std::size_t i = 0; i < strangers_.size(); ++i) {
        if (!strangers_[i].fd.valid()) connect(i);
        if (strangers_[i].next <= steady_clock().now()) say(i);
        polled[i] = {strangers_[i].fd.get(), POLLIN, 0};
      }
      ::poll(polled.data(), polled.size(), 10);
      for (std::size_t i = 0; i < strangers_.size(); ++i) {
        if (polled[i].revents == 0) continue;
        char byte = 0;
        if (::recv(strangers_[i].fd.get(), &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN)
          strangers_[i] = Stranger();
      }
    }
  }

  void connect(std::size_t i) {
    Stranger& one = strangers_[i];
    one.fd = UniqueFd(::socket(target_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!one.fd.valid()) return;
    if (::connect(one.fd.get(), target_.data(), target_.length()) != 0 && errno != EINPROGRESS) {
      one = Stranger();
      return;
    }
    ++connects_;
    if (i % 3 != 0) one.next = steady_clock().now();
  }

  void say(std::size_t i) {
    Stranger& one = strangers_[i];
    const std::size_t more = i % 3 == 1 ? bytes_.size() / 2 : 1;
    const ssize_t sent = ::send(one.fd.get(), bytes_.data() + one.said, more, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) one.said += static_cast<std::size_t>(sent);
    one.next = i % 3 == 1 && sent > 0 ? kNever : deadline_after(steady_clock().now(), seconds(1));
  }

  const ByteVector bytes_;
  std::vector<Stranger> strangers_;
  SocketAddress target_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> connects_{0};
  std::thread thread_;
};

PeerAgentOptions options(std::string name, const std::string& token) {
  PeerAgentOptions out;
  out.name = std::move(name);
  out.token = token;
  out.provider = "tcp";
  return out;
}

InstanceId instance_of(PeerAgent& agent) {
  const std::string info = to_json(agent.info());
  const std::string key = "\"instance\":\"";
  const auto at = info.find(key);
  REQUIRE(at != std::string::npos);
  const auto parsed = InstanceId::parse(info.substr(at + key.size(), 32));
  REQUIRE(parsed.has_value());
  return *parsed;
}

}  // namespace

TEST_CASE("a thousand strangers from a peer's own address keep neither the peer nor a probe away") {
  // More than the listener has places, at any scale.
  const int strangers = std::max(scaled(1000), static_cast<int>(transport::limits::kPendingHandshakes) + 50);
  allow_descriptors(static_cast<rlim_t>(strangers + kReserved));
  const int rounds = static_cast<int>(setting("SLIME_TEST_ROUNDS", 10));
  for (const std::string token : {"", "token"}) {
    CAPTURE(token);
    const auto server = start(options("server", token));
    rpc::Service service = calculator();
    REQUIRE(server->serve(service).ok());
    const InstanceId instance = instance_of(*server);
    const Flood flood(server->address(), strangers);
    REQUIRE(eventually([&] { return flood.connects() >= static_cast<std::uint64_t>(strangers); }));
    Nanos slowest{};
    int probed = 0;
    for (int round = 0; round < rounds; ++round) {
      const auto peer = start(options("peer", token));
      const TimePoint asked = steady_clock().now();
      auto sum = peer->peer(server->address())
                     .with_timeout(patient(seconds(10)))
                     .call<std::int64_t>("calc", "add", 1, 2)
                     .wait();
      REQUIRE_MESSAGE(sum.has_value(), sum.status().to_string());
      CHECK(*sum == 3);
      slowest = std::max(slowest, steady_clock().now() - asked);
      probed += ctrl::probe_instance(server->address(), instance, patient(ctrl::limits::kProbeTimeout)) ==
                        ctrl::ProbeResult::kSame
                    ? 1
                    : 0;
    }
    MESSAGE(strangers, " strangers, ", flood.connects(), " connections, ",
            number_in(to_json(server->info()), "strangers_evicted"), " evicted; the slowest peer took ",
            std::chrono::duration_cast<milliseconds>(slowest).count(), " ms, probes answered: ", probed);
    CHECK(slowest < patient(seconds(1)));
    CHECK(probed == rounds);
    CHECK(number_in(to_json(server->info()), "strangers_evicted") > 0);
  }
}

}  // namespace slime::test
