#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/fork.h"
#include "base/function.h"
#include "base/future.h"
#include "base/result.h"
#include "rpc/delivery.h"
#include "rpc/limits.h"
#include "rpc/payload.h"

namespace slime::rpc::detail {

// Whether messages of that type go.
template <class T>
inline constexpr bool kStreams = !std::is_same_v<T, None>;

}  // namespace slime::rpc::detail

namespace slime::rpc {

class AnswerBox;

struct StreamOptions {
  std::size_t window = limits::kStreamWindow;  // messages that come before the first one is read, at least 1
  std::uint64_t window_bytes =
      limits::kStreamBytes;  // of large ones: read ahead here, kept there; one always
  // Ends a stream when this side has waited this long for the other. The caller's side waits
  // between two messages, the first one and the result included. The handler's side waits while the
  // handler reads or writes, and only if the caller gave no deadline. Nanos::max(): never.
  Nanos idle_timeout = limits::kStreamIdle;
};

// One end of a stream: what its user and the channel share. Messages are bytes here; rpc/stream.h has types.
// Once the stream is over, for whatever reason, everything completes with the reason.
class StreamEnd final : public DeliverySource, public std::enable_shared_from_this<StreamEnd> {
 public:
  // nullopt: the other side writes no more
  using Message = std::optional<Delivery>;

  // `driver` makes progress in who waits. `reads`: it takes messages, so the peer gets credits.
  StreamEnd(std::shared_ptr<Driver> driver, bool reads) : driver_(std::move(driver)), reading_(reads) {}

  // ---- the user; any thread
  // Done once the message is accepted, which takes a credit of the peer's: who waits for it is as fast as the
  // reader, and no more than the window lies between them. In order.
  Future<None> write(ByteVector message);
  // Reads the next message, in order; buffered messages also after the peer has ended the stream.
  // Dropping or cancelling the future puts an untaken message back to the front, for the next read.
  // A cancelled read completes on the thread that cancels.
  Future<Message> read();
  // Puts a message back in order of arrival. Drops it after discard() or stop_reading().
  void give_back(std::uint64_t, std::uint64_t number, Payload&& message) noexcept override;
  // Nothing follows what was written.
  void close_writing();
  // Ends a stream that has no channel yet.
  void stop(const Status& reason);
  // Takes messages from now on, if it did not.
  void start_reading();
  // What comes is dropped from now on: the peer need not wait for a reader.
  void discard();

  // ---- the channel; the loop. What completes is left in `done`, to be run outside of it.
  using Done = std::vector<Task>;
  struct Terms {
    StreamOptions options;
    std::uint64_t max_message_bytes = 0;  // that the peer takes
  };
  [[nodiscard]] std::uint64_t key() const { return key_; }  // once it is bound
  void bind(std::shared_ptr<AnswerBox> box, std::uint64_t key, const Terms& terms);
  // What the user wants of the channel; it has been told, and will be again.
  struct Wants {
    std::uint64_t credit = 0;  // to be given, in all; 0: nothing new
    bool end = false;          // nothing follows what was written
  };
  // `all`: returns even less than half a window of credits.
  Wants attend(bool all = false);
  // State that the idle timeout checks.
  struct Pause {
    bool unread = false;   // messages wait for the user
    bool waiting = false;  // the user waits for the other side
    bool owes = false;     // credits are held back, being less than half a window
  };
  [[nodiscard]] Pause pause() const;
  // The next accepted message. Its bytes count as held until freed().
  std::optional<ByteVector> next();
  [[nodiscard]] bool all_sent() const;  // neither accepted nor waiting ones are left
  void sent();
  void freed(std::uint64_t bytes, Done& done);
  // False: the number is not higher than the last one.
  bool credit(std::uint64_t messages, Done& done);
  void deliver(Payload&& message, Done& done);
  // Gives returned messages to waiting reads.
  void match_reads(Done& done);
  [[nodiscard]] bool discarding() const;
  // The peer writes no more.
  void peer_closed(Done& done);
  // Bytes that the user has not read; `hungry`: tell when they get fewer.
  std::uint64_t unread_bytes(bool hungry);
  // No message is accepted any more. Of what was, only the channel knows.
  void stop_writing(const Status& reason, Done& done);
  // Nothing is read any more; what was not, goes. The first reason counts.
  void stop_reading(const Status& reason, Done& done);
  // Reads end so when what has been delivered is read.
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
    bool counted = false;      // counted in taken_ already, by an earlier read
  };
  struct Read {
    Promise<Message> promise;
    std::uint64_t number = 0;
  };
  void cancel_read(std::uint64_t number);
  Delivery take_first();
  void match(Done& done);
  [[nodiscard]] bool accepts(std::size_t bytes) const;
  [[nodiscard]] Status check_size(std::size_t bytes) const;
  void accept(ByteVector&& message);
  void accept_waiting(Done& done);
  bool credit_due() const;
  bool owes() const;  // whether any credit is held back
  // Both with the lock held; the one who called wakes the channel when it is true, without it.
  bool want();
  void wake();

  const std::shared_ptr<Driver> driver_;
  mutable std::mutex mutex_;
  std::shared_ptr<AnswerBox> box_;  // null: no channel yet
  std::uint64_t key_ = 0;
  Terms terms_;
  bool wanted_ = false;  // the channel was told and has not looked

  std::deque<ByteVector> accepted_;
  std::deque<Write> waiting_;
  std::uint64_t accepted_count_ = 0;
  std::uint64_t sent_count_ = 0;
  std::uint64_t credit_ = 0;
  std::uint64_t held_bytes_ = 0;
  bool write_closed_ = false;
  std::optional<Status> write_ended_;

  std::deque<Ready> ready_;
  std::deque<Read> reads_;
  std::uint64_t arrived_ = 0;
  std::uint64_t reads_begun_ = 0;
  std::uint64_t ready_bytes_ = 0;
  std::uint64_t taken_ = 0;    // messages dropped, or given to a read at least once
  std::uint64_t granted_ = 0;  // messages that the peer was told it may send
  bool reading_;
  bool hungry_ = false;
  bool discarding_ = false;
  bool peer_closed_ = false;
  bool read_stopped_ = false;         // unread messages are dropped
  std::optional<Status> read_ended_;  // once ready_ is empty
  const std::uint64_t process_ = fork_generation();
};

}  // namespace slime::rpc
