#pragma once

#include <memory>
#include <string>

#include "tests/transport/socket_fixture.h"
#include "tests/transport/verbs/fake_fabric.h"
#include "transport/verbs/options.h"
#include "transport/verbs/verbs_provider.h"

namespace slime::transport::testing {

// Both sides on one fake fabric: side 0 on device fake0, side 1 on fake1.
class FakeVerbsFixture final : public Fixture {
 public:
  explicit FakeVerbsFixture(verbs::Options options = {}, FakeOptions fabric = FakeOptions::roce())
      : fabric_(std::move(fabric)), sockets_([this, options] { return make(options); }) {}

  FakeFabric& fabric() { return fabric_; }
  SocketFixture& sockets() { return sockets_; }

  void open(PortOptions options) override { sockets_.open(options); }
  void close() { sockets_.close(); }
  Device& device(int side) override { return sockets_.device(side); }
  Port& port(int side) override { return sockets_.port(side); }
  Loop& loop(int side) override { return sockets_.loop(side); }
  // While completions are held, no hello arrives.
  Result<Pair> connect() override {
    return fabric_.holds_completions() ? sockets_.connect_without_hello() : sockets_.connect();
  }
  void step() override { sockets_.step(); }
  void pass(Nanos span) override { sockets_.pass(span); }
  TimePoint now() override { return sockets_.now(); }
  void cut(const Pair& pair) override { sockets_.cut(pair); }
  // Stops the whole host, its adapter included.
  void freeze_b(const Pair& pair) override {
    sockets_.freeze_b(pair);
    fabric_.freeze("fake1", true);
  }
  void thaw_b(const Pair& pair) override {
    fabric_.freeze("fake1", false);
    sockets_.thaw_b(pair);
  }
  [[nodiscard]] bool checks_region_ids() const override { return false; }
  [[nodiscard]] bool cut_stops_work() const override { return false; }

 private:
  Result<std::unique_ptr<Provider>> make(verbs::Options options) {
    options.device = "fake" + std::to_string(made_++);
    return verbs::make_verbs_provider(fabric_.functions(), options);
  }

  FakeFabric fabric_;  // outlives all objects made on it
  int made_ = 0;
  SocketFixture sockets_;
};

}  // namespace slime::transport::testing
