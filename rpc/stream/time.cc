#include <algorithm>

#include "base/str.h"
#include "rpc/stream/stream_table.h"

// Deadlines and idle timeouts of streams, and the credits that slow readers owe.
namespace slime::rpc {
namespace {

std::string text_of(Nanos span) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(span);
  if (whole == span) return str(whole.count(), " s");
  return str(std::chrono::duration_cast<std::chrono::milliseconds>(span).count(), " ms");
}

std::string messages_text(std::uint64_t count) {
  return count == 1 ? "1 message had come" : str(count, " messages had come");
}

}  // namespace

void StreamTable::touch(Stream& stream) {
  stream.active = connection_.now();
  stream.waited = false;
}

// Returns the time at which the stream has to be checked. A served stream with a deadline has no
// idle timeout, since the deadline bounds it.
TimePoint StreamTable::due(const Stream& stream) const {
  if (stream.from_handler && stream.deadline != kNever) return stream.deadline;
  return deadline_after(stream.active, stream.idle_timeout);
}

// Checks all streams when the timer fires. A frame only updates `active` of its stream, and does
// not change the timer.
void StreamTable::check_due() {
  const TimePoint now = connection_.now();
  TimePoint next = kNever;
  std::vector<std::uint64_t> late;
  std::vector<std::uint64_t> owing;
  for (const auto& [key, stream] : all_) {
    if (stream->ended) continue;
    const StreamEnd::Pause pause = stream->end->pause();
    if (pause.owes && !stream->answered) owing.push_back(key);
    if (pause.unread) next = std::min(next, deadline_after(now, limits::kStreamCreditPause));
    if (due(*stream) <= now && check_idle(*stream)) late.push_back(key);
    next = std::min(next, due(*stream));
  }
  for (const std::uint64_t key : owing) {
    if (Stream* const stream = find(key)) pump(*stream, true);
  }
  for (const std::uint64_t key : late) {
    if (Stream* const stream = find(key)) end_idle(*stream);
  }
  due_.arm(next == kNever ? next : std::max(next, now + Nanos(1)));
}

// Returns whether a stream that is due is idle. If the stream is not idle, restarts its idle time.
bool StreamTable::check_idle(Stream& stream) const {
  if (stream.from_handler && stream.deadline != kNever) return true;  // its deadline has passed
  const StreamEnd::Pause pause = stream.end->pause();
  bool busy = !stream.arriving.empty();  // a large message is being read
  if (stream.from_handler) {
    // A handler may take any time between two messages, so only its waiting counts. The begin of a
    // wait is not recorded. Instead, a handler counts as idle if it waits now and waited at the
    // last check, too.
    busy = busy || (!pause.waiting && !stream.answer) || !std::exchange(stream.waited, true);
    if (!pause.waiting && !stream.answer) stream.waited = false;
  } else {
    const CallTable::Pending* const pending = calls_.find(Handle::unpack(stream.id));
    busy = busy || pause.unread || pending == nullptr || pending->pulling;
  }
  if (busy) stream.active = connection_.now();
  return !busy;
}

// Ends the stream with kDeadlineExceeded. May erase the stream.
void StreamTable::end_idle(Stream& stream) {
  if (stream.from_handler) {
    Status reason(Code::kDeadlineExceeded, "the deadline of the stream has passed");
    if (stream.deadline == kNever)
      reason = Status(Code::kDeadlineExceeded, str("the stream was idle: for ", text_of(stream.idle_timeout),
                                                   " (idle_timeout) its caller neither wrote nor read; ",
                                                   messages_text(stream.messages)));
    return end_served(stream, reason);
  }
  const Handle handle = Handle::unpack(stream.id);
  Status reason(Code::kDeadlineExceeded,
                str("the stream was idle: no message went to or came from ", connection_.peer_name(), " for ",
                    text_of(stream.idle_timeout), " (idle_timeout); ", messages_text(stream.messages)));
  calls_.tell_cancelled(handle);
  calls_.fail(handle, std::move(reason));
}

std::string StreamTable::deadline_text(Handle call) const {
  const auto found = opened_.find(call.packed());
  if (found == opened_.end()) return {};
  return str("the deadline of the whole stream to ", connection_.peer_name(), " passed before its end; ",
             messages_text(found->second->messages));
}

}  // namespace slime::rpc
