// What must hold in a random run, and how it is checked.
#include <algorithm>
#include <cstring>

#include "base/str.h"
#include "tests/transport/simulator.h"
#include "transport/soft/frames.h"

namespace slime::transport::testing {

void Simulation::lock(Work& work) {
  const Block& block = work.blocks.back();
  for (std::uint64_t i = 0; i < block.length; ++i) {
    // A refused write must not change anything, so its target is not locked.
    if (work.legal) block.written->writer[(block.written_offset + i) / cell_] = &work;
  }
  if (block.length > 0) {
    const std::uint64_t last = (block.read_offset + block.length - 1) / cell_;
    for (std::uint64_t cell = block.read_offset / cell_; cell <= last; ++cell) ++block.read->readers[cell];
  }
  work.locked = true;
  work.reading = true;
}

// From here on the written cells must not change; `accept` takes what they hold now as the truth.
void Simulation::unlock_written(Work& work, bool accept) {
  if (!work.locked) return;
  work.locked = false;
  for (Block& block : work.blocks) settle(work, block, accept);
}

void Simulation::settle(Work& work, Block& block, bool accept) {
  if (block.settled || !work.legal) return;
  block.settled = true;
  if (accept)
    std::copy_n(block.written->data() + block.written_offset, block.length,
                block.written->model.begin() + static_cast<std::ptrdiff_t>(block.written_offset));
  for (std::uint64_t i = 0; i < block.length; ++i) {
    Work*& writer = block.written->writer[(block.written_offset + i) / cell_];
    if (writer == &work) writer = nullptr;
  }
}

void Simulation::unlock_read(Work& work) {
  if (!work.reading) return;
  work.reading = false;
  for (const Block& block : work.blocks) {
    if (block.length == 0) continue;
    const std::uint64_t last = (block.read_offset + block.length - 1) / cell_;
    for (std::uint64_t cell = block.read_offset / cell_; cell <= last; ++cell) --block.read->readers[cell];
  }
}

void Simulation::check_written(const Work& work, const char* when) {
  if (!work.locked || !work.legal) return;
  for (const Block& block : work.blocks) {
    const Memory& memory = *block.written;
    if (memory.registrations != block.registration || memory.region == nullptr || memory.closing) return;
  }
  for (const Block& block : work.blocks) {
    if (std::memcmp(block.written->data() + block.written_offset, block.read->data() + block.read_offset,
                    block.length) != 0)
      fail(str(work.kind == Work::Kind::kRead ? "a read's" : "a write's", " bytes are not there ", when));
  }
}

void Simulation::Work::complete(Status outcome) noexcept {
  ++completions;
  status = std::move(outcome);
  simulation->finished(*this);
}

void Simulation::finished(Work& work) {
  if (work.completions != 1) return fail("an operation completed twice");
  const Code code = work.status.code();
  if (code == Code::kCorrupt || code == Code::kInternal || code == Code::kAborted)
    fail(str("an operation ended with ", work.status.to_string()));
  if (work.kind == Work::Kind::kMessage) return;
  if (work.status.ok()) {
    if (!work.legal) {
      for (const Block& block : work.blocks) {
        if (block.length > 0) fail("a write without the right to do so succeeded");
      }
    }
    check_written(work, "when the operation completed");
    if (work.has_imm && !work.imm_seen) fail("a write completed before its notification arrived");
    unlock_written(work, true);
    unlock_read(work);
    return;
  }
  unlock_read(work);
  // A failed read touches our memory no more. A failed write may still be under way to the peer,
  // unless the peer said that it is not.
  const bool answered = code == Code::kNotFound || code == Code::kPermissionDenied;
  if (work.kind == Work::Kind::kRead || answered) unlock_written(work, true);
}

// Once both ends of a connection are gone, nothing of it lands any more.
void Simulation::resolve(Lane& lane) {
  for (Side& side : lane.sides) {
    if (side.endpoint != nullptr && side.closed > 0) side.endpoint.reset();
  }
  if (!lane.over()) return;
  for (auto& work : works_) {
    if (work->lane != &lane) continue;
    if (work->completions != 1) fail("an operation survived its endpoint");
    unlock_written(*work, true);
  }
  for (auto& work : atomics_) {
    if (work->lane == &lane && work->completions != 1) fail("an atomic survived its endpoint");
  }
}

void Simulation::Side::on_message(Message message) noexcept {
  Simulation& s = *simulation;
  std::uint64_t number = 0;
  if (message.bytes().size() < sizeof number) return s.fail("a message is too short");
  std::memcpy(&number, message.bytes().data(), sizeof number);
  const std::vector<Work*>& sent = lane->sides[static_cast<std::size_t>(1 - side)].sent;
  if (number >= sent.size() || number < next_expected) return s.fail("a message came twice or out of order");
  for (; next_expected < number; ++next_expected) {
    const Work& skipped = *sent[next_expected];
    if (skipped.completions != 1 || skipped.status.code() != Code::kDeadlineExceeded)
      s.fail(str("message ", next_expected, " was lost before ", number));
  }
  ++next_expected;
  ByteVector expected(message.bytes().size());
  Rng(number + 1).fill(expected);
  std::memcpy(expected.data(), &number, sizeof number);
  if (std::memcmp(expected.data(), message.bytes().data(), expected.size()) != 0)
    s.fail("a message has wrong bytes");
  for (const Work* before : sent[number]->before) {
    if (before->kind == Work::Kind::kRead) {
      if (before->completions == 0) s.fail("a marked message overtook a read");
    } else if (before->completions == 0) {
      s.check_written(*before, "when a marked message arrived");
    }
  }
  for (const AtomicWork* before : sent[number]->atomics_before) {
    if (before->completions == 0) s.fail("a marked message overtook an atomic");
  }
  if (s.rng_.chance(1, 4) && message.keep()) {
    kept.push_back(std::move(message));
    if (kept.size() > 4) kept.erase(kept.begin());
  } else if (s.rng_.chance(1, 2)) {
    held.push_back(std::move(message));
  }
}

void Simulation::Side::on_imm(std::uint32_t imm) noexcept {
  Simulation& s = *simulation;
  const auto it = s.imms_.find(imm);
  if (it == s.imms_.end()) return s.fail("a notification that nobody sent");
  Work& work = *it->second;
  if (work.imm_seen) s.fail("a notification came twice");
  if (work.lane != lane || work.side == side) s.fail("a notification came to the wrong endpoint");
  if (!work.legal &&
      !std::all_of(work.blocks.begin(), work.blocks.end(), [](const Block& b) { return b.length == 0; }))
    s.fail("a notification of a refused write");
  work.imm_seen = true;
  if (work.completions == 0) s.check_written(work, "when their notification arrived");
}

void Simulation::Side::on_closed(const Status& reason) noexcept {
  if (++closed > 1) simulation->fail("on_closed came twice");
  if (endpoint->in_flight() != 0) simulation->fail("on_closed came before the last completion");
  if (reason.code() == Code::kCorrupt || reason.code() == Code::kInternal)
    simulation->fail(str("an endpoint ended with ", reason.to_string()));
}

void Simulation::check_memory() {
  for (Process& p : processes_) {
    for (Memory& memory : p.memories) {
      for (std::size_t cell = 0; cell < memory.writer.size(); ++cell) {
        if (memory.writer[cell] != nullptr) continue;
        if (std::memcmp(memory.data() + cell * cell_, memory.model.data() + cell * cell_, cell_) != 0)
          return fail("memory changed that no operation names");
      }
      const auto guard = [](std::byte b) { return b == kGuardByte; };
      if (!std::all_of(memory.actual.begin(), memory.actual.begin() + kGuard, guard) ||
          !std::all_of(memory.actual.end() - kGuard, memory.actual.end(), guard))
        return fail("memory outside a region changed");
    }
  }
  check_atomics();
}

// What peers may still send, and what is held, fits into the pool.
void Simulation::check_credits() {
  for (int side = 0; side < 2; ++side) {
    std::uint64_t promised = 0;
    for (const auto& lane : lanes_) {
      const Side& sender = lane->sides[static_cast<std::size_t>(1 - side)];
      if (sender.endpoint != nullptr) promised += sender.endpoint->credits();
      for (const Message& message : lane->sides[static_cast<std::size_t>(side)].held)
        promised += soft::slots_of(static_cast<std::uint32_t>(message.bytes().size()),
                                   process(side).options.slot_bytes);
    }
    // An end that is gone leaves its peer with credits that are no promise any more.
    const bool all_whole = std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) {
      return lane->over() || (lane->sides[0].endpoint != nullptr && lane->sides[1].endpoint != nullptr &&
                              lane->sides[0].endpoint->error().ok() && lane->sides[1].endpoint->error().ok());
    });
    if (all_whole && promised > process(side).options.pool_slots)
      fail(str(promised, " credits and held messages, but ", process(side).options.pool_slots, " slots"));
  }
}

void Simulation::check_end() {
  for (auto& lane : lanes_) {
    fabric_.thaw(lane->link, 0);
    fabric_.thaw(lane->link, 1);
    for (Side& side : lane->sides) {
      if (side.endpoint != nullptr) side.endpoint->close();
    }
  }
  const bool ended = fabric_.run_until([this] {
    for (auto& lane : lanes_) resolve(*lane);
    return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->over(); });
  });
  if (!ended) return fail("an endpoint did not close within its bound");
  for (const auto& work : works_) {
    if (work->completions != 1) return fail(str("an operation completed ", work->completions, " times"));
  }
  check_memory();
  check_atomics_end();
  for (auto& lane : lanes_) {
    for (Side& side : lane->sides) {
      side.held.clear();
      side.kept.clear();
    }
  }
  fabric_.run_until_idle();
  for (const Process& p : processes_) {
    if (p.host->port().endpoints() != 0) fail("a port still counts endpoints");
    if (p.host->port().free_slots() != p.options.pool_slots)
      fail(str("receive slots leaked: ", p.host->port().free_slots(), " of ", p.options.pool_slots, " free"));
  }
}

}  // namespace slime::transport::testing
