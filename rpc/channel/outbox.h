#pragma once

// Private to rpc: the outgoing frames of a channel.

#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/turn.h"
#include "rpc/codec/frame.h"
#include "transport/operation.h"

namespace slime::rpc {

// An outgoing frame.
struct OutFrame {
  wire::FrameHeader header;
  ByteVector text;
  ByteVector body;
  Handle pending;  // entry in CallTable; generation 0: an answer
  // for a request: its deadline, from which header.value is computed when the frame leaves
  TimePoint deadline = kNever;
  bool one_way = false;        // for a request: the call ends as soon as the frame has left
  bool has_signature = false;  // for a request: the text ends with the hash of a signature
  [[nodiscard]] bool answer() const { return pending.generation == 0; }
  [[nodiscard]] std::size_t size() const { return sizeof header + text.size() + body.size(); }
};
using OutFrames = std::list<OutFrame>;

// Sends frames as long as the endpoint accepts them, and queues later frames in order. Bounds the
// bytes of queued requests and the number of queued answers. Thread: the loop.
class Outbox {
 public:
  class Listener {
   public:
    // A request has left the queue.
    virtual void on_queued_frame_left(const OutFrame& frame) = 0;

   protected:
    ~Listener() = default;
  };
  enum class Sent : std::uint8_t { kLeft, kQueued, kRefused };

  Outbox(Connection& connection, TurnHost& turns, Listener& listener)
      : connection_(connection), turns_(turns), listener_(listener) {}

  // Sends the frame, or appends it to the queue. kRefused: the channel is closed, the queue is full
  // (requests only), or the peer takes no answers.
  Sent submit(OutFrame& frame);
  // Sends the frame at once, ahead of all queued frames. Returns false, with the frame unchanged,
  // if the endpoint refuses the frame: credits are missing, or the endpoint is broken and
  // on_closed() follows.
  bool try_send(OutFrame& frame);
  // Sends a proof, or queues it ahead of all frames except other proofs. Behind the other frames a
  // proof might arrive later than the peer waits for it.
  void submit_proof(OutFrame&& frame);
  // Sends queued frames as long as the endpoint accepts them.
  void flush();
  // Sends an answer of type `type`, which may be any type except kReply.
  void answer(wire::FrameType type, std::uint64_t id, const Status& status = {}, ByteVector body = {});
  // Puts the code and the text of an error into an answer. Cuts a text that does not fit.
  void put_status(OutFrame& frame, const Status& status) const;

  // ---- the queue
  using Place = OutFrames::iterator;
  [[nodiscard]] Place last() { return std::prev(queue_.end()); }  // after submit() returned kQueued
  void unqueue(Place frame);
  // Calls fn(OutFrame&) for each queued frame. `fn` may make a frame smaller.
  template <class F>
  void edit(F&& fn) {
    for (OutFrame& frame : queue_) {
      const std::size_t before = frame.size();
      fn(frame);
      if (!frame.answer()) queued_bytes_ -= before - frame.size();
    }
  }
  // Drops all frames: the channel is closed.
  void clear();
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  [[nodiscard]] std::size_t size() const { return queue_.size(); }
  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }  // of requests
  [[nodiscard]] std::size_t queued_answers() const { return queued_answers_; }
  // allow_answers() raises the bound of queued answers, disallow_answers() lowers it. Each open
  // stream needs room for some more answers.
  void allow_answers(std::size_t more) { more_answers_ += more; }
  void disallow_answers(std::size_t fewer) { more_answers_ -= fewer; }

 private:
  // The send of one frame.
  struct FrameOperation final : transport::Operation {
    explicit FrameOperation(Outbox& o) : outbox(o) {}
    void complete(Status status) noexcept override;
    Outbox& outbox;
  };
  FrameOperation* take_operation();
  void on_send_failed(Status status);
  bool admit_answer();

  Connection& connection_;
  TurnHost& turns_;
  Listener& listener_;
  OutFrames queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t queued_answers_ = 0;
  std::size_t more_answers_ = 0;
  std::vector<std::unique_ptr<FrameOperation>> operations_;
  std::vector<FrameOperation*> free_operations_;
};

}  // namespace slime::rpc
