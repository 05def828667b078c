#pragma once

// Private to rpc: the open streams of a channel.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/channel/answer_box.h"
#include "rpc/channel/call_table.h"
#include "rpc/channel/completions.h"
#include "rpc/channel/connection.h"
#include "rpc/channel/lending.h"
#include "rpc/channel/outbox.h"
#include "rpc/channel/puller.h"
#include "rpc/channel/turn.h"
#include "rpc/codec/frame.h"
#include "rpc/server/budget.h"
#include "rpc/stream/stream_end.h"
#include "transport/queue.h"

namespace slime::rpc {

// Keeps the open streams of a channel: those that this side has opened, and those that it serves.
// Sends and receives their messages, credits and ends, and watches their deadlines and idle times.
// A stream is a call, whose reply ends the stream. The stream's id, deadline and status are those
// of the call, which is kept in CallTable (this side opened the stream) or ServedTable (the peer
// did). Thread: the loop, in a turn.
class StreamTable {
 public:
  // Sends the answers of served streams.
  class Answers {
   public:
    // Sends the answer of a request, which its stream has held back until all messages had left.
    // `held`: the bytes of the answer, taken from the account.
    virtual void send_held_answer(Handle served, Result<ByteVector>&& answer, Account::Held&& held) = 0;

   protected:
    ~Answers() = default;
  };
  struct Parts {
    Connection& connection;
    Completions& completions;
    Outbox& outbox;
    Lending& lending;
    CallTable& calls;
    Puller& puller;
    TurnHost& turns;
    Answers& answers;
  };
  StreamTable(const Parts& parts, std::shared_ptr<AnswerBox> box);
  StreamTable(const StreamTable&) = delete;
  StreamTable& operator=(const StreamTable&) = delete;

  // ---- streams of this side
  // Wraps the handler of the call that opens `stream`, so that the end of the call ends the stream.
  // Until add_opened(), no other stream may be added.
  CallHandler end_with(std::shared_ptr<StreamEnd> stream, CallHandler&& handler);
  // Adds the stream that `call` opens. `idle_timeout`: zero means the channel's idle timeout.
  void add_opened(std::shared_ptr<StreamEnd> stream, Ticket call, Nanos idle_timeout);
  // Fails all calls that open a stream. Called when the peer's hello says that the peer has no
  // streams.
  void refuse_opened();
  [[nodiscard]] Status no_streams() const;
  // Records that the reply of this call is an error. Messages that the peer sent before the reply
  // can still be read.
  void note_error_reply(Handle call);
  // Returns the error text for a stream whose deadline has passed; empty if `call` has no stream.
  [[nodiscard]] std::string deadline_text(Handle call) const;

  // ---- streams of the peer
  // Adds the stream that a request opens. Returns kCorrupt if the peer has already opened a stream
  // with this id.
  Status add_served(Handle served, std::uint64_t call, TimePoint deadline);
  // Remembers the stream of a request that was refused, since frames of the stream may still
  // arrive.
  Status note_refused(std::uint64_t call);
  // The caller has cancelled the call.
  void cancel_served(std::uint64_t call);
  [[nodiscard]] bool serves_any() const { return !served_.empty(); }
  // Called when the handler has answered. A result must follow the messages that were written
  // before it: if some have not left, takes `answer` and `held` and returns true. An error does not
  // wait.
  bool hold_answer(Handle served, std::uint64_t call, Result<ByteVector>& answer, Account::Held& held);

  // ---- frames and users
  // Handles a kData, kCredit or kEnd frame. Returns kCorrupt if the peer broke the protocol.
  Status on_frame(const wire::Frame& frame);
  // Does what the user of the stream `key` waits for: gives credits, sends messages, passes
  // messages that were given back to waiting reads.
  void attend(std::uint64_t key);
  // Sends what stalled streams have to send, each stream in its turn.
  void pump_stalled();

  // Ends the streams when the channel is closed. The calls of streams that this side opened have
  // ended before.
  void sweep();
  [[nodiscard]] bool empty() const { return all_.empty(); }
  [[nodiscard]] std::size_t size() const { return all_.size(); }

 private:
  // A received message that is not delivered to the user yet, or the end after the last message.
  struct Arriving {
    Payload payload;
    ByteVector offer;                // offer of a large message whose read has not begun; otherwise empty
    std::uint64_t length_bytes = 0;  // of a large message
    bool complete = false;
    bool end = false;
  };
  struct Stream {
    std::shared_ptr<StreamEnd> end;
    std::uint64_t key = 0;
    std::uint64_t id = 0;         // the caller's
    bool from_handler = false;    // this side serves the stream
    Handle served;                // the request, if from_handler
    TimePoint deadline = kNever;  // of the whole stream, if from_handler
    Nanos idle_timeout = Nanos::max();
    TimePoint active{};          // time of the last frame, either way
    bool waited = false;         // the handler waited at the last check
    std::uint64_t messages = 0;  // whole messages received
    // Outgoing.
    std::optional<ByteVector> message;  // accepted, not in a frame yet
    std::optional<OutFrame> next;       // leaves when the wire takes it
    std::uint64_t next_bytes = 0;
    Handle next_lent;
    bool end_sent = false;
    bool stalled = false;                      // waits for the wire
    std::optional<Result<ByteVector>> answer;  // waits until all messages have left
    Account::Held answer_held;
    bool answered = false;  // by the handler
    // Incoming.
    std::deque<std::shared_ptr<Arriving>> arriving;  // in order; the first is not complete
    std::uint64_t received = 0;
    std::uint64_t granted = 0;
    bool peer_ended = false;
    bool pulling = false;  // true while Puller::pull() runs, which may call its handler at once
    Status broken;         // if not OK, the error with which a message could not be read or sent
    // The end.
    bool replied = false;         // this side opened the stream, and has received an error as its reply
    bool ended = false;           // nothing more is sent, and frames that still arrive are ignored
    bool lost = false;            // the connection ended before all messages had arrived
    std::optional<Status> final;  // outcome of a read after the last message
  };
  using ById = std::unordered_map<std::uint64_t, Stream*>;

  // stream_table.cc: begin and end
  Stream& add(std::shared_ptr<StreamEnd> end, std::uint64_t id, bool from_handler);
  [[nodiscard]] Stream* find(std::uint64_t key);
  void end_opened(std::uint64_t key, const Status& reason);
  void end_served(Stream& stream, const Status& reason);
  void break_stream(Stream& stream, Status reason);
  void drop_arriving(Stream& stream);
  void drop_leaving(Stream& stream);
  void erase(Stream& stream);
  // messages.cc
  Result<Stream*> stream_of(const wire::FrameHeader& header);
  Status on_data(Stream& stream, const wire::Frame& frame);
  void advance_and_pump(std::uint64_t key);
  void advance(Stream& stream);
  bool pull_next(Stream& stream);
  void pump(Stream& stream, bool all_credits = false);
  bool send_next(Stream& stream);
  void stall(Stream& stream);
  void message_released(StreamEnd& end, std::uint64_t bytes);
  // time.cc
  void touch(Stream& stream);
  void check_due();
  [[nodiscard]] TimePoint due(const Stream& stream) const;
  [[nodiscard]] bool check_idle(Stream& stream) const;
  void end_idle(Stream& stream);

  Connection& connection_;
  Completions& completions_;
  Outbox& outbox_;
  Lending& lending_;
  CallTable& calls_;
  Puller& puller_;
  TurnHost& turns_;
  Answers& answers_;
  const std::shared_ptr<AnswerBox> box_;
  bool used_ = false;  // a stream was opened, by either side
  std::uint64_t last_key_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Stream>> all_;  // by key
  ById opened_;
  ById served_;
  // Ids of streams, by their index in the peer's call table: the last stream that the peer has
  // opened there. Tells late frames of an ended stream from frames of a stream that was never
  // opened.
  std::vector<std::uint64_t> last_served_;
  transport::Queue<std::uint64_t> stalled_;  // keys, in turn
  DueTimer due_;
};

}  // namespace slime::rpc
