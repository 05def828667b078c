// Atomics in a random run, and what must hold of them.
#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "tests/transport/simulator.h"

namespace slime::transport::testing {
namespace {

constexpr std::size_t kResults = 256;  // of each process, for all of a run
constexpr std::uint64_t kNoResult = 0xdead'beef'dead'beef;

}  // namespace

std::uint64_t Simulation::Numbers::at(std::size_t i) const {
  std::uint64_t out = 0;
  std::memcpy(&out, actual.data() + base + 8 * i, sizeof out);
  return out;
}

void Simulation::open_numbers(int side) {
  Process& p = process(side);
  for (Numbers* numbers : {&p.numbers, &p.results}) {
    numbers->count = numbers == &p.numbers ? kCounters : kResults;
    numbers->actual.assign(8 * numbers->count + 2 * kGuard, kGuardByte);
    const auto address = reinterpret_cast<std::uintptr_t>(numbers->actual.data());
    // Numbers must be aligned, results need not.
    numbers->base = kGuard + (numbers == &p.numbers ? (8 - address % 8) % 8 : rng_.below(16));
    const std::uint64_t first = numbers == &p.numbers ? 0 : kNoResult;
    for (std::size_t i = 0; i < numbers->count; ++i)
      std::memcpy(numbers->actual.data() + numbers->base + 8 * i, &first, sizeof first);
  }
  register_numbers(side);
  register_results(side);
}

void Simulation::register_numbers(int side) {
  Process& p = process(side);
  auto region = p.host->device().register_memory(p.numbers.actual.data() + p.numbers.base,
                                                 8 * p.numbers.count, Rights::kReadWrite);
  if (!region) return fail(str("register_memory: ", region.error().to_string()));
  p.numbers.region = std::make_unique<DeviceRegion>(std::move(*region));
}

void Simulation::register_results(int side) {
  Process& p = process(side);
  auto region = p.host->device().register_memory(p.results.actual.data() + p.results.base,
                                                 8 * p.results.count, Rights::kLocal);
  if (!region) return fail(str("register_memory: ", region.error().to_string()));
  p.results.region = std::make_unique<DeviceRegion>(std::move(*region));
}

// What an atomic has not done when close() returns, it does not do any more.
void Simulation::close_numbers(int side) {
  Process& p = process(side);
  if (p.numbers.region == nullptr) return register_numbers(side);
  p.numbers.region->close(rng_.chance(1, 2) ? Nanos::zero() : limits::kCloseBound).ignore();
  retired_.push_back(std::move(p.numbers.region));
  for (std::size_t i = 0; i < kCounters; ++i) {
    Counter& counter = p.counters[i];
    for (const AtomicWork* work : counter.posted) counter.frozen |= work->bit;
    counter.frozen_value = p.numbers.at(i) & counter.frozen;
  }
  if (rng_.chance(3, 4)) register_numbers(side);
}

void Simulation::close_results(int side) {
  Process& p = process(side);
  if (p.results.region == nullptr) return register_results(side);
  p.results.region->close(rng_.chance(1, 2) ? Nanos::zero() : limits::kCloseBound).ignore();
  retired_.push_back(std::move(p.results.region));
  for (AtomicWork* work : p.result_users) fix_result(*work);
  if (rng_.chance(3, 4)) register_results(side);
}

// Chooses what the atomic works on; a descriptor without rights when there is nothing.
RegionDescriptor Simulation::aim(AtomicWork& work, int far, std::uint64_t& offset) {
  Process& p = process(far);
  RegionDescriptor none;
  none.rights = Rights::kLocal;
  if (!work.legal && rng_.chance(1, 2)) {  // a region that peers may only read, with forged rights
    Memory& memory = p.memories[kRegions - 1];
    if (memory.region == nullptr) return none;
    offset = rng_.below(memory_bytes_ / 8) * 8;
    RegionDescriptor forged = memory.region->describe();
    forged.rights = Rights::kReadWrite;
    return forged;
  }
  if (p.numbers.region == nullptr) return none;
  work.number = rng_.below(kCounters);
  offset = 8 * work.number;
  if (!work.legal) {  // misaligned
    offset = std::min<std::uint64_t>(offset, 8 * (kCounters - 2)) + 1 + rng_.below(7);
    return p.numbers.region->describe();
  }
  Counter& counter = p.counters[work.number];
  if (counter.posted.size() == kAtomicsPerCounter) return none;
  work.counter = &counter;
  work.bit = std::uint64_t{1} << (2 * counter.posted.size());
  for (const AtomicWork* other : counter.posted) {
    if (other->completions > 0 && other->took_effect()) work.must_see |= other->bit;
  }
  work.expected = rng_.chance(3, 4) ? p.numbers.at(work.number) : work.must_see;
  return p.numbers.region->describe();
}

void Simulation::post_atomic(Lane& lane, int index) {
  Process& p = process(index);
  Endpoint& endpoint = *lane.sides[static_cast<std::size_t>(index)].endpoint;
  if (p.results.region == nullptr || p.result_users.size() == kResults) return;
  auto work = std::make_unique<AtomicWork>();
  work->simulation = this;
  work->lane = &lane;
  work->side = index;
  work->legal = !rng_.chance(1, 12);
  work->swap = rng_.chance(1, 2);
  if (rng_.chance(1, 12))
    work->deadline = fabric_.clock().now() + Nanos(static_cast<std::int64_t>(rng_.below(2'000'000)));
  std::uint64_t offset = 0;
  const RegionDescriptor descriptor = aim(*work, 1 - index, offset);
  if (descriptor.rights == Rights::kLocal) return;
  const auto remote = endpoint.import_region(descriptor);
  if (!remote) return;
  work->remote = std::make_unique<RemoteRegion>(*remote);
  work->result = p.result_users.size();
  const AtomicTarget target{p.results.region.get(), 8 * work->result, work->remote.get(), offset};
  const Status status = work->swap
                            ? endpoint.compare_swap(target, work->expected, work->expected | work->bit, *work)
                            : endpoint.fetch_add(target, work->legal ? work->bit : 1, *work);
  if (!status.ok()) {
    if (work->posted() || work->completions > 0) fail("a refused atomic was posted");
    if (status.code() != Code::kResourceExhausted && endpoint.credits() > 0)
      fail(str("an atomic was refused: ", status.to_string()));
    return;
  }
  p.result_users.push_back(work.get());
  if (work->counter != nullptr) work->counter->posted.push_back(work.get());
  atomics_.push_back(std::move(work));
}

void Simulation::AtomicWork::complete(Status outcome) noexcept {
  ++completions;
  status = std::move(outcome);
  simulation->finished(*this);
}

void Simulation::finished(AtomicWork& work) {
  if (work.completions != 1) return fail("an atomic completed twice");
  const Code code = work.status.code();
  if (code == Code::kCorrupt || code == Code::kInternal || code == Code::kAborted)
    fail(str("an atomic ended with ", work.status.to_string()));
  if (code == Code::kInvalidArgument && work.legal) fail(str("refused: ", work.status.to_string()));
  const bool told = !work.result_fixed;
  fix_result(work);
  if (!work.status.ok()) {
    const bool refused =
        code == Code::kNotFound || code == Code::kPermissionDenied || code == Code::kInvalidArgument;
    if (refused && work.old != kNoResult) fail("a refused atomic left a result");
    return;
  }
  if (!work.legal) return fail("an atomic succeeded that the target must refuse");
  if (!told) return fail("an atomic succeeded after its local region was closed");
  check_effect(work);
}

// The old value of one that succeeded fits those of all others.
void Simulation::check_effect(const AtomicWork& work) {
  std::uint64_t possible = 0;
  for (const AtomicWork* other : work.counter->posted) possible |= other->bit;
  if ((work.old & ~possible) != 0) fail("a number has bits that nobody set, or one twice");
  if ((work.old & work.bit) != 0) fail("an atomic saw its own effect as the old value");
  if ((work.old & work.must_see) != work.must_see) fail("an atomic does not see an earlier one");
  for (const AtomicWork* other : work.counter->posted) {
    if (other == &work || other->completions == 0 || !other->status.ok()) continue;
    const std::uint64_t both = other->old & work.old;
    if (both != other->old && both != work.old) fail("two atomics saw values that exclude each other");
    if (other->old == work.old && other->took_effect() && work.took_effect())
      fail("two atomics changed the same value");
  }
}

void Simulation::fix_result(AtomicWork& work) {
  if (work.result_fixed) return;
  work.result_fixed = true;
  work.old = process(work.side).results.at(work.result);
}

void Simulation::check_atomics() {
  for (Process& p : processes_) {
    for (std::size_t i = 0; i < p.result_users.size(); ++i) {
      const AtomicWork& work = *p.result_users[i];
      if (work.result_fixed && p.results.at(i) != work.old) fail("an old value changed after its atomic");
    }
    for (std::size_t i = p.result_users.size(); i < kResults; ++i) {
      if (p.results.at(i) != kNoResult) fail("a result that no atomic has");
    }
    for (std::size_t i = 0; i < kCounters; ++i) {
      const Counter& counter = p.counters[i];
      if ((p.numbers.at(i) & counter.frozen) != counter.frozen_value)
        fail("an atomic took effect after the region was closed");
    }
    for (const Numbers* numbers : {&p.numbers, &p.results}) {
      const auto guard = [](std::byte b) { return b == kGuardByte; };
      const auto first = numbers->actual.begin() + static_cast<std::ptrdiff_t>(numbers->base);
      const auto last = first + static_cast<std::ptrdiff_t>(8 * numbers->count);
      if (!std::all_of(numbers->actual.begin(), first, guard) ||
          !std::all_of(last, numbers->actual.end(), guard))
        fail("memory outside the numbers changed");
    }
  }
}

// Each took effect at most once, those that say so did, those that were refused did not.
void Simulation::check_atomics_end() {
  for (const auto& work : atomics_) {
    if (work->completions != 1) return fail(str("an atomic completed ", work->completions, " times"));
  }
  for (const Process& p : processes_) {
    for (std::size_t i = 0; i < kCounters; ++i) {
      std::uint64_t possible = 0;
      std::uint64_t certain = 0;
      for (const AtomicWork* work : p.counters[i].posted) {
        const Code code = work->status.code();
        const bool no_effect = (work->status.ok() && !work->took_effect()) || code == Code::kNotFound ||
                               code == Code::kPermissionDenied;
        if (!no_effect) possible |= work->bit;
        if (work->took_effect()) certain |= work->bit;
      }
      const std::uint64_t value = p.numbers.at(i);
      if ((value & ~possible) != 0) fail("an atomic took effect twice, or although it was refused");
      if ((value & certain) != certain) fail("an atomic that succeeded was lost");
    }
  }
}

}  // namespace slime::transport::testing
