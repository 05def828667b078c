#pragma once

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/address.h"
#include "tests/transport/fixture.h"
#include "transport/connect.h"
#include "transport/shm/shm_provider.h"
#include "transport/verbs/endpoint.h"

namespace slime::transport::testing {

// Connects two devices over real sockets on loopback. The test drives their two loops. Side 1 has
// the listener, and the handshake makes each connection.
class SocketFixture final : public Fixture, private Acceptor {
 public:
  using MakeProvider = UniqueFunction<Result<std::unique_ptr<Provider>>()>;
  explicit SocketFixture(MakeProvider make, std::string host = "127.0.0.1")
      : make_(std::move(make)), host_(std::move(host)) {}
  // Both sides' guarded regions are allocated, and may be mapped by the peer.
  static std::unique_ptr<SocketFixture> of_allocated(std::string_view provider) {
    auto out = of(provider);
    out->allocated_.emplace();
    return out;
  }
  // Shared memory between processes that cannot read each other's memory by its address.
  static std::unique_ptr<SocketFixture> of_strangers() {
    return std::make_unique<SocketFixture>([]() -> Result<std::unique_ptr<Provider>> {
      return shm::make_shm_provider(shm::Options{.fetches = false});
    });
  }
  // Which read it so, but do not write there.
  static std::unique_ptr<SocketFixture> of_readers() {
    auto out = std::make_unique<SocketFixture>([]() -> Result<std::unique_ptr<Provider>> {
      return shm::make_shm_provider(shm::Options{.gates = false});
    });
    out->fetches_ = true;
    return out;
  }
  static std::unique_ptr<SocketFixture> of(std::string_view provider) {
    auto out = std::make_unique<SocketFixture>([provider] { return make_provider(provider); });
    out->fetches_ = provider == "shm";
    return out;
  }
  ~SocketFixture() override { listener_.reset(); }

  void open(PortOptions options) override {
    for (int i = 0; i < 2; ++i) {
      auto loop = Loop::create();
      REQUIRE(loop.has_value());
      loops_[i] = *loop;
      auto provider = make_();
      REQUIRE(provider.has_value());
      providers_[i] = std::move(*provider);
      auto device = providers_[i]->open_device();
      REQUIRE_MESSAGE(device.has_value(), device.status().to_string());
      devices_[i] = std::move(*device);
      auto port = devices_[i]->open_port(*loops_[i], options);
      REQUIRE_MESSAGE(port.has_value(), port.status().to_string());
      ports_[i] = std::move(*port);
    }
    HandshakeOptions handshake = options_of("b");
    auto listener =
        Listener::listen(*loops_[1], *ports_[1], Address{host_, 0}.to_string(), false, handshake, *this);
    REQUIRE(listener.has_value());
    listener_ = std::move(*listener);
  }
  // Closes the listener, the ports, the devices and the loops.
  void close() {
    listener_.reset();
    for (int i = 0; i < 2; ++i) {
      ports_[i].reset();
      devices_[i].reset();
      loops_[i].reset();
    }
  }
  Device& device(int side) override { return *devices_[side]; }
  Port& port(int side) override { return *ports_[side]; }
  Loop& loop(int side) override { return *loops_[side]; }

  // On an adapter, returns once each end has the other's hello, or one of the ends has failed.
  // Another thread connects the queue pairs, so a fixed number of steps would not do.
  Result<Pair> connect() override {
    Result<Pair> pair = connect_without_hello();
    if (!pair || !on_adapter()) return pair;
    CHECK(until([&] { return failed(*pair) || (settled(*pair->a) && settled(*pair->b)); }));
    // Both ends run what they put off once nothing more arrives.
    for (int i = 0; i < 4; ++i) step();
    return pair;
  }
  Result<Pair> connect_without_hello() {
    HandshakeOptions handshake = options_of("a");
    std::unique_ptr<Result<Connected>> mine;
    theirs_.reset();
    auto connecting = transport::connect(
        *loops_[0], *ports_[0], listener_->address(), {"b", {}}, handshake,
        [&](Result<Connected> result) { mine = std::make_unique<Result<Connected>>(std::move(result)); });
    const bool over = until([&] { return mine && (!*mine || theirs_); });
    if (!over) return Status(Code::kDeadlineExceeded, "the fixture could not connect");
    if (!*mine) return std::move(*mine).error();
    CHECK((*mine)->peer.name == "b");
    CHECK(theirs_->peer.name == "a");
    const std::uint64_t link = ++last_link_;
    ports_of_links_[link] = theirs_->address;
    return Pair{std::move((*mine)->endpoint), std::move(theirs_->endpoint), link};
  }

  void step() override {
    loops_[0]->poll(Nanos::zero());
    if (frozen_)
      loops_[0]->poll(std::chrono::milliseconds(1));
    else
      loops_[1]->poll(std::chrono::microseconds(200));
  }
  void pass(Nanos span) override {
    const TimePoint end = now() + span;
    while (now() < end) step();
  }
  TimePoint now() override { return steady_clock().now(); }

  // Shuts the initiator's socket down under its endpoint: what is unsent is lost and both ends see
  // the end, as when the kernel closes the sockets of a process that died.
  void cut(const Pair& pair) override {
    const std::string& local = ports_of_links_.at(pair.link);
    for (int fd = 3; fd < 1024; ++fd) {
      const auto ours = SocketAddress::of_socket(fd);
      if (ours && ours->to_string() == local && SocketAddress::of_peer(fd)) {
        ::shutdown(fd, SHUT_RDWR);
        return;
      }
    }
    FAIL("the connection to cut is not there");
  }
  // "host:port" of the initiator's end.
  [[nodiscard]] const std::string& address(const Pair& pair) const { return ports_of_links_.at(pair.link); }
  void freeze_b(const Pair&) override { frozen_ = true; }
  void thaw_b(const Pair&) override { frozen_ = false; }
  [[nodiscard]] bool works_alone() const override { return on_adapter() || allocated_ || fetches_; }
  [[nodiscard]] bool checks_region_ids() const override { return !on_adapter(); }

 private:
  Status on_hello(const PeerIdentity&) noexcept override { return {}; }
  void on_connected(Connected connected) noexcept override {
    theirs_ = std::make_unique<Connected>(std::move(connected));
  }

  // The end has the peer's hello, and the completion of its own.
  static bool settled(const Endpoint& end) {
    const auto& endpoint = dynamic_cast<const verbs::VerbsEndpoint&>(end);
    return endpoint.reached() && endpoint.drained();
  }
  static bool failed(const Pair& pair) { return !pair.a->error().ok() || !pair.b->error().ok(); }
  [[nodiscard]] bool on_adapter() const { return providers_[0]->name() == "verbs"; }
  [[nodiscard]] HandshakeOptions options_of(const std::string& name) const {
    HandshakeOptions out;
    out.self = {name, InstanceId::random()};
    out.token = "token";
    out.provider = std::string(providers_[0]->name());
    return out;
  }

  MakeProvider make_;
  std::optional<AllocatedMemory> allocated_;
  const std::string host_;
  std::shared_ptr<Loop> loops_[2];
  std::unique_ptr<Provider> providers_[2];
  std::unique_ptr<Device> devices_[2];
  std::unique_ptr<Port> ports_[2];
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connected> theirs_;
  std::map<std::uint64_t, std::string> ports_of_links_;
  std::uint64_t last_link_ = 0;
  bool fetches_ = false;
  bool frozen_ = false;
};

}  // namespace slime::transport::testing
