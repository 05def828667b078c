#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/fork.h"
#include "base/function.h"
#include "base/future.h"
#include "base/mutex.h"
#include "base/result.h"
#include "rpc/delivery.h"
#include "rpc/limits.h"
#include "rpc/payload.h"

namespace slime::rpc::detail {

// Whether a stream has messages of this type.
template <class T>
inline constexpr bool kStreams = !std::is_same_v<T, None>;

}  // namespace slime::rpc::detail

namespace slime::rpc {

class AnswerBox;

struct StreamOptions {
  // Most messages that the user has not read; at least 1.
  std::size_t window = limits::kStreamWindow;
  // Most bytes of unread large messages, and of large messages that the peer has not read. One
  // larger message is always allowed.
  std::uint64_t window_bytes = limits::kStreamBytes;
  // Ends a stream when this side has waited this long for the other. The caller's side waits
  // between two messages, the first one and the result included. The handler's side waits while the
  // handler reads or writes, and only if the caller gave no deadline. Nanos::max(): never.
  Nanos idle_timeout = limits::kStreamIdle;
};

// One end of a stream, shared by its user and the channel. Messages are bytes; rpc/stream.h adds
// types. When the stream ends, all reads and writes complete with the reason.
class StreamEnd final : public DeliverySource, public std::enable_shared_from_this<StreamEnd> {
 public:
  // nullopt: the other side writes no more messages
  using Message = std::optional<Delivery>;

  // `driver` makes progress while a user waits. `reads`: the user reads, so the peer gets credits.
  StreamEnd(std::shared_ptr<Driver> driver, bool reads) : driver_(std::move(driver)), reading_(reads) {}

  // ---- the user; any thread
  // Writes a message. The future is done when the message is accepted, which takes a credit of the
  // peer, so a writer that waits is at most a window ahead of the reader. Messages are accepted in
  // order.
  Future<None> write(ByteVector message);
  // Reads the next message, in order; buffered messages also after the peer has ended the stream.
  // Dropping or cancelling the future puts an untaken message back to the front, for the next read.
  // A cancelled read completes on the thread that cancels.
  Future<Message> read();
  // Puts a message back in order of arrival. Drops it after discard() or stop_reading().
  void give_back(std::uint64_t, std::uint64_t number, Payload&& message) noexcept override;
  // Ends the messages of this side. Accepted and waiting messages are still sent.
  void close_writing();
  // Ends a stream that has no channel.
  void stop(const Status& reason);
  // Gives credits to the peer from now on.
  void start_reading();
  // Drops messages from now on, so that the peer does not wait for a reader.
  void discard();

  // ---- the channel; the loop. Functions add completions to `done`, to be run without the lock.
  using Done = std::vector<Task>;
  struct Terms {
    StreamOptions options;
    std::uint64_t max_message_bytes = 0;  // of the peer
  };
  [[nodiscard]] std::uint64_t key() const { return key_; }  // after bind()
  void bind(std::shared_ptr<AnswerBox> box, std::uint64_t key, const Terms& terms);
  // What the channel has to send for the user.
  struct Wants {
    std::uint64_t credit = 0;  // total of credits to tell the peer; 0: unchanged
    bool end = false;          // the user has called close_writing()
  };
  // Returns what to send. The next change calls AnswerBox::attend() again. `all`: also gives fewer
  // credits than half a window.
  Wants attend(bool all = false);
  // State that the idle timeout checks.
  struct Pause {
    bool unread = false;   // messages wait for the user
    bool waiting = false;  // the user waits for the other side
    bool owes = false;     // credits are held back, being less than half a window
  };
  [[nodiscard]] Pause pause() const;
  // Takes the next accepted message. Its bytes count as held until freed().
  std::optional<ByteVector> next();
  [[nodiscard]] bool all_sent() const;  // no accepted or waiting messages are left
  void sent();
  void freed(std::uint64_t bytes, Done& done);
  // Takes the total of credits from the peer. Returns false if it is not higher than before.
  bool credit(std::uint64_t messages, Done& done);
  void deliver(Payload&& message, Done& done);
  // Gives returned messages to waiting reads.
  void match_reads(Done& done);
  [[nodiscard]] bool discarding() const;
  // The peer writes no more messages.
  void peer_closed(Done& done);
  // Returns the bytes that the user has not read. `notify`: the next read calls
  // AnswerBox::attend().
  std::uint64_t unread_bytes(bool notify);
  // Accepts no more messages and drops accepted ones that next() has not returned.
  void stop_writing(const Status& reason, Done& done);
  // Ends all reads and drops unread messages. The first reason counts.
  void stop_reading(const Status& reason, Done& done);
  // Ends reads with `reason` after the delivered messages.
  void finish_reading(const Status& reason, Done& done);

 private:
  struct Write {
    ByteVector message;
    Promise<None> promise;
  };
  // A message that no read has taken.
  struct Ready {
    Payload message;
    std::uint64_t number = 0;  // in order of arrival
    bool counted = false;      // an earlier read has counted it in taken_
  };
  struct Read {
    Promise<Message> promise;
    std::uint64_t number = 0;
  };
  void cancel_read(std::uint64_t number);
  Delivery take_first() SLIME_REQUIRES(mutex_);
  void match(Done& done) SLIME_REQUIRES(mutex_);
  [[nodiscard]] bool accepts(std::size_t bytes) const SLIME_REQUIRES(mutex_);
  [[nodiscard]] Status check_size(std::size_t bytes) const SLIME_REQUIRES(mutex_);
  void accept(ByteVector&& message) SLIME_REQUIRES(mutex_);
  void accept_waiting(Done& done) SLIME_REQUIRES(mutex_);
  bool credit_due() const SLIME_REQUIRES(mutex_);
  bool owes() const SLIME_REQUIRES(mutex_);  // whether any credit is held back
  // Returns whether the channel has to be woken: call wake() then, without the lock.
  bool want() SLIME_REQUIRES(mutex_);
  void wake();

  const std::shared_ptr<Driver> driver_;
  mutable Mutex mutex_;
  // Set once, by bind(), and read without the lock after that.
  std::shared_ptr<AnswerBox> box_;  // null: no channel yet
  std::uint64_t key_ = 0;
  Terms terms_ SLIME_GUARDED_BY(mutex_);
  // the channel was woken and has not called attend() yet
  bool wanted_ SLIME_GUARDED_BY(mutex_) = false;

  std::deque<ByteVector> accepted_ SLIME_GUARDED_BY(mutex_);
  std::deque<Write> waiting_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t accepted_count_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t sent_count_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t credit_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t held_bytes_ SLIME_GUARDED_BY(mutex_) = 0;
  bool write_closed_ SLIME_GUARDED_BY(mutex_) = false;
  std::optional<Status> write_ended_ SLIME_GUARDED_BY(mutex_);

  std::deque<Ready> ready_ SLIME_GUARDED_BY(mutex_);
  std::deque<Read> reads_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t arrived_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t reads_begun_ SLIME_GUARDED_BY(mutex_) = 0;
  std::uint64_t ready_bytes_ SLIME_GUARDED_BY(mutex_) = 0;
  // messages dropped, or given to a read at least once
  std::uint64_t taken_ SLIME_GUARDED_BY(mutex_) = 0;
  // messages that the peer was told it may send
  std::uint64_t granted_ SLIME_GUARDED_BY(mutex_) = 0;
  bool reading_ SLIME_GUARDED_BY(mutex_);
  bool notify_ SLIME_GUARDED_BY(mutex_) = false;  // see unread_bytes()
  bool discarding_ SLIME_GUARDED_BY(mutex_) = false;
  bool peer_closed_ SLIME_GUARDED_BY(mutex_) = false;
  bool read_stopped_ SLIME_GUARDED_BY(mutex_) = false;         // unread messages are dropped
  std::optional<Status> read_ended_ SLIME_GUARDED_BY(mutex_);  // counts when ready_ is empty
  const std::uint64_t process_ = fork_generation();
};

}  // namespace slime::rpc
