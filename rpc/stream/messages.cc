#include "base/check.h"
#include "base/str.h"
#include "rpc/codec/body_pool.h"
#include "rpc/stream/stream_table.h"

// Sends and receives the messages of streams. Only credits and ends wait in the outbox. A message
// stays with its stream until the endpoint accepts it, so that the writer waits. Streams whose
// messages the endpoint does not accept take turns.
namespace slime::rpc {

using wire::Frame;
using wire::FrameType;

// ---------------------------------------------------------------------------------------- incoming

// Returns the open stream that a frame belongs to; null if the stream ended while the frame was on
// its way.
Result<StreamTable::Stream*> StreamTable::stream_of(const wire::FrameHeader& header) {
  const Handle handle = Handle::unpack(header.id);
  const auto find_in = [&](const ById& streams) -> Stream* {
    const auto found = streams.find(header.id);
    return found == streams.end() ? nullptr : found->second;
  };
  if ((header.flags & wire::kFlagFromHandler) != 0) {
    const CallTable::Pending* const pending = calls_.find(handle);
    if (pending == nullptr && calls_.knew(handle)) return static_cast<Stream*>(nullptr);
    Stream* const stream = pending == nullptr ? nullptr : find_in(opened_);
    if (stream == nullptr || !pending->sent || pending->pulling)
      return Status(Code::kCorrupt, "a frame of a stream that is not open");
    return stream;
  }
  Stream* const stream = find_in(served_);
  if (stream != nullptr) return stream;
  const bool remembered = handle.index < last_served_.size() && last_served_[handle.index] == header.id;
  if (used_ && (handle.index >= limits::kMaxCalls || remembered)) return stream;
  return Status(Code::kCorrupt, "a frame of a stream that was never opened");
}

Status StreamTable::on_frame(const Frame& frame) {
  auto found = stream_of(frame.header);
  if (!found) return std::move(found).error();
  Stream* const stream = *found;
  const FrameType type = frame.header.type;
  if (stream == nullptr || stream->ended || (stream->answered && type != FrameType::kCredit)) {
    calls_.count_stale();
    if ((frame.header.flags & wire::kFlagRendezvous) == 0) return {};
    auto offer = wire::decode_offer(frame.body);
    if (!offer) return std::move(offer).error();
    outbox_.answer(FrameType::kRelease, offer->lease.packed());
    return {};
  }
  if (type == FrameType::kData) return on_data(*stream, frame);
  touch(*stream);
  const std::uint64_t key = stream->key;
  if (type == FrameType::kCredit) {
    std::vector<Task> done;
    if (!stream->end->credit(frame.header.value, done))
      return Status(Code::kCorrupt, "credits of a stream that are not more than before");
    completions_.add_all(std::move(done));
  } else {
    if (stream->peer_ended) return Status(Code::kCorrupt, "a second end of a stream");
    stream->peer_ended = true;
    auto arriving = std::make_shared<Arriving>();
    arriving->complete = arriving->end = true;
    stream->arriving.push_back(std::move(arriving));
  }
  advance_and_pump(key);
  return {};
}

Status StreamTable::on_data(Stream& stream, const Frame& frame) {
  if (stream.peer_ended) return Status(Code::kCorrupt, "a message after the end of its stream");
  if (stream.received == stream.granted)
    return Status(Code::kCorrupt, "a message beyond the stream's credits");
  ++stream.received;
  touch(stream);
  due_.arm(deadline_after(connection_.now(), limits::kStreamCreditPause));
  auto arriving = std::make_shared<Arriving>();
  if ((frame.header.flags & wire::kFlagRendezvous) != 0) {
    auto offer = wire::decode_offer(frame.body);
    if (!offer) return std::move(offer).error();
    arriving->length_bytes = offer->length_bytes;
    arriving->offer.assign(frame.body.begin(), frame.body.end());
  } else {
    arriving->payload = Payload(frame.body);
    arriving->complete = true;
  }
  stream.arriving.push_back(std::move(arriving));
  advance_and_pump(stream.key);
  return {};
}

// Delivers all received messages that can be delivered now, and sends all that can be sent now.
void StreamTable::advance_and_pump(std::uint64_t key) {
  Stream* stream = find(key);
  if (stream == nullptr) return;
  advance(*stream);
  stream = find(key);
  if (stream != nullptr) pump(*stream);
}

void StreamTable::attend(std::uint64_t key) {
  Stream* const stream = find(key);
  if (stream == nullptr) return;
  std::vector<Task> done;
  stream->end->match_reads(done);
  completions_.add_all(std::move(done));
  advance_and_pump(key);
}

// Reads offered messages, and delivers complete ones, in order of arrival. May erase the stream.
void StreamTable::advance(Stream& stream) {
  std::vector<Task> done;
  for (;;) {
    while (pull_next(stream)) {
    }
    if (stream.arriving.empty() || !stream.arriving.front()->complete) break;
    const std::shared_ptr<Arriving> first = std::move(stream.arriving.front());
    stream.arriving.pop_front();
    if (first->end) {
      stream.end->peer_closed(done);
    } else {
      ++stream.messages;
      stream.end->deliver(std::move(first->payload), done);
    }
  }
  const bool over = stream.final && stream.arriving.empty();
  if (over) stream.end->finish_reading(*stream.final, done);
  completions_.add_all(std::move(done));
  if (over) {
    erase(stream);
  } else if (!stream.broken.ok()) {
    break_stream(stream, std::exchange(stream.broken, {}));
  }
}

// Begins to read the next large message. Returns false if there is no such message, or if it would
// exceed the window's bytes together with the unread messages before it.
bool StreamTable::pull_next(Stream& stream) {
  if (!stream.broken.ok() || connection_.endpoint_closing()) return false;
  std::shared_ptr<Arriving> next;
  std::uint64_t ahead = 0;
  for (const auto& arriving : stream.arriving) {
    if (!arriving->offer.empty()) {
      next = arriving;
      break;
    }
    ahead += arriving->complete ? arriving->payload.bytes().size() : arriving->length_bytes;
  }
  if (next == nullptr) return false;
  if (stream.end->discarding()) {
    const auto offer = wire::decode_offer(std::exchange(next->offer, {}));
    outbox_.answer(FrameType::kRelease, offer->lease.packed());
    next->complete = true;
    return true;
  }
  ahead += stream.end->unread_bytes(true);
  if (ahead != 0 && ahead + next->length_bytes > connection_.options().streams.window_bytes) return false;
  stream.pulling = true;
  const ByteVector offer = std::exchange(next->offer, {});
  wire::Frame frame;
  frame.header.flags = wire::kFlagRendezvous;
  frame.body = offer;
  Status status = puller_.pull(frame, [this, key = stream.key, next](Result<Payload> body) {
    Stream* const found = find(key);
    if (found == nullptr) return;  // the stream has ended
    next->complete = true;
    if (body) {
      next->payload = std::move(*body);
    } else {
      next->complete = false;
      found->broken = std::move(body).error().with_context("reading a message of the stream");
    }
    if (!found->pulling) advance_and_pump(key);
  });
  stream.pulling = false;
  if (status.ok()) return true;
  connection_.break_by(std::move(status));
  return false;
}

// ---------------------------------------------------------------------------------------- outgoing

// Sends the credits, messages and end that can leave now. May erase the stream. `all_credits`: also
// sends credits of less than half a window.
void StreamTable::pump(Stream& stream, bool all_credits) {
  if (stream.ended || connection_.over()) return;
  if (!stream.from_handler) {
    const CallTable::Pending* const pending = calls_.find(Handle::unpack(stream.id));
    if (pending == nullptr) return;  // the call has just ended
    if (!pending->sent) return stall(stream);
  }
  const StreamEnd::Wants wants = stream.end->attend(all_credits);
  const auto tell = [&](FrameType type, std::uint64_t value) {
    OutFrame frame;
    frame.header.type = type;
    frame.header.flags = stream.from_handler ? wire::kFlagFromHandler : 0;
    frame.header.id = stream.id;
    frame.header.value = value;
    touch(stream);
    outbox_.submit(frame);
  };
  if (wants.credit != 0 && !stream.answered) tell(FrameType::kCredit, stream.granted = wants.credit);
  while (send_next(stream)) {
  }
  if (!stream.broken.ok()) return break_stream(stream, std::exchange(stream.broken, {}));
  if (stream.message || stream.next || !stream.end->all_sent()) return;
  if (stream.answer) {
    Result<ByteVector> answer = std::move(*stream.answer);
    stream.answer.reset();
    return answers_.send_held_answer(stream.served, std::move(answer), std::move(stream.answer_held));
  }
  if (!wants.end || stream.end_sent || stream.answered) return;
  stream.end_sent = true;
  tell(FrameType::kEnd, 0);
}

// Sends one message. Returns false if there is no message, or the endpoint does not accept it.
bool StreamTable::send_next(Stream& stream) {
  if (!stream.next) {
    if (!stream.message) stream.message = stream.end->next();
    if (!stream.message) return false;
    stream.next_bytes = stream.message->size();
    const bool lends = !connection_.fits(0, stream.message->size());
    if (lends && lending_.full()) {
      stall(stream);  // until the peer releases something
      return false;
    }
    OutFrame frame;
    frame.header.type = FrameType::kData;
    frame.header.flags = stream.from_handler ? wire::kFlagFromHandler : 0;
    frame.header.id = stream.id;
    stream.next_lent = {};
    Status status = lending_.put_body(frame, std::move(*stream.message), stream.next_lent);
    stream.message.reset();
    if (!status.ok()) {
      stream.broken = std::move(status).with_context("a message of the stream");
      return false;
    }
    if (lends) {
      Lent& record = *lending_.find(stream.next_lent);
      record.released = [this, end = stream.end](std::uint64_t bytes) { message_released(*end, bytes); };
      if (stream.from_handler) lending_.revoke_after(record, stream.deadline);
    }
    stream.next = std::move(frame);
  }
  if (!outbox_.empty() || !connection_.ready() || !outbox_.try_send(*stream.next)) {
    stall(stream);
    return false;
  }
  give_body(std::move(stream.next->body));
  stream.next.reset();
  touch(stream);
  stream.end->sent();
  std::vector<Task> done;
  stream.end->freed(stream.next_lent.generation == 0 ? stream.next_bytes : 0, done);
  completions_.add_all(std::move(done));
  return true;
}

void StreamTable::stall(Stream& stream) {
  if (!std::exchange(stream.stalled, true)) stalled_.push_back(stream.key);
}

// Lets each stalled stream send. A stream that still cannot send everything goes to the end of the
// queue.
void StreamTable::pump_stalled() {
  for (std::size_t left = stalled_.size(); left > 0 && outbox_.empty(); --left) {
    Stream* const stream = find(stalled_.pop_front());
    if (stream == nullptr) continue;
    stream->stalled = false;
    pump(*stream);
  }
}

// The peer has read a large message.
void StreamTable::message_released(StreamEnd& end, std::uint64_t bytes) {
  if (connection_.closed() || connection_.destroying()) return;
  std::vector<Task> done;
  end.freed(bytes, done);
  completions_.add_all(std::move(done));
  if (Stream* const stream = find(end.key())) pump(*stream);
  pump_stalled();
}

}  // namespace slime::rpc
