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

// A received message: borrowed bytes in a receive slot, or of a long message in a buffer that
// stands for several slots. Destroying or releasing the message gives the slots, and with them as
// many credits, back to the peer. May outlive the endpoint, but not the port. Thread: any.
class Message {
 public:
  class Slot {
   public:
    virtual void release() noexcept = 0;  // any thread
    virtual bool keep() noexcept { return false; }

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
  // Gives the credits of a long message back to the peer. Its bytes stay where they are until
  // release(), as memory of the caller, which has to bound it. Returns false, and does nothing, for
  // other messages. Thread: the loop.
  bool keep() { return slot_ != nullptr && slot_->keep(); }
  void release() {
    bytes_ = {};
    if (slot_ != nullptr) std::exchange(slot_, nullptr)->release();
  }

 private:
  Bytes bytes_;
  Slot* slot_ = nullptr;
};

// Gets the messages and events of one endpoint; an endpoint has one receiver. Called on the loop.
// The receiver may post operations and close the endpoint in a call, but may not destroy the
// endpoint.
class Receiver {
 public:
  virtual void on_message(Message message) noexcept = 0;
  // Called once for each write_with_imm of the peer, after all bytes of its batch are visible. When
  // this function returns, the credit of the notification goes back to the peer, unless the
  // function called Endpoint::hold_credit().
  virtual void on_imm(std::uint32_t imm) noexcept = 0;
  // Called some time after a post was refused with kResourceExhausted: the endpoint may take the
  // operation now.
  virtual void on_ready() noexcept = 0;
  // Called once, as the last call, after every operation has completed. `reason` is OK if this side
  // closed the endpoint, else the reason of the break: kUnavailable when the peer closed or died,
  // kDeadlineExceeded when an operation was reset, kCorrupt when the peer broke the protocol. After
  // this call no data of the connection lands in memory of this side. If the peer was stopped while
  // copying into that memory, the call waits until the peer continues or dies, or the region is
  // closed.
  virtual void on_closed(const Status& reason) noexcept = 0;

 protected:
  ~Receiver() = default;
};

struct SendOptions {
  // Delivers the message after all one-sided operations that were posted before it have taken
  // effect. Otherwise a message may overtake bulk data. Messages keep their order among themselves
  // either way.
  bool after_writes = false;
  // The caller needs the completion only after the peer has answered, so a sleeping loop does not
  // wake to report the completion.
  bool late_completion = false;
};

// The operands of a remote atomic: 8 bytes of a region of the peer, and 8 local bytes for their
// old value.
struct AtomicTarget {
  const DeviceRegion* local = nullptr;
  std::uint64_t local_offset = 0;  // of 8 bytes; any alignment
  const RemoteRegion* remote = nullptr;
  // offset of the peer's 8 bytes, whose address at the peer must be a multiple of 8
  std::uint64_t remote_offset = 0;
};

// One reliable connection to a peer. Fails as a whole: the first error sticks, and completes all
// operations in flight. Thread: the loop on which it was made. Lifetime: destroy it on the loop,
// outside its own callbacks. The destructor resets an endpoint that is not closed: it completes the
// operations in flight and does not call the receiver again. Operations and the receiver must stay
// valid until on_closed was called or the endpoint is destroyed.
class Endpoint {
 public:
  Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  virtual ~Endpoint() = default;

  // Call once, before any other function. Messages that arrived earlier are kept for the receiver.
  virtual void set_receiver(Receiver& receiver) = 0;

  // Each function from send() to compare_swap(), except read_now() and write_now(), posts one
  // operation, or returns an error and posts nothing: kInvalidArgument (a bad size, an empty batch,
  // overflow), kPermissionDenied (rights), kAborted (a region of another connection),
  // kResourceExhausted (no credit, too many operations: try again after on_ready), or the sticky
  // error.

  // Sends one message of up to max_message_bytes() bytes, gathered from `parts`, or a long message
  // that takes_long() allows now. The bytes of `parts` are copied or sent before this returns. Uses
  // one credit; a long message uses one for each slot that it takes.
  virtual Status send(std::span<const Bytes> parts, Operation& operation, SendOptions options = {}) = 0;
  // read() and write() are one-sided. Until completion, the span and every region that it names
  // must stay valid, and the source bytes unchanged. Blocks of one batch take effect in any order.
  // Blocks of length 0 are allowed and do nothing.
  virtual Status read(std::span<const CopyBlock> copies, Operation& operation) = 0;
  virtual Status write(std::span<const CopyBlock> copies, Operation& operation) = 0;
  // Writes, then calls on_imm(imm) at the peer once, after all bytes. An empty batch is a bare
  // notification. Uses one credit. Is refused if only the last limits::kMessageCredits credits are
  // free: those are kept for messages, which so still reach a peer that holds the credits of
  // notifications.
  virtual Status write_with_imm(std::span<const CopyBlock> copies, std::uint32_t imm,
                                Operation& operation) = 0;

  // Reads or writes a batch within the call, without posting an operation. Does so only if no
  // operation is in front of the batch, its bytes are few and on this host, and neither the program
  // of the peer nor a device has to take part. Returns false if nothing or only a part was copied:
  // the caller then posts the batch.
  virtual bool read_now(std::span<const CopyBlock> /*copies*/) { return false; }
  virtual bool write_now(std::span<const CopyBlock> /*copies*/) { return false; }

  // fetch_add() and compare_swap() change an unsigned number of 8 bytes in host memory of the peer
  // (the number's owner), in the owner's byte order. fetch_add() adds modulo 2^64. compare_swap()
  // stores `desired` if the number equals `expected`; it has succeeded if the old value equals
  // `expected`. When the operation completes with OK, the old value is in the 8 bytes of the local
  // region; no other local byte changes. `target` is copied; the regions that it names must stay
  // valid until completion.
  //
  // Needs Rights::kReadWrite. The number's address at its owner, which is the base of the owner's
  // region plus remote_offset, must be a multiple of 8. Otherwise the error is kInvalidArgument: it
  // is returned here if the provider knows the address, else it is the outcome of the operation.
  // The error is kUnimplemented if the peer's device has no atomics.
  //
  // Atomic among the atomics of all peers that reach the memory through one device of its owner.
  // Not atomic against the owner's CPU, nor against reads and writes: an owner must change the
  // number with atomics over a connection of its own, or while no peer uses it. Takes effect at
  // most once: after an error it may or may not have taken effect, and is never repeated. Has no
  // order among other operations in flight, like every one-sided operation. If its deadline passes
  // while it is on the wire, the endpoint is reset.
  virtual Status fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) = 0;
  virtual Status compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                              Operation& operation) = 0;

  // Checks a descriptor that the peer sent and binds it to this endpoint.
  virtual Result<RemoteRegion> import_region(const RegionDescriptor& descriptor) = 0;

  // Closes the endpoint: refuses new operations, carries out the accepted ones for at most `bound`,
  // tells the peer (GOODBYE), completes the remaining operations with kCancelled, and calls
  // on_closed. Idempotent, never blocks, allowed in any callback.
  virtual void close(Nanos bound = limits::kCloseBound) = 0;
  // Breaks the endpoint now with `reason` (not OK): all operations in flight complete with `reason`
  // or with kUnavailable.
  virtual void reset(Status reason) = 0;

  // Keeps the credit of the notification that on_imm() is handling, until release_credits(). Call
  // inside on_imm(), if the receiver's queue is full: the peer stops sending notifications when it
  // has no credits, and none is lost.
  virtual void hold_credit() = 0;
  // Gives `count` held credits back to the peer. Does nothing after the endpoint has ended.
  virtual void release_credits(std::uint32_t count) = 0;

  // Tells the endpoint whether the caller waits for a message of the peer. The endpoint notices a
  // peer that has died silently while operations are in flight or `awaiting` is true; otherwise
  // only at the next operation.
  virtual void set_awaiting(bool awaiting) = 0;

  [[nodiscard]] virtual bool closed() const = 0;   // on_closed was called
  [[nodiscard]] virtual Status error() const = 0;  // the sticky first error; OK while healthy
  // Returns whether error() is an error.
  [[nodiscard]] virtual bool failed() const { return !error().ok(); }
  // Returns true if the endpoint broke because one of the sides found that the fabric carries no
  // data between the two. Another provider may then work.
  [[nodiscard]] virtual bool unreached() const { return false; }
  [[nodiscard]] virtual std::uint32_t max_message_bytes() const = 0;
  // Returns the most bytes of a long message, which is larger than max_message_bytes(), in both
  // directions; 0: the connection carries none. The caller sends one only to a peer that has told
  // the layer above that it takes them.
  [[nodiscard]] virtual std::uint32_t long_message_bytes() const { return 0; }
  // Returns the bytes of a receive slot of this side: a larger message of the peer is a long one.
  [[nodiscard]] virtual std::uint32_t slot_bytes() const { return max_message_bytes(); }
  // Returns true if send() takes a message of so many bytes now. Returns false for a long message
  // that would leave less than half of the credits to others, or wait behind too many bytes: then
  // the caller lets the peer read the bytes instead.
  [[nodiscard]] virtual bool takes_long(std::uint64_t /*bytes*/) { return false; }
  [[nodiscard]] virtual std::uint64_t id() const = 0;  // unique in this process, never 0, never reused
  // Returns the number of operations that were posted and have not completed.
  [[nodiscard]] virtual std::size_t in_flight() const = 0;
  [[nodiscard]] virtual std::uint64_t credits() const = 0;  // messages that send() would take now
  // Returns when the connection last moved bytes of the one-sided operations of this side: see
  // Operation::stall.
  [[nodiscard]] virtual TimePoint last_progress() const = 0;
  [[nodiscard]] virtual EndpointCounters counters() const = 0;
  [[nodiscard]] virtual std::string describe() const = 0;  // for people: provider, addresses
};

}  // namespace slime::transport
