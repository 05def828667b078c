#include "rpc/stream/streams.h"

#include <algorithm>

#include "base/check.h"
#include "base/str.h"
#include "rpc/codec/body_pool.h"

// Streams: how they begin and end. A stream is a call, whose reply ends it, so its id, its deadline,
// cancelling and the end of the channel are those of calls; here is what lies between.
namespace slime::rpc {

using wire::FrameType;

ChannelImpl::Streams& ChannelImpl::streams() {
  if (streams_ == nullptr) streams_ = std::make_unique<Streams>();
  return *streams_;
}

ChannelImpl::Stream& ChannelImpl::add_stream(std::shared_ptr<StreamEnd> end, std::uint64_t id,
                                             bool from_handler) {
  auto stream = std::make_unique<Stream>();
  stream->key = ++streams_->last_key;
  stream->id = id;
  stream->from_handler = from_handler;
  stream->end = std::move(end);
  stream->idle_timeout = connection_.options().streams.idle_timeout;
  stream->active = connection_.now();
  Stream& added = *stream;
  (from_handler ? streams_->served : streams_->asked).emplace(id, &added);
  streams_->all.emplace(added.key, std::move(stream));
  const std::uint64_t limit = connection_.max_payload_bytes();
  // Releases of messages, credits and an end, besides what calls need.
  outbox_.allow_answers(connection_.options().streams.window + 4);
  added.end->bind(box_, added.key, {connection_.options().streams, limit});
  return added;
}

// ------------------------------------------------------------------------------------------------ the caller

Ticket ChannelImpl::stream(const CallSpec& spec, AttachedBody request, std::shared_ptr<StreamEnd> stream,
                           CallHandler handler) {
  const Scope scope(*this, false);
  SLIME_CHECK(stream != nullptr);
  const std::uint64_t key = streams().last_key + 1;
  CallHandler ends = [this, key, stream, handler = std::move(handler)](Result<Payload> reply) mutable {
    {
      const Scope handler_scope(*this, true);
      if (streams_->find(key) != nullptr && streams_->find(key)->end == stream) {
        end_asked(key, reply.status());
      } else {  // it never began
        stream->stop(reply.status());
      }
    }
    handler(std::move(reply));
  };
  if (!connection_.peer_has(wire::kFeatureStreams)) {
    ++counters_.calls;
    if (spec.context != nullptr) contexts_.watch(spec.context, ends);
    return calls_.refuse(
        Kind::kCall, std::move(ends),
        Status(Code::kUnimplemented, str(connection_.peer_name(), " knows no streams: upgrade it")));
  }
  const Ticket ticket = ask_attached(spec, std::move(request), std::move(ends), wire::kFlagStream);
  if (ticket.value == 0) return ticket;
  Stream& added = add_stream(std::move(stream), ticket.value, false);
  if (spec.idle_timeout != Nanos::zero()) added.idle_timeout = spec.idle_timeout;
  watch_streams(stream_due(added));
  pump(added);
  return ticket;
}

// The hello has told that the peer has none; what was asked for before has not left.
void ChannelImpl::refuse_streams() {
  std::vector<Handle> asked;
  for (const auto& [id, stream] : streams_->asked) asked.push_back(Handle::unpack(id));
  for (const Handle handle : asked)
    calls_.fail(handle,
                Status(Code::kUnimplemented, str(connection_.peer_name(), " knows no streams: upgrade it")));
}

// The peer's answer is an error: what it wrote before that has come, or is being read.
void ChannelImpl::note_replied(Handle handle) {
  const auto found = streams_->asked.find(handle.packed());
  if (found != streams_->asked.end()) found->second->replied = true;
}

// The call is over. What the peer wrote before its answer can still be read; after any other end nothing.
void ChannelImpl::end_asked(std::uint64_t key, const Status& reason) {
  Stream& stream = *streams_->find(key);
  streams_->asked.erase(stream.id);
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
  erase_stream(stream);
}

// ----------------------------------------------------------------------------------------------- the handler

// A peer's ids are places in a table of its own; those of small ones are remembered, so that frames of a
// stream that is over can be told from those of one that never was.
Status ChannelImpl::note_stream(std::uint64_t id) {
  const std::size_t index = Handle::unpack(id).index;
  if (index >= limits::kMaxCalls) return {};
  auto& last = streams().last_served;
  if (index >= last.size()) last.resize(index + 1);
  if (last[index] == id) return Status(Code::kCorrupt, "a stream that was opened before");
  last[index] = id;
  return {};
}

Status ChannelImpl::take_stream(Handle served, std::uint64_t id, TimePoint deadline) {
  SLIME_TRY(note_stream(id));
  if (streams().served.contains(id)) return Status(Code::kCorrupt, "a stream that is open already");
  Stream& stream = add_stream(std::make_shared<StreamEnd>(nullptr, false), id, true);
  stream.served = served;
  stream.deadline = deadline;
  box_->add_stream(served.packed(), stream.end);
  watch_streams(stream_due(stream));
  return {};
}

void ChannelImpl::cancel_stream(std::uint64_t id) {
  const auto found = streams_->served.find(id);
  if (found == streams_->served.end() || found->second->ended) return;
  end_served(*found->second, Status(Code::kCancelled, "the caller has cancelled the stream"));
}

// Nobody waits for it any more; its handler still answers. May erase the stream.
void ChannelImpl::end_served(Stream& stream, const Status& reason) {
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
  send_answer(stream.served, std::move(failed).with_maybe_executed(true));
}

// A result follows the messages that were written before it; an error does not wait for them. True: it waits.
bool ChannelImpl::hold_answer(Handle handle, const Served& served, Result<ByteVector>& answer) {
  const auto found = streams_->served.find(served.call);
  if (found == streams_->served.end() || found->second->served != handle) return false;
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
      stream.answer_held = std::move(answer_held_);
      completions_.add_all(std::move(done));
      return true;
    }
  }
  stream.end->stop_writing(over, done);
  completions_.add_all(std::move(done));
  box_->remove_stream(handle.packed());
  erase_stream(stream);
  return false;
}

// ------------------------------------------------------------------------------------------------- both ends

// A message could not be read: nothing behind it may be read either. May erase the stream.
void ChannelImpl::break_stream(Stream& stream, Status reason) {
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

// What has come and was not delivered goes; the peer gets back what it lends for it.
void ChannelImpl::drop_arriving(Stream& stream) {
  for (const auto& arriving : std::exchange(stream.arriving, {})) {
    if (arriving->offer.empty()) continue;
    const auto offer = wire::decode_offer(arriving->offer);
    outbox_.answer(FrameType::kRelease, offer->lease.packed());
  }
}

// What was accepted and has not left; the peer never heard of what is lent for it.
void ChannelImpl::drop_leaving(Stream& stream) {
  stream.message.reset();
  if (!std::exchange(stream.next, std::nullopt) || stream.next_lent.generation == 0) return;
  Lent* const lent = lending_.find(stream.next_lent);
  if (lent == nullptr) return;
  lent->released = {};
  lending_.release(stream.next_lent);
}

void ChannelImpl::erase_stream(Stream& stream) {
  drop_leaving(stream);
  if (stream.from_handler) streams_->served.erase(stream.id);
  streams_->all.erase(stream.key);
  outbox_.disallow_answers(connection_.options().streams.window + 4);
}

// The channel is closed: those that we opened end with their calls.
void ChannelImpl::sweep_streams() {
  connection_.loop().cancel_timer(streams_->timer);
  std::vector<std::uint64_t> keys;
  for (const auto& [key, stream] : streams_->all) keys.push_back(key);
  std::vector<Task> done;
  for (const std::uint64_t key : keys) {
    Stream& stream = *streams_->find(key);
    stream.lost = !stream.arriving.empty();
    stream.arriving.clear();
    if (stream.from_handler) {
      stream.end->stop_writing(connection_.closing_status(), done);
      stream.end->stop_reading(connection_.closing_status(), done);
      erase_stream(stream);
    } else if (stream.final) {
      stream.final = connection_.closing_status();
      advance(stream);
    }
  }
  completions_.add_all(std::move(done));
}

}  // namespace slime::rpc
