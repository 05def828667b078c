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

// True if T is a type of messages; None stands for a direction without messages.
template <class T>
inline constexpr bool kStreams = !std::is_same_v<T, None>;

}  // namespace slime::rpc::detail

namespace slime::rpc {

class AnswerBox;

struct StreamOptions {
  // Most received messages that the user has not read; at least 1.
  std::size_t window = limits::kStreamWindow;
  // Most bytes of received large messages that the user has not read, and of sent large messages
  // that the peer has not read. One larger message alone is always allowed.
  std::uint64_t window_bytes = limits::kStreamBytes;
  // Time after which this side ends the stream because it has waited for the other side. The
  // caller's side waits between two messages, including the first message and the result. The
  // handler's side waits while the handler reads or writes, and only if the caller gave no
  // deadline. Nanos::max(): no timeout.
  Nanos idle_timeout = limits::kStreamIdle;
};

// One end of a stream, which its user and the channel share. Messages are bytes here; rpc/stream.h
// adds types. When the stream ends, all waiting reads and writes complete with the reason.
class StreamEnd final : public DeliverySource, public std::enable_shared_from_this<StreamEnd> {
 public:
  // A received message; nullopt: the other side writes no more messages.
  using Message = std::optional<Delivery>;

  // `driver` makes progress while a user waits. `reads`: the user will read, so the peer gets
  // credits from the beginning.
  StreamEnd(std::shared_ptr<Driver> driver, bool reads) : driver_(std::move(driver)), reading_(reads) {}

  // ---- the user; any thread
  // Writes a message. The future is done when the message is accepted, which takes a credit of the
  // peer. So a writer that waits for each future is at most a window ahead of the reader. Messages
  // are accepted in order.
  Future<None> write(ByteVector message);
  // Reads the next message, in order. Messages that have arrived can be read after the peer has
  // ended the stream, too. If the future is dropped or cancelled before its message is taken, the
  // message goes back to the front, for the next read. A cancelled read completes on the thread
  // that cancels it.
  Future<Message> read();
  // Puts a message back at its place in the order of arrival. After discard() or stop_reading(),
  // drops the message instead.
  void give_back(std::uint64_t, std::uint64_t number, Payload&& message) noexcept override;
  // Ends the messages of this side. Messages that were written before are still sent.
  void close_writing();
  // Ends a stream that has no channel.
  void stop(const Status& reason);
  // Makes the channel give credits to the peer from now on.
  void start_reading();
  // Drops unread and later messages, so that the peer does not wait for a reader.
  void discard();

  // ---- the channel; the loop. Functions add completions to `done`, to be run without the lock.
  using Done = std::vector<Task>;
  struct Terms {
    StreamOptions options;
    std::uint64_t max_message_bytes = 0;  // of the peer
  };
  [[nodiscard]] std::uint64_t key() const { return key_; }  // after bind()
  void bind(std::shared_ptr<AnswerBox> box, std::uint64_t key, const Terms& terms);
  // The credits and the end that the channel has to send for the user.
  struct Wants {
    std::uint64_t credit = 0;  // total number of credits to tell the peer; 0: nothing to tell
    bool end = false;          // the user has called close_writing()
  };
  // Returns what the channel has to send. The next change calls AnswerBox::attend() again. `all`:
  // also returns credits if they are less than half a window.
  Wants attend(bool all = false);
  // State that the idle timeout checks.
  struct Pause {
    bool unread = false;   // messages wait for the user
    bool waiting = false;  // the user waits for the other side
    bool owes = false;     // credits are held back, because they are less than half a window
  };
  [[nodiscard]] Pause pause() const;
  // Removes and returns the next accepted message. Its bytes count as held until freed().
  std::optional<ByteVector> next();
  [[nodiscard]] bool all_sent() const;  // no accepted or waiting messages are left
  void sent();
  void freed(std::uint64_t bytes, Done& done);
  // Stores the total number of credits that the peer has given. Returns false if the number is not
  // higher than before.
  bool credit(std::uint64_t messages, Done& done);
  void deliver(Payload&& message, Done& done);
  // Gives returned messages to waiting reads.
  void match_reads(Done& done);
  [[nodiscard]] bool discarding() const;
  // The peer writes no more messages.
  void peer_closed(Done& done);
  // Returns the bytes that have arrived and that the user has not read. `notify`: the user's next
  // read must call AnswerBox::attend().
  std::uint64_t unread_bytes(bool notify);
  // Accepts no more messages, and drops the accepted messages that next() has not returned.
  void stop_writing(const Status& reason, Done& done);
  // Ends all reads with `reason`, and drops unread messages. If called again, the first reason is
  // kept.
  void stop_reading(const Status& reason, Done& done);
  // Lets reads get the delivered messages first; then ends reads with `reason`.
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
    // counted in taken_ already, by an earlier read that gave the message back
    bool counted = false;
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
  // Returns whether the channel has to be woken. If true, call wake() without the lock.
  bool want() SLIME_REQUIRES(mutex_);
  void wake();

  const std::shared_ptr<Driver> driver_;
  mutable Mutex mutex_;
  // bind() sets box_ and key_ once; after that they are read without the lock.
  std::shared_ptr<AnswerBox> box_;  // null: no channel yet
  std::uint64_t key_ = 0;
  Terms terms_ SLIME_GUARDED_BY(mutex_);
  // true if the channel was woken and has not called attend() since
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
  // number of messages that were dropped, or given to a read at least once
  std::uint64_t taken_ SLIME_GUARDED_BY(mutex_) = 0;
  // total number of messages that the peer was told it may send
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
