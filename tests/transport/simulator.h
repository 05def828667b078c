#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "transport/sim/sim.h"

namespace slime::transport::testing {

// One random run: two simulated processes with a few connections between them do random things
// under random faults, beside a model that knows what must hold. Everything follows from the seed.
//
// The memory of each process is split into cells. An operation locks the cells that it writes, so
// what they must hold afterwards is known; a cell that is not locked must never change.
class Simulation {
 public:
  explicit Simulation(std::uint64_t seed);
  ~Simulation();

  // What was broken, for people; empty when every promise held.
  [[nodiscard]] std::string run();

 private:
  static constexpr std::size_t kGuard = 512;
  static constexpr std::byte kGuardByte{0xa5};
  static constexpr std::size_t kRegions = 3;  // of each process; the last is read-only for peers
  static constexpr std::size_t kCounters = 4;
  static constexpr std::size_t kAtomicsPerCounter = 32;

  struct Lane;
  struct Work;
  struct AtomicWork;

  // A registered piece of memory and what it must hold.
  struct Memory {
    ByteVector actual;          // with guards on both sides
    ByteVector model;           // without
    std::vector<Work*> writer;  // of each cell
    std::vector<int> readers;
    std::unique_ptr<DeviceRegion> region;  // null: closed
    std::uint32_t registrations = 0;
    bool closing = false;  // inside close(): peers are refused already, and the loop runs meanwhile
    [[nodiscard]] std::byte* data() { return actual.data() + kGuard; }
  };
  // A registered piece of memory that only atomics use, as numbers of 8 bytes at `base`.
  struct Numbers {
    ByteVector actual;     // with guards on both sides
    std::size_t base = 0;  // of the first number in `actual`
    std::size_t count = 0;
    std::unique_ptr<DeviceRegion> region;  // null: closed
    [[nodiscard]] std::uint64_t at(std::size_t i) const;
  };
  // The allowed outcomes of atomics on one number. The k-th atomic adds, or swaps in, bit 2k. So
  // the bits of the number show which atomics took effect; bit 2k+1 shows that the k-th did so
  // twice.
  struct Counter {
    std::vector<AtomicWork*> posted;
    std::uint64_t frozen = 0;  // bits of atomics that a close of the region has decided
    std::uint64_t frozen_value = 0;
  };
  struct Process {
    std::unique_ptr<sim::SimHost> host;
    PortOptions options;
    std::array<Memory, kRegions> memories;
    Numbers numbers;  // that the peer's atomics work on
    std::array<Counter, kCounters> counters;
    Numbers results;  // where old values land; each atomic has a place of its own
    std::vector<AtomicWork*> result_users;
  };
  // A block of an operation, in the model's terms.
  struct Block {
    Memory* written = nullptr;
    std::uint64_t written_offset = 0;
    Memory* read = nullptr;
    std::uint64_t read_offset = 0;
    std::uint64_t length = 0;
    std::uint32_t registration = 0;  // of `written` when it was posted
    bool settled = false;            // `written` holds the truth again
  };
  // A posted operation.
  struct Work final : Operation {
    void complete(Status status) noexcept override;
    Simulation* simulation = nullptr;
    Lane* lane = nullptr;
    int side = 0;
    enum class Kind { kMessage, kWrite, kRead } kind = Kind::kMessage;
    bool legal = true;  // false: the target must refuse it
    bool has_imm = false;
    bool imm_seen = false;
    bool locked = false;   // holds its written cells
    bool reading = false;  // holds its read cells
    int completions = 0;
    Status status;
    std::uint64_t number = 0;   // of the message, or the notification
    std::vector<Work*> before;  // one-sided work posted before a message marked after_writes
    std::vector<AtomicWork*> atomics_before;
    std::vector<Block> blocks;
    std::vector<CopyBlock> copies;
    std::vector<std::unique_ptr<RemoteRegion>> remotes;
    std::size_t near = 0;  // of the block that was added last: numbers of its regions
    std::size_t far = 0;
    bool same_regions = false;  // the last of `remotes` is of them
  };
  // A posted fetch_add or compare_swap.
  struct AtomicWork final : Operation {
    void complete(Status status) noexcept override;
    // Known from the outcome: it was answered, and not with the refusal of a compare_swap.
    [[nodiscard]] bool took_effect() const { return status.ok() && (!swap || old == expected); }
    Simulation* simulation = nullptr;
    Lane* lane = nullptr;
    int side = 0;
    bool legal = true;  // false: the target must refuse it
    bool swap = false;
    Counter* counter = nullptr;  // null: not legal
    std::size_t number = 0;      // of the counter
    std::uint64_t bit = 0;
    std::uint64_t expected = 0;
    std::uint64_t must_see = 0;  // of those that took effect before this one was posted
    std::size_t result = 0;      // its place among the results
    bool result_fixed = false;   // must stay `old` from now on
    std::uint64_t old = 0;
    int completions = 0;
    Status status;
    std::unique_ptr<RemoteRegion> remote;
  };
  // One side of a lane.
  struct Side final : Receiver {
    void on_message(Message message) noexcept override;
    void on_imm(std::uint32_t imm) noexcept override;
    void on_ready() noexcept override { ++ready; }
    void on_closed(const Status& reason) noexcept override;
    Simulation* simulation = nullptr;
    Lane* lane = nullptr;
    int side = 0;
    std::unique_ptr<Endpoint> endpoint;
    std::vector<Message> held;
    std::vector<Message> kept;      // long ones, which have given their credits back
    std::vector<Work*> sent;        // messages, in order
    std::size_t next_expected = 0;  // index into the peer's `sent`
    int ready = 0;
    int closed = 0;
  };
  // A connection.
  struct Lane {
    std::uint64_t link = 0;
    std::array<Side, 2> sides;
    [[nodiscard]] bool over() const { return sides[0].endpoint == nullptr && sides[1].endpoint == nullptr; }
    bool frozen = false;
  };

  void fail(const std::string& what);
  Process& process(int side) { return processes_[static_cast<std::size_t>(side)]; }
  void open_process(int side);
  void register_memory(int side, std::size_t index);
  void close_memory(int side, std::size_t index);
  void connect();

  void act();
  void send(Lane& lane, int side);
  void move_data(Lane& lane, int side);
  bool add_block(Work& work, Lane& lane, int side);
  bool choose(Memory& memory, bool write, std::uint64_t length, std::uint64_t& offset);
  void fault(Lane& lane, int side);
  void release_some(Side& side);

  // ---- atomics (simulator_atomics.cc)
  void open_numbers(int side);
  void register_numbers(int side);
  void register_results(int side);
  void close_numbers(int side);
  void close_results(int side);
  void post_atomic(Lane& lane, int side);
  RegionDescriptor aim(AtomicWork& work, int far, std::uint64_t& offset);
  void finished(AtomicWork& work);
  void check_effect(const AtomicWork& work);
  void fix_result(AtomicWork& work);
  void check_atomics();
  void check_atomics_end();

  void lock(Work& work);
  void unlock_written(Work& work, bool accept);
  void settle(Work& work, Block& block, bool accept);
  void unlock_read(Work& work);
  void finished(Work& work);
  void check_written(const Work& work, const char* when);
  void resolve(Lane& lane);
  void check_memory();
  void check_credits();
  void check_end();

  const std::uint64_t seed_;
  Rng rng_;
  std::size_t cell_;
  std::size_t memory_bytes_;
  sim::SimFabric fabric_;
  std::array<Process, 2> processes_;
  std::vector<std::unique_ptr<DeviceRegion>> retired_;  // operations may still name them
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::unique_ptr<Work>> works_;
  std::vector<std::unique_ptr<AtomicWork>> atomics_;
  std::map<std::uint32_t, Work*> imms_;
  std::uint32_t next_imm_ = 1;
  std::string failure_;
};

}  // namespace slime::transport::testing
