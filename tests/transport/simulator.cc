#include "tests/transport/simulator.h"

#include <algorithm>
#include <cstring>

#include "base/str.h"

namespace slime::transport::testing {
namespace {

sim::SimOptions random_options(Rng& rng) {
  sim::SimOptions options;
  options.seed = rng.next();
  options.max_delay = options.min_delay + Nanos(static_cast<std::int64_t>(rng.below(200'000)));
  options.capacity_bytes = static_cast<std::uint32_t>(std::uint64_t{512} << rng.below(10));
  options.torn = rng.chance(3, 4);
  options.long_messages = rng.chance(1, 2);
  return options;
}

// The bytes of message `number`: the number, then noise that follows from it.
ByteVector message_bytes(std::uint64_t number, std::size_t size) {
  ByteVector out(size);
  Rng(number + 1).fill(out);
  std::memcpy(out.data(), &number, std::min(size, sizeof number));
  return out;
}

}  // namespace

Simulation::Simulation(std::uint64_t seed)
    : seed_(seed),
      rng_(seed),
      cell_(rng_.chance(1, 10) ? 16 * 1024 : 256),
      memory_bytes_(cell_ * 64),
      fabric_(random_options(rng_)) {
  for (int side = 0; side < 2; ++side) open_process(side);
}

Simulation::~Simulation() {
  for (auto& lane : lanes_) {
    for (Side& side : lane->sides) {
      side.held.clear();
      side.kept.clear();
      side.endpoint.reset();
    }
  }
}

void Simulation::fail(const std::string& what) {
  if (failure_.empty()) failure_ = str("seed ", seed_, ": ", what);
}

void Simulation::open_process(int side) {
  Process& p = process(side);
  p.options.slot_bytes = static_cast<std::uint32_t>(256 + rng_.below(2000));
  p.options.base_credits = static_cast<std::uint32_t>(1 + rng_.below(8));
  p.options.max_credits = p.options.base_credits + static_cast<std::uint32_t>(rng_.below(32));
  p.options.pool_slots = p.options.max_credits + 4 * p.options.base_credits;
  auto host = fabric_.make_host(p.options);
  if (!host) return fail(str("make_host: ", host.error().to_string()));
  p.host = std::move(*host);
  for (std::size_t i = 0; i < kRegions; ++i) {
    Memory& memory = p.memories[i];
    memory.model.resize(memory_bytes_);
    rng_.fill(memory.model);
    memory.actual.assign(memory_bytes_ + 2 * kGuard, kGuardByte);
    std::copy(memory.model.begin(), memory.model.end(), memory.data());
    memory.writer.assign(64, nullptr);
    memory.readers.assign(64, 0);
    register_memory(side, i);
  }
  open_numbers(side);
}

void Simulation::register_memory(int side, std::size_t index) {
  Memory& memory = process(side).memories[index];
  const Rights rights = index + 1 == kRegions ? Rights::kRemoteRead : Rights::kReadWrite;
  auto region = process(side).host->device().register_memory(memory.data(), memory_bytes_, rights);
  if (!region) return fail(str("register_memory: ", region.error().to_string()));
  memory.region = std::make_unique<DeviceRegion>(std::move(*region));
  ++memory.registrations;
}

// Revocation is final: what the region holds when close() returns is what it holds from then on.
void Simulation::close_memory(int side, std::size_t index) {
  Memory& memory = process(side).memories[index];
  if (memory.region == nullptr) return;
  memory.closing = true;
  memory.region->close(rng_.chance(1, 2) ? Nanos::zero() : limits::kCloseBound).ignore();
  memory.closing = false;
  retired_.push_back(std::move(memory.region));
  const std::set<Work*> writers(memory.writer.begin(), memory.writer.end());
  for (Work* work : writers) {
    if (work == nullptr) continue;
    for (Block& block : work->blocks) {
      if (block.written == &memory) settle(*work, block, true);
    }
  }
}

void Simulation::connect() {
  auto pair = fabric_.connect(*process(0).host, *process(1).host);
  if (!pair) {
    if (pair.error().code() != Code::kResourceExhausted) fail(str("connect: ", pair.error().to_string()));
    return;
  }
  auto lane = std::make_unique<Lane>();
  lane->link = pair->link;
  lane->sides[0].endpoint = std::move(pair->a);
  lane->sides[1].endpoint = std::move(pair->b);
  for (int i = 0; i < 2; ++i) {
    Side& side = lane->sides[static_cast<std::size_t>(i)];
    side.simulation = this;
    side.lane = lane.get();
    side.side = i;
    side.endpoint->set_receiver(side);
  }
  lanes_.push_back(std::move(lane));
}

// ----------------------------------------------------------------------------------------- actions

std::string Simulation::run() {
  connect();
  const std::uint64_t actions = 40 + rng_.below(160);
  for (std::uint64_t i = 0; i < actions && failure_.empty(); ++i) {
    act();
    for (std::uint64_t steps = rng_.below(24); steps > 0; --steps) fabric_.step();
    if (rng_.chance(1, 16)) {
      check_memory();
      check_credits();
    }
  }
  if (failure_.empty()) check_end();
  return failure_;
}

void Simulation::act() {
  std::vector<Lane*> open;
  for (auto& lane : lanes_) {
    resolve(*lane);
    if (!lane->over()) open.push_back(lane.get());
  }
  if (open.empty() || (open.size() < 3 && rng_.chance(1, 30))) {
    connect();
    return;
  }
  Lane& lane = *open[rng_.below(open.size())];
  const int side = static_cast<int>(rng_.below(2));
  if (lane.sides[static_cast<std::size_t>(side)].endpoint == nullptr) return;
  const std::uint64_t dice = rng_.below(100);
  if (dice < 40) return send(lane, side);
  if (dice < 68) return move_data(lane, side);
  if (dice < 80) return post_atomic(lane, side);
  if (dice < 92) return release_some(lane.sides[static_cast<std::size_t>(side)]);
  if (dice < 95) {
    const std::size_t index = rng_.below(kRegions + 2);
    if (index == kRegions) return close_numbers(side);
    if (index == kRegions + 1) return close_results(side);
    close_memory(side, index);
    if (rng_.chance(3, 4)) register_memory(side, index);
    return;
  }
  fault(lane, side);
}

void Simulation::send(Lane& lane, int index) {
  Side& side = lane.sides[static_cast<std::size_t>(index)];
  auto work = std::make_unique<Work>();
  work->simulation = this;
  work->lane = &lane;
  work->side = index;
  work->number = side.sent.size();
  if (rng_.chance(1, 8))
    work->deadline = fabric_.clock().now() + Nanos(static_cast<std::int64_t>(rng_.below(400'000)));
  const SendOptions options{.after_writes = rng_.chance(1, 3)};
  if (options.after_writes) {
    for (const auto& other : works_) {
      if (other->lane == &lane && other->side == index && other->kind != Work::Kind::kMessage &&
          other->posted())
        work->before.push_back(other.get());
    }
    for (const auto& other : atomics_) {
      if (other->lane == &lane && other->side == index && other->posted())
        work->atomics_before.push_back(other.get());
    }
  }
  const std::size_t most = side.endpoint->max_message_bytes();
  std::size_t size = sizeof(std::uint64_t) + rng_.below(most - 8 + 1);
  if (rng_.chance(1, 4)) {
    const std::size_t long_size = most + 1 + rng_.below(8 * most);
    if (side.endpoint->takes_long(long_size)) size = long_size;
  }
  const ByteVector bytes = message_bytes(work->number, size);
  const Bytes all(bytes);
  const std::size_t cut = rng_.below(size + 1);
  const Bytes parts[] = {all.first(cut), all.subspan(cut)};
  const std::uint64_t credits = side.endpoint->credits();
  const Status status = side.endpoint->send(parts, *work, options);
  // A message that leaves at once may be what finds the wire broken.
  const bool broke = credits > 0 && !status.ok() && !side.endpoint->error().ok();
  if (!broke && status.ok() != (credits > 0))
    fail(str("credits() said ", credits, ", send said ", status.to_string()));
  if (!status.ok()) {
    if (work->posted() || work->completions > 0) fail("a refused message was posted");
    return;
  }
  side.sent.push_back(work.get());
  works_.push_back(std::move(work));
}

void Simulation::move_data(Lane& lane, int index) {
  Side& side = lane.sides[static_cast<std::size_t>(index)];
  auto work = std::make_unique<Work>();
  work->simulation = this;
  work->lane = &lane;
  work->side = index;
  work->kind = rng_.chance(1, 2) ? Work::Kind::kWrite : Work::Kind::kRead;
  work->has_imm = work->kind == Work::Kind::kWrite && rng_.chance(1, 3);
  work->legal = !(work->kind == Work::Kind::kWrite && rng_.chance(1, 12));
  if (rng_.chance(1, 12))
    work->deadline = fabric_.clock().now() + Nanos(static_cast<std::int64_t>(rng_.below(2'000'000)));
  if (rng_.chance(1, 6)) work->stall = Nanos(1 + static_cast<std::int64_t>(rng_.below(1'000'000)));
  for (std::uint64_t blocks = 1 + rng_.below(rng_.chance(1, 4) ? 20 : 4); blocks > 0; --blocks) {
    if (!add_block(*work, lane, index)) break;
    lock(*work);  // so that the next block finds other cells
  }
  if (work->copies.empty() && !work->has_imm) return;
  if (work->copies.empty()) work->legal = true;
  Status status;
  if (work->has_imm) {
    work->number = next_imm_++;
    imms_[static_cast<std::uint32_t>(work->number)] = work.get();
    status = side.endpoint->write_with_imm(work->copies, static_cast<std::uint32_t>(work->number), *work);
  } else if (work->kind == Work::Kind::kWrite) {
    status = side.endpoint->write(work->copies, *work);
  } else {
    status = side.endpoint->read(work->copies, *work);
  }
  if (!status.ok()) {
    if (work->posted() || work->completions > 0) fail("a refused operation was posted");
    const Code code = status.code();
    const bool closing = side.endpoint->credits() == 0;
    if (code != Code::kResourceExhausted && !closing) fail(str("refused: ", status.to_string()));
    imms_.erase(static_cast<std::uint32_t>(work->has_imm ? work->number : 0));
    unlock_written(*work, false);
    unlock_read(*work);
    return;
  }
  works_.push_back(std::move(work));
}

bool Simulation::add_block(Work& work, Lane& lane, int index) {
  const bool is_write = work.kind == Work::Kind::kWrite;
  // Mostly the regions of the block before: only such blocks travel together.
  if (work.blocks.empty() || rng_.chance(1, 4)) {
    work.near = rng_.below(kRegions);
    work.far = work.legal ? rng_.below(is_write ? kRegions - 1 : kRegions) : kRegions - 1;
    work.same_regions = false;
  }
  Memory& near = process(index).memories[work.near];
  Memory& far = process(1 - index).memories[work.far];
  if (near.region == nullptr || far.region == nullptr) return false;
  Block block;
  block.length = rng_.chance(1, 10) ? 0 : 1 + rng_.below(rng_.chance(1, 4) ? 24 * cell_ : 2 * cell_);
  std::uint64_t near_offset = 0;
  std::uint64_t far_offset = 0;
  if (!choose(near, !is_write, block.length, near_offset)) return false;
  if (!choose(far, is_write && work.legal, block.length, far_offset)) return false;
  if (!std::exchange(work.same_regions, true)) {
    RegionDescriptor descriptor = far.region->describe();
    if (!work.legal) descriptor.rights = Rights::kReadWrite;  // forged: the target knows better
    auto remote = lane.sides[static_cast<std::size_t>(index)].endpoint->import_region(descriptor);
    if (!remote) return false;
    work.remotes.push_back(std::make_unique<RemoteRegion>(*remote));
  }
  work.copies.push_back(
      {near.region.get(), near_offset, work.remotes.back().get(), far_offset, block.length});
  block.written = is_write ? &far : &near;
  block.written_offset = is_write ? far_offset : near_offset;
  block.read = is_write ? &near : &far;
  block.read_offset = is_write ? near_offset : far_offset;
  block.registration = block.written->registrations;
  work.blocks.push_back(block);
  return true;
}

// Chooses `length` bytes that no operation writes and, for a write, no operation reads either.
bool Simulation::choose(Memory& memory, bool write, std::uint64_t length, std::uint64_t& offset) {
  for (int attempt = 0; attempt < 4; ++attempt) {
    offset = rng_.below(memory_bytes_ - length + 1);
    bool free = true;
    for (std::uint64_t cell = offset / cell_; length > 0 && cell <= (offset + length - 1) / cell_; ++cell)
      free = free && memory.writer[cell] == nullptr && (!write || memory.readers[cell] == 0);
    if (free) return true;
  }
  return false;
}

void Simulation::fault(Lane& lane, int index) {
  Side& side = lane.sides[static_cast<std::size_t>(index)];
  switch (rng_.below(8)) {
    case 0:
      return fabric_.break_link(lane.link);
    case 1:
      lane.frozen = true;
      return fabric_.freeze(lane.link, index);
    case 2:
    case 3:
      lane.frozen = false;
      fabric_.thaw(lane.link, 0);
      return fabric_.thaw(lane.link, 1);
    case 4:
      return fabric_.fail_write(lane.link, index, static_cast<std::uint32_t>(rng_.below(20)));
    case 5:
      return side.endpoint->close(rng_.chance(1, 2) ? limits::kCloseBound : Nanos::zero());
    case 6:
      return side.endpoint->reset(Status(Code::kUnavailable, "simulated reset"));
    default:
      side.endpoint.reset();  // a process that forgets its endpoint
  }
}

void Simulation::release_some(Side& side) {
  while (!side.held.empty() && rng_.chance(3, 4)) {
    std::swap(side.held[rng_.below(side.held.size())], side.held.back());
    side.held.pop_back();
  }
}

}  // namespace slime::transport::testing
