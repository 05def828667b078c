#include "transport/sim/sim.h"

#include <algorithm>

#include "base/check.h"
#include "base/str.h"
#include "transport/sim/sim_wire.h"
#include "transport/soft/device.h"

namespace slime::transport::sim {

SimHost::SimHost() : next_wire_(std::make_shared<std::unique_ptr<SimWire>>()) {}
SimHost::~SimHost() = default;

SimFabric::SimFabric(SimOptions options) : options_(options), rng_(options.seed) {
  auto loop = Loop::create({.clock = &clock_});
  SLIME_CHECK(loop.has_value());
  loop_ = std::move(*loop);
}

SimFabric::~SimFabric() = default;

Result<std::unique_ptr<SimHost>> SimFabric::make_host(PortOptions options) {
  auto host = std::make_unique<SimHost>();
  host->device_ = std::make_unique<soft::SoftDevice>(
      [slot = host->next_wire_](Loop& loop, const PortOptions&) {
        return soft::plain_wires(
            loop, [slot](Loop&, UniqueFd, const Introduction&) -> Result<std::unique_ptr<Wire>> {
              SLIME_CHECK(*slot != nullptr);
              return std::unique_ptr<Wire>(std::move(*slot));
            });
      },
      ByteVector(), options_.prefers_own_memory);
  auto port = host->device_->open_port(*loop_, options);
  if (!port) return std::move(port).error();
  host->port_ = std::move(*port);
  return host;
}

Result<SimFabric::Pair> SimFabric::connect(SimHost& a, SimHost& b) {
  auto pending_a = a.port().prepare();
  if (!pending_a) return std::move(pending_a).error();
  auto pending_b = b.port().prepare();
  if (!pending_b) return std::move(pending_b).error();
  auto link = std::make_shared<Link>();
  link->id = next_link_++;
  std::erase_if(links_, [](const auto& old) { return old->wires[0] == nullptr && old->wires[1] == nullptr; });
  links_.push_back(link);
  *a.next_wire_ = std::make_unique<SimWire>(*this, link, 0);
  *b.next_wire_ = std::make_unique<SimWire>(*this, link, 1);
  const ByteVector parameters_a = (*pending_a)->parameters();
  const ByteVector parameters_b = (*pending_b)->parameters();
  auto end_a = (*pending_a)->finish(parameters_b, UniqueFd(), {"a", "b", true});
  if (!end_a) return std::move(end_a).error();
  auto end_b = (*pending_b)->finish(parameters_a, UniqueFd(), {"b", "a", false});
  if (!end_b) return std::move(end_b).error();
  return Pair{std::move(*end_a), std::move(*end_b), link->id};
}

SimFabric::Link* SimFabric::find(std::uint64_t link) {
  const auto it = std::find_if(links_.begin(), links_.end(), [link](const auto& l) { return l->id == link; });
  return it == links_.end() ? nullptr : it->get();
}

void SimFabric::break_link(std::uint64_t id) {
  Link* link = find(id);
  if (link == nullptr || link->broken) return;
  link->broken = true;
  for (SimWire* wire : link->wires) {
    if (wire != nullptr) wire->break_now(Status(Code::kUnavailable, str("simulated link ", id, " lost")));
  }
}

void SimFabric::freeze(std::uint64_t id, int side) {
  if (Link* link = find(id)) link->frozen[static_cast<std::size_t>(side)] = true;
}

void SimFabric::thaw(std::uint64_t id, int side) {
  Link* link = find(id);
  if (link == nullptr) return;
  link->frozen[static_cast<std::size_t>(side)] = false;
  if (SimWire* wire = link->wires[static_cast<std::size_t>(side)]) wire->arm();
}

void SimFabric::fail_write(std::uint64_t id, int side, std::uint32_t n) {
  if (Link* link = find(id)) link->fail_write_in[static_cast<std::size_t>(side)] = n;
}

bool SimFabric::step() {
  if (loop_->poll(Nanos::zero())) return true;
  const TimePoint next = loop_->next_timer();
  if (next == kNever) return false;
  clock_.advance_to(next);
  return true;
}

void SimFabric::run_until_idle(Nanos limit) {
  const TimePoint end = clock_.now() + limit;
  while (clock_.now() < end && step()) {
  }
}

}  // namespace slime::transport::sim
