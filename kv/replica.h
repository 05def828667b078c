#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "agent/peer_agent.h"
#include "base/clock.h"
#include "base/result.h"
#include "kv/broadcast.h"
#include "kv/move.h"

namespace slime::kv {

struct ReplicaOptions {
  // The name of the broadcast, the same at owner and readers: 1 to 64 letters, digits, '_' and '-'.
  std::string name = "weights";
};

// A reader's side of a broadcast (kv/broadcast.h): memory of this process that gets a copy of the
// owner's, from the owner or from another reader, and from which other readers read in turn.
// Movable. Thread: any.
class Replica {
 public:
  // Takes memory of the caller, with the owner's names and sizes, in the owner's order. The caller
  // keeps it alive until the replica is closed. `agent` must outlive the replica, and be reachable
  // for the other readers at its address. An agent has one replica of a name, ever. Errors:
  // kInvalidArgument; kAlreadyExists.
  static Result<Replica> over(PeerAgent& agent, std::span<const NamedMemory> parts,
                              ReplicaOptions options = {});
  Replica() = default;
  ~Replica();  // close(), within 2 s
  Replica(Replica&&) noexcept = default;
  Replica& operator=(Replica&& other) noexcept;

  // Starts to copy the newest version that `owner` offers. The Move counts chunks as its layers. It
  // succeeds only if all bytes of that version are here; until then the contents of the memory are
  // undefined. While it runs, and after it has succeeded, other readers read from this memory, so
  // it must not change: see retire(). `timeout` zero: 30 s. One fetch at a time.
  //
  // A parent that dies or freezes is left for another one, and only the missing chunks are read
  // from that. Errors: kInvalidArgument if names or sizes differ; kAborted if the owner has a new
  // version, or took the place of this reader back after a long silence; kUnavailable if the owner
  // is dead; kDeadlineExceeded if it is frozen; kNotFound without such a broadcast.
  Move fetch(const Peer& owner, Nanos timeout = {});

  // Returns the version of the last fetch if that has succeeded; else 0.
  [[nodiscard]] std::uint64_t version() const;
  // Returns the number of readers that read from this memory now.
  [[nodiscard]] std::size_t children() const;

  // Passes on nothing any more, until the next fetch: when this has returned, the memory may
  // change. Waits up to `timeout` for the readers that are reading from here, which go on
  // elsewhere, then cuts them off. Errors: kInvalidArgument during a fetch; as
  // MemoryRegion::close().
  Status retire(Nanos timeout = slime::limits::kCloseBound);

  // Ends a fetch that runs with kCancelled, then retires and closes the regions: after it no byte
  // of a peer lands in the memory, and no peer reads it. Idempotent.
  Status close(Nanos timeout = slime::limits::kCloseBound);

  struct State;

 private:
  explicit Replica(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace slime::kv
