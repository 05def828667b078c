#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "transport/counters.h"
#include "transport/memory.h"
#include "transport/operation.h"

namespace slime::transport {

// A received message: borrowed bytes in a receive slot. Destroying or releasing it gives the slot, and with
// it a credit, back; holding it holds one credit of the peer. May outlive the endpoint, not the port. Thread:
// any.
class Message {
 public:
  class Slot {
   public:
    virtual void release() noexcept = 0;  // any thread

   protected:
    ~Slot() = default;
  };
  Message() = default;
  Message(Bytes bytes, Slot* slot) : bytes_(bytes), slot_(slot) {}
  Message(Message&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})), slot_(std::exchange(other.slot_, nullptr)) {}
  Message& operator=(Message&& other) noexcept {
    if (this != &other) {
      release();
      bytes_ = std::exchange(other.bytes_, {});
      slot_ = std::exchange(other.slot_, nullptr);
    }
    return *this;
  }
  ~Message() { release(); }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] Slot* slot() const { return slot_; }
  void release() {
    bytes_ = {};
    if (slot_ != nullptr) std::exchange(slot_, nullptr)->release();
  }

 private:
  Bytes bytes_;
  Slot* slot_ = nullptr;
};

// The one user of an endpoint's incoming side. Called on the loop. May post operations and close the
// endpoint, may not destroy it.
class Receiver {
 public:
  virtual void on_message(Message message) noexcept = 0;
  // Once for each write_with_imm of the peer, after all bytes of its batch are visible. Gives the
  // notification's credit back to the peer on return, unless Endpoint::hold_credit() was called.
  virtual void on_imm(std::uint32_t imm) noexcept = 0;
  // After a refusal with kResourceExhausted: what was refused may be taken now.
  virtual void on_ready() noexcept = 0;
  // The last call, once, after every operation has completed. OK: we closed it. Else why it broke:
  // kUnavailable when the peer closed or died, kDeadlineExceeded when an operation was reset, kCorrupt when
  // the peer broke the protocol. From here on nothing of this connection lands in our memory: a peer that was
  // stopped inside of a copy of its own is waited for, until it goes on or dies, or the region is closed.
  virtual void on_closed(const Status& reason) noexcept = 0;

 protected:
  ~Receiver() = default;
};

struct SendOptions {
  // Deliver after all one-sided operations posted before it have taken effect. An unmarked message may
  // overtake bulk data. Messages among themselves keep their order either way.
  bool after_writes = false;
  // Its completion is wanted for nothing before the peer answers; so a loop that sleeps need not run for it.
  bool late_completion = false;
};

// What a remote atomic works on: 8 bytes of the peer's region, and where the value that they had lands.
struct AtomicTarget {
  const MemoryRegion* local = nullptr;
  std::uint64_t local_offset = 0;  // of 8 bytes; any alignment
  const RemoteRegion* remote = nullptr;
  std::uint64_t remote_offset = 0;  // of 8 bytes whose address at their owner is a multiple of 8
};

// One reliable connected pair. Fails as a whole: the first error sticks, and completes everything that is in
// flight. Thread: the loop it was made on. Lifetime: destroy it on the loop, outside its own callbacks; its
// destructor resets what is not closed: it completes the operations in flight and calls the receiver no more.
// Operations and the receiver outlive it or its on_closed.
class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default;

  // Set once, before anything else; messages that came before wait for it.
  virtual void set_receiver(Receiver& receiver) = 0;

  // Each posts one operation, or returns an error and has posted nothing:
  // kInvalidArgument (bad size, an empty batch, overflow), kPermissionDenied (rights), kAborted (a region of
  // another connection), kResourceExhausted (no credit, too many operations: try again after on_ready), or
  // the sticky error.

  // Sends up to max_message_bytes() bytes, gathered from `parts`, which are copied or sent before this
  // returns. Costs a credit.
  virtual Status send(std::span<const Bytes> parts, Operation& operation, SendOptions options = {}) = 0;
  // One-sided. The span, and every region it names, stay valid and the source bytes unchanged until
  // completion. Blocks of one batch take effect in any order. Zero-length blocks are allowed and do nothing.
  virtual Status read(std::span<const Copy> copies, Operation& operation) = 0;
  virtual Status write(std::span<const Copy> copies, Operation& operation) = 0;
  // Writes, then calls on_imm(imm) at the peer once, after all bytes. An empty batch is a bare
  // notification. Costs a credit. Keeps the last limits::kMessageCredits for messages, which still reach
  // a peer that holds the credits of notifications.
  virtual Status write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Operation& operation) = 0;

  // Do a batch within the call, and post nothing, where nothing is in front of it and neither the peer's
  // program nor a device is needed: few bytes, of memory on this host. False: it was not done, or not wholly;
  // post it.
  virtual bool read_now(std::span<const Copy> /*copies*/) { return false; }
  virtual bool write_now(std::span<const Copy> /*copies*/) { return false; }

  // Remote atomics on an unsigned number of 8 bytes, in the byte order of its owner, in host memory.
  // fetch_add adds modulo 2^64; compare_swap stores `desired` if the number equals `expected`, and has
  // succeeded if the old value does. Once the operation has completed with OK, the old value is in the 8
  // bytes of the local region; another local byte is never touched. `target` is copied; the regions that it
  // names stay valid until completion.
  //
  // Needs kReadWrite. The number's address at its owner, the base of the region there plus remote_offset,
  // must be a multiple of 8: else kInvalidArgument, from this call where the provider knows the address, else
  // as the outcome. kUnimplemented where the peer's device has no atomics.
  //
  // Atomic among the atomics of all peers that reach the memory through the same device of its owner. Not
  // atomic against the owner's CPU, nor against reads and writes: an owner changes the number with atomics
  // over a connection of its own, or while no peer uses it. Takes effect at most once: after an error it has
  // or it has not, and is never repeated. Like every one-sided operation it has no order among others in
  // flight, and one that is past its deadline on the wire resets the endpoint.
  virtual Status fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) = 0;
  virtual Status compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                              Operation& operation) = 0;

  // Checks a descriptor that the peer sent and binds it to this endpoint.
  virtual Result<RemoteRegion> import_region(const RegionDescriptor& descriptor) = 0;

  // Closes: refuses new work, sends what was taken within `bound`, tells the peer (GOODBYE), completes what
  // is left with kCancelled by then, and calls on_closed. Idempotent, never blocks, legal from any callback.
  virtual void close(Nanos bound = limits::kCloseBound) = 0;
  // Breaks it now with `reason` (not OK): everything in flight completes with kUnavailable or the reason.
  virtual void reset(Status reason) = 0;

  // Keeps the credit of the current notification until release_credits(). Call inside on_imm(), if
  // the receiver's queue is full: the peer then stops sending notifications, and none is lost.
  virtual void hold_credit() = 0;
  // Gives `count` held credits back to the peer. Does nothing after the endpoint has ended.
  virtual void release_credits(std::uint32_t count) = 0;

  // Somebody waits for a message of the peer, or nobody any more. A peer that falls silent is noticed while
  // operations are in flight or a message is awaited, and no sooner than something is asked of it otherwise.
  virtual void set_awaiting(bool awaiting) = 0;

  [[nodiscard]] virtual bool closed() const = 0;   // on_closed was called
  [[nodiscard]] virtual Status error() const = 0;  // the sticky first error, OK while healthy
  // It broke because the fabric carried nothing between the two, as one of them found: another provider may.
  [[nodiscard]] virtual bool unreached() const { return false; }
  [[nodiscard]] virtual std::uint32_t max_message_bytes() const = 0;
  [[nodiscard]] virtual std::uint64_t id() const = 0;       // unique in this process, never 0, never reused
  [[nodiscard]] virtual std::size_t in_flight() const = 0;  // posted, not completed operations
  [[nodiscard]] virtual std::uint64_t credits() const = 0;  // messages that would be taken now
  // When the connection last moved bytes of this side's one-sided operations: see Operation::stall.
  [[nodiscard]] virtual TimePoint last_progress() const = 0;
  [[nodiscard]] virtual EndpointCounters counters() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;  // for people: provider, addresses
};

}  // namespace slime::transport
