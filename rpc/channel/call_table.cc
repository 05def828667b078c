#include "rpc/channel/call_table.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/str.h"

namespace slime::rpc {

CallTable::CallTable(Connection& connection, Completions& completions, Outbox& outbox, Lending& lending,
                     TurnHost& turns, Host& host)
    : connection_(connection),
      completions_(completions),
      outbox_(outbox),
      lending_(lending),
      host_(host),
      pending_(2 * connection.options().max_calls),
      deadlines_(connection.loop(), turns, [this] { expire(); }) {}

// ------------------------------------------------------------------------------------------ asking

Status CallTable::admission(Kind kind) const {
  if (connection_.closed() || connection_.closing()) return connection_.closing_status();
  if (kind == Kind::kRecv) return {};
  if (asked_ < connection_.max_requests()) return {};
  return Status(Code::kResourceExhausted,
                str(asked_, " requests to ", connection_.peer_name(), " wait for an answer already"));
}

Ticket CallTable::refuse(Kind kind, Handler&& handler, Status status) {
  if (kind == Kind::kCall) ++counters_.calls_failed;
  completions_.add(std::move(handler), {std::move(status).with_maybe_executed(false), {}, {}});
  return {};
}

std::pair<Handle, CallTable::Pending*> CallTable::add(Kind kind, Handler&& handler, TimePoint deadline) {
  ++(kind == Kind::kRecv ? receives_ : asked_);
  const auto added = pending_.emplace(kind, std::move(handler), deadline);
  // cannot fail: the table has room for all requests and receives that their limits allow
  SLIME_CHECK(added.second != nullptr);
  return added;
}

// Sends the frame first, and does later what is not needed for sending.
Ticket CallTable::ask(Handle handle, TimePoint deadline, OutFrame& frame) {
  frame.pending = handle;
  frame.header.id = handle.packed();
  if (deadline != kNever && deadline <= connection_.now()) {
    fail(handle, Status(Code::kDeadlineExceeded, "the deadline had passed before it began"));
    return {};
  }
  switch (outbox_.submit(frame)) {
    case Outbox::Sent::kRefused:
      fail(handle, Status(Code::kResourceExhausted, str(outbox_.queued_bytes(), " bytes wait to be sent to ",
                                                        connection_.peer_name(), " already")));
      return {};
    case Outbox::Sent::kQueued:
      pending_.find(handle)->queued = outbox_.last();
      break;
    case Outbox::Sent::kLeft:
      on_left(frame);
      break;
  }
  deadlines_.arm(deadline);
  return Ticket{handle.packed()};
}

void CallTable::on_left(const OutFrame& frame) {
  Pending* const pending = pending_.find(frame.pending);
  if (pending == nullptr) return;
  pending->sent = true;
  pending->queued.reset();
  if (frame.one_way) on_one_way_left(frame.pending, frame);
}

// Ends a one-way call whose frame has left, or lets the release of its lent attachments end the
// call: their memory must not change until the peer has read it.
void CallTable::on_one_way_left(Handle handle, const OutFrame& frame) {
  const bool answered = (frame.header.flags & wire::kFlagOneWay) == 0;
  Lent* const lent = lending_.find(pending_.find(handle)->lent);
  if (lent == nullptr || lent->attachments.empty()) return end_one_way(handle, answered);
  lent->released = [this, handle, answered](std::uint64_t) { end_one_way(handle, answered); };
}

// Does nothing if the call has already ended by its deadline, a cancel, or the end of the
// connection.
void CallTable::end_one_way(Handle handle, bool answered) {
  Pending* const pending = pending_.find(handle);
  if (pending == nullptr) return;
  if (!answered) return finish(handle, {});
  completions_.add(std::move(pending->handler));
  // The pointer `method` stays valid as long as the channel exists.
  pending->handler = CallHandler([this, method = pending->method](Result<Payload> reply) {
    if (!reply && !connection_.closed()) host_.on_one_way_failed(std::move(reply).error(), method);
  });
}

// ----------------------------------------------------------------------------------------- answers

Result<CallTable::Pending*> CallTable::expected(const wire::FrameHeader& header, Kind kind) {
  Pending* pending = pending_.find(Handle::unpack(header.id));
  if (pending == nullptr) {
    count_stale();  // the request timed out or was cancelled
    return pending;
  }
  if (pending->kind != kind || !pending->sent || pending->pulling)
    return Status(Code::kCorrupt, "an answer that nobody asked for");
  return pending;
}

void CallTable::finish(Handle handle, Outcome&& outcome) {
  Pending* const pending = pending_.find(handle);
  if (pending == nullptr) return;
  const Kind kind = pending->kind;
  const auto queued = pending->queued;
  // lent memory that has to be released here, because the frame that offers it was never sent
  const Handle unheard = pending->sent ? Handle{} : pending->lent;
  const std::uint64_t tag = pending->tag;
  if (kind == Kind::kCall && !outcome.status.ok()) ++counters_.calls_failed;
  completions_.add(std::move(pending->handler), std::move(outcome));
  pending_.erase(handle);
  --(kind == Kind::kRecv ? receives_ : asked_);
  if (queued) outbox_.unqueue(*queued);
  if (unheard.generation != 0) lending_.release(unheard);
  if (kind == Kind::kRecv) host_.on_receive_ended(tag, handle);
}

CallHandler CallTable::take_call(Handle handle, Pending& pending) {
  CallHandler handler = std::move(std::get<CallHandler>(pending.handler));
  pending_.erase(handle);
  --asked_;
  return handler;
}

DeliveryHandler CallTable::take_receive(Handle handle) {
  DeliveryHandler handler = std::move(std::get<DeliveryHandler>(pending_.find(handle)->handler));
  pending_.erase(handle);
  --receives_;
  return handler;
}

// ------------------------------------------------------------------------------------------ ending

void CallTable::fail(Handle handle, Status status) {
  const Pending* const pending = pending_.find(handle);
  if (pending == nullptr) return;
  if (pending->pulling && !connection_.closed() && host_.end_reading(handle, status)) return;
  const bool sent = pending->sent;
  if (pending->parks && sent && !connection_.closed())
    outbox_.answer(wire::FrameType::kCancel, handle.packed());
  finish(handle, {std::move(status).with_maybe_executed(sent), {}, {}});
}

void CallTable::tell_cancelled(Handle handle) {
  const Pending* const pending = pending_.find(handle);
  if (pending == nullptr || pending->kind != Kind::kCall || !pending->sent || pending->pulling ||
      connection_.closed() || !connection_.peer_has(wire::kFeatureCancel))
    return;
  outbox_.answer(wire::FrameType::kCancel, handle.packed());
}

void CallTable::fail_receives() {
  std::vector<Handle> ended;
  pending_.for_each([&](Handle handle, Pending& pending) {
    if (pending.kind == Kind::kRecv) ended.push_back(handle);
  });
  for (const Handle handle : ended) fail(handle, connection_.closing_status());
}

void CallTable::fail_all() {
  std::vector<Handle> handles;
  pending_.for_each([&](Handle handle, Pending&) { handles.push_back(handle); });
  for (const Handle handle : handles) fail(handle, connection_.closing_status());
  deadlines_.cancel();
}

void CallTable::expire() {
  const TimePoint now = connection_.now();
  std::vector<std::pair<TimePoint, Handle>> expired;
  TimePoint next = kNever;
  pending_.for_each([&](Handle handle, const Pending& pending) {
    if (pending.deadline <= now)
      expired.emplace_back(pending.deadline, handle);
    else
      next = std::min(next, pending.deadline);
  });
  deadlines_.arm(next);
  std::sort(expired.begin(), expired.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [deadline, handle] : expired) {
    const Pending* const pending = pending_.find(handle);
    std::string text;
    if (pending->kind == Kind::kRecv) {
      text = str("no message with tag ", pending->tag, " came from ", connection_.peer_name(), " in time");
    } else {
      text = host_.deadline_text(handle);
      if (text.empty()) text = str("no answer from ", connection_.peer_name(), " in time");
    }
    fail(handle, Status(Code::kDeadlineExceeded, std::move(text)));
  }
}

}  // namespace slime::rpc
