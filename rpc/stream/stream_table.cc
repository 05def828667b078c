#include "rpc/stream/stream_table.h"

#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "rpc/codec/body_pool.h"

// How streams begin and end.
namespace slime::rpc {

using wire::FrameType;

StreamTable::StreamTable(const Parts& parts, std::shared_ptr<AnswerBox> box)
    : connection_(parts.connection),
      completions_(parts.completions),
      outbox_(parts.outbox),
      lending_(parts.lending),
      calls_(parts.calls),
      puller_(parts.puller),
      turns_(parts.turns),
      answers_(parts.answers),
      box_(std::move(box)),
      due_(parts.connection.loop(), parts.turns, [this] { check_due(); }) {}

StreamTable::Stream& StreamTable::add(std::shared_ptr<StreamEnd> end, std::uint64_t id, bool from_handler) {
  auto stream = std::make_unique<Stream>();
  stream->key = ++last_key_;
  stream->id = id;
  stream->from_handler = from_handler;
  stream->end = std::move(end);
  stream->idle_timeout = connection_.options().streams.idle_timeout;
  stream->active = connection_.now();
  Stream& added = *stream;
  (from_handler ? served_ : opened_).emplace(id, &added);
  all_.emplace(added.key, std::move(stream));
  // Allows more queued answers for the stream: releases of its messages, its credits and its end.
  outbox_.allow_answers(connection_.options().streams.window + 4);
  added.end->bind(box_, added.key, {connection_.options().streams, connection_.max_payload_bytes()});
  return added;
}

StreamTable::Stream* StreamTable::find(std::uint64_t key) {
  const auto found = all_.find(key);
  return found == all_.end() ? nullptr : found->second.get();
}

// -------------------------------------------------------------------------------------- the caller

CallHandler StreamTable::end_with(std::shared_ptr<StreamEnd> stream, CallHandler&& handler) {
  SLIME_CHECK(stream != nullptr);
  used_ = true;
  return [this, key = last_key_ + 1, stream = std::move(stream),
          handler = std::move(handler)](Result<Payload> reply) mutable {
    {
      const LoopTurn turn(turns_);
      const Stream* const open = find(key);
      if (open != nullptr && open->end == stream) {
        end_opened(key, reply.status());
      } else {  // the call was refused before add_opened()
        stream->stop(reply.status());
      }
    }
    handler(std::move(reply));
  };
}

void StreamTable::add_opened(std::shared_ptr<StreamEnd> stream, Ticket call, Nanos idle_timeout) {
  Stream& added = add(std::move(stream), call.value, false);
  if (idle_timeout != Nanos::zero()) added.idle_timeout = idle_timeout;
  due_.arm(due(added));
  pump(added);
}

void StreamTable::refuse_opened() {
  std::vector<Handle> calls;
  for (const auto& [id, stream] : opened_) calls.push_back(Handle::unpack(id));
  for (const Handle call : calls) calls_.fail(call, no_streams());
}

Status StreamTable::no_streams() const {
  return Status(Code::kUnimplemented, str(connection_.peer_name(), " knows no streams: upgrade it"));
}

void StreamTable::note_error_reply(Handle call) {
  const auto found = opened_.find(call.packed());
  if (found != opened_.end()) found->second->replied = true;
}

// Ends a stream of this side whose call has ended. If the call ended by a reply of the peer,
// messages that were sent before the reply can still be read; otherwise they are dropped.
void StreamTable::end_opened(std::uint64_t key, const Status& reason) {
  Stream& stream = *find(key);
  opened_.erase(stream.id);
  stream.ended = true;
  std::vector<Task> done;
  stream.end->stop_writing(reason.ok() ? Status(Code::kAborted, "the handler has ended the stream") : reason,
                           done);
  drop_leaving(stream);
  if (reason.ok() || stream.replied) {
    completions_.add_all(std::move(done));
    stream.final = stream.lost ? connection_.closing_status() : reason;
    advance(stream);
    return;
  }
  drop_arriving(stream);
  stream.end->stop_reading(reason, done);
  completions_.add_all(std::move(done));
  erase(stream);
}

// ------------------------------------------------------------------------------------- the handler

// Remembers the stream by the index in its id, which is an index of the peer's call table. Does not
// remember an index above the limit.
Status StreamTable::note_refused(std::uint64_t call) {
  const std::size_t index = Handle::unpack(call).index;
  if (index >= limits::kMaxCalls) return {};
  used_ = true;
  if (index >= last_served_.size()) last_served_.resize(index + 1);
  if (last_served_[index] == call) return Status(Code::kCorrupt, "a stream that was opened before");
  last_served_[index] = call;
  return {};
}

Status StreamTable::add_served(Handle served, std::uint64_t call, TimePoint deadline) {
  SLIME_TRY(note_refused(call));
  used_ = true;
  if (served_.contains(call)) return Status(Code::kCorrupt, "a stream that is open already");
  Stream& stream = add(std::make_shared<StreamEnd>(nullptr, false), call, true);
  stream.served = served;
  stream.deadline = deadline;
  box_->add_stream(served.packed(), stream.end);
  due_.arm(due(stream));
  return {};
}

void StreamTable::cancel_served(std::uint64_t call) {
  const auto found = served_.find(call);
  if (found == served_.end() || found->second->ended) return;
  end_served(*found->second, Status(Code::kCancelled, "the caller has cancelled the stream"));
}

// Ends a served stream for which its caller no longer waits. The handler still has to answer. May
// erase the stream.
void StreamTable::end_served(Stream& stream, const Status& reason) {
  stream.ended = true;
  drop_arriving(stream);
  std::vector<Task> done;
  stream.end->stop_writing(reason, done);
  stream.end->stop_reading(reason, done);
  completions_.add_all(std::move(done));
  drop_leaving(stream);
  if (!stream.answer) return;
  stream.answer.reset();  // its messages have not all left
  Status failed = reason;
  answers_.send_held_answer(stream.served, std::move(failed).with_maybe_executed(true), {});
}

bool StreamTable::hold_answer(Handle served, std::uint64_t call, Result<ByteVector>& answer,
                              Account::Held& held) {
  const auto found = served_.find(call);
  if (found == served_.end() || found->second->served != served) return false;
  Stream& stream = *found->second;
  const Status over(Code::kAborted, "the stream was answered");
  std::vector<Task> done;
  drop_arriving(stream);
  stream.end->stop_reading(over, done);
  stream.answered = true;
  if (answer && !stream.ended) {
    stream.end->close_writing();
    pump(stream);
    if (stream.ended) {
      answer = Status(Code::kInternal, "a message of the stream could not be sent").with_maybe_executed(true);
    } else if (stream.message || stream.next || !stream.end->all_sent()) {
      stream.answer.emplace(std::move(answer));
      stream.answer_held = std::move(held);
      completions_.add_all(std::move(done));
      return true;
    }
  }
  stream.end->stop_writing(over, done);
  completions_.add_all(std::move(done));
  box_->remove_stream(served.packed());
  erase(stream);
  return false;
}

// --------------------------------------------------------------------------------------- both ends

// Ends a stream because one of its messages could not be read or sent: later messages must not
// reach the reader then. May erase the stream.
void StreamTable::break_stream(Stream& stream, Status reason) {
  if (stream.from_handler) return end_served(stream, reason);
  drop_arriving(stream);
  if (!stream.final) {
    const Handle handle = Handle::unpack(stream.id);
    calls_.tell_cancelled(handle);
    return calls_.fail(handle, std::move(reason));
  }
  stream.final = std::move(reason);
  advance(stream);
}

// Drops messages that were not delivered, and releases the memory that the peer has lent for them.
void StreamTable::drop_arriving(Stream& stream) {
  for (const auto& arriving : std::exchange(stream.arriving, {})) {
    if (arriving->offer.empty()) continue;
    const auto offer = wire::decode_offer(arriving->offer);
    outbox_.answer(FrameType::kRelease, offer->lease.packed());
  }
}

// Drops the message that has not left yet, and ends its loan, of which the peer does not know.
void StreamTable::drop_leaving(Stream& stream) {
  stream.message.reset();
  if (!std::exchange(stream.next, std::nullopt) || stream.next_lent.generation == 0) return;
  Lent* const lent = lending_.find(stream.next_lent);
  if (lent == nullptr) return;
  lent->released = {};
  lending_.release(stream.next_lent);
}

void StreamTable::erase(Stream& stream) {
  drop_leaving(stream);
  if (stream.from_handler) served_.erase(stream.id);
  all_.erase(stream.key);
  outbox_.disallow_answers(connection_.options().streams.window + 4);
}

void StreamTable::sweep() {
  due_.cancel();
  std::vector<std::uint64_t> keys;
  for (const auto& [key, stream] : all_) keys.push_back(key);
  std::vector<Task> done;
  for (const std::uint64_t key : keys) {
    Stream& stream = *find(key);
    stream.lost = !stream.arriving.empty();
    stream.arriving.clear();
    if (stream.from_handler) {
      stream.end->stop_writing(connection_.closing_status(), done);
      stream.end->stop_reading(connection_.closing_status(), done);
      erase(stream);
    } else if (stream.final) {
      stream.final = connection_.closing_status();
      advance(stream);
    }
  }
  completions_.add_all(std::move(done));
}

}  // namespace slime::rpc
