#pragma once

#include <doctest/doctest.h>

#include <memory>

#include "tests/transport/fixture.h"
#include "transport/sim/sim.h"

namespace slime::transport::testing {

// The simulator as a fixture: one loop, a manual clock, one seed.
class SimFixture final : public Fixture {
 public:
  explicit SimFixture(std::uint64_t seed) : SimFixture(sim::SimOptions{.seed = seed}) {}
  explicit SimFixture(sim::SimOptions options) : fabric_(options) {}
  void open(PortOptions options) override {
    for (auto& host : hosts_) {
      auto made = fabric_.make_host(options);
      REQUIRE(made.has_value());
      host = std::move(*made);
    }
  }
  Device& device(int side) override { return hosts_[side]->device(); }
  Port& port(int side) override { return hosts_[side]->port(); }
  Loop& loop(int) override { return fabric_.loop(); }
  Result<Pair> connect() override {
    auto pair = fabric_.connect(*hosts_[0], *hosts_[1]);
    if (!pair) return std::move(pair).error();
    return Pair{std::move(pair->a), std::move(pair->b), pair->link};
  }
  void step() override {
    if (!fabric_.step()) fabric_.clock().advance(std::chrono::milliseconds(1));
  }
  void pass(Nanos span) override {
    const TimePoint end = fabric_.clock().now() + span;
    while (fabric_.clock().now() < end) {
      if (fabric_.loop().poll(Nanos::zero())) continue;
      fabric_.clock().advance_to(std::min(end, fabric_.loop().next_timer()));
    }
    while (fabric_.loop().poll(Nanos::zero())) {
    }
  }
  TimePoint now() override { return fabric_.clock().now(); }
  void cut(const Pair& pair) override { fabric_.break_link(pair.link); }
  void freeze_b(const Pair& pair) override { fabric_.freeze(pair.link, 1); }
  void thaw_b(const Pair& pair) override { fabric_.thaw(pair.link, 1); }

 private:
  sim::SimFabric fabric_;
  std::unique_ptr<sim::SimHost> hosts_[2];
};

}  // namespace slime::transport::testing
