#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace slime::kv {

// Memory under a name, which owner and readers of a broadcast have in common.
struct NamedMemory {
  std::string name;
  MutableBytes memory;
};

struct BroadcastOptions {
  // Names the broadcast among those of its agent: 1 to 64 letters, digits, '_' and '-'.
  std::string name = "weights";
  // Most readers that read from the owner, and from each reader, at a time: 1 to 64.
  std::uint32_t fan_out = 2;
  // A reader passes on each chunk as soon as it has it.
  std::uint64_t chunk_bytes = 4 << 20;
  // A reader of which the owner hears nothing for so long loses its place; a parent that does not
  // answer for so long is left by its children. Longer than any pause of a healthy process.
  Nanos patience = std::chrono::seconds(3);
};

// The state of a broadcast: Broadcast::info(). Of the newest version, but for the sums.
struct BroadcastInfo {
  std::uint64_t version = 0;      // 0: it is being changed
  std::size_t readers = 0;        // that have a place
  std::size_t complete = 0;       // of them, that have all bytes
  std::uint32_t from_owner = 0;   // of them, that have the owner as their parent
  std::uint64_t total_bytes = 0;  // of one copy
  std::uint64_t bytes_out = 0;    // that readers have read from the owner, as they say, in all
  std::uint64_t moves = 0;        // readers that asked for another parent, in all
};

// The owner's side of a broadcast: memory of this process that many readers (kv/replica.h) copy,
// most of them from each other. Movable. Thread: any.
class Broadcast {
 public:
  // Offers memory of the caller, as version 1. The caller keeps the memory alive until the
  // broadcast is closed, and changes it only between begin_update() and publish(). `agent` must
  // outlive the broadcast. An agent offers one broadcast of a name, ever. Errors: kInvalidArgument
  // for an option, a name, or an empty region; kAlreadyExists.
  static Result<Broadcast> over(PeerAgent& agent, std::span<const NamedMemory> parts,
                                BroadcastOptions options = {});
  Broadcast() = default;
  ~Broadcast();  // close(), within 2 s
  Broadcast(Broadcast&&) noexcept = default;
  Broadcast& operator=(Broadcast&& other) noexcept;

  // Ends the version that is offered: when this has returned, the memory may change. Readers that
  // have not all bytes of that version end with kAborted, new ones wait for the next version.
  Status begin_update();
  // Offers the memory as the next version, and returns its number. Readers that have an older
  // version keep it.
  Result<std::uint64_t> publish();

  [[nodiscard]] BroadcastInfo info() const;
  [[nodiscard]] const std::string& name() const;

  // Ends the broadcast, and closes the regions; after it no peer touches the memory. Idempotent.
  // Errors: as MemoryRegion::close().
  Status close(Nanos timeout = slime::limits::kCloseBound);

  struct State;

 private:
  explicit Broadcast(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

namespace limits {

inline constexpr std::uint32_t kFanOut = 64;

}  // namespace limits
}  // namespace slime::kv
