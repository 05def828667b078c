#include "rpc/channel.h"

#include <algorithm>

#include "base/check.h"
#include "base/str.h"
#include "rpc/channel/channel_impl.h"
#include "rpc/codec/received_blocks.h"
#include "rpc/stream/streams.h"

// What this side asks for, and how it ends. The protocol is described in docs/wire-format.md, its invariants
// in rpc/README.md.
namespace slime::rpc {

std::unique_ptr<Channel> Channel::create(transport::Loop& loop, transport::Device& device,
                                         std::unique_ptr<transport::Endpoint> endpoint, Server* server,
                                         ChannelOwner& owner, ChannelOptions options) {
  SLIME_CHECK(loop.in_loop() && endpoint != nullptr && options.max_calls > 0);
  auto channel =
      std::make_unique<ChannelImpl>(loop, device, std::move(endpoint), server, owner, std::move(options));
  channel->start();
  return channel;
}

ChannelImpl::ChannelImpl(transport::Loop& loop, transport::Device& device,
                         std::unique_ptr<transport::Endpoint> endpoint, Server* server, ChannelOwner& owner,
                         ChannelOptions options)
    : connection_(loop, device, std::move(endpoint), std::move(options)),
      server_(server),
      owner_(owner),
      account_(std::make_shared<Account>(connection_.options().memory_bytes)),
      box_(std::make_shared<AnswerBox>(loop, *this, account_, connection_.message_bytes())),
      completions_(box_),
      names_(connection_.peer_name(), server),
      outbox_(connection_, *this, *this),
      lending_(connection_, *this, account_),
      inbox_(*this, completions_, box_,
             {connection_.options().inbox_messages, connection_.options().inbox_bytes}),
      pending_(2 * connection_.options().max_calls),
      deadlines_(loop, *this, [this] { expire(); }),
      served_(connection_.options().max_calls),
      places_(loop, *this, [this] { expire_places(); }) {}

void ChannelImpl::start() {
  const Scope scope(*this, false);
  wire::Hello hello;
  hello.max_requests =
      static_cast<std::uint32_t>(std::min<std::size_t>(connection_.options().max_calls, UINT32_MAX));
  hello.max_payload_bytes = connection_.options().max_payload_bytes;
  OutFrame frame;
  frame.header.type = wire::FrameType::kHello;
  ByteWriter(frame.body).write(hello);
  outbox_.submit(frame);
  connection_.endpoint().set_receiver(*this);
}

ChannelImpl::~ChannelImpl() {
  connection_.begin_destroying();
  box_->close();
  if (!connection_.closed())
    connection_.endpoint().reset(Status(Code::kCancelled, "the channel was destroyed"));
  if (!connection_.closed()) sweep(Status(Code::kUnavailable, "the channel was destroyed"));
  connection_.loop().cancel_timer(close_timer_);
  // Completes what is posted, while the operations are still there, and before calls that named memory hear
  // of their end.
  connection_.destroy_endpoint();
  run_done();
  if (blocks_ != nullptr) blocks_->close();
}

// ---------------------------------------------------------------------------------------------------- asking

// Into each of its callers, so that plain calls pay nothing for the others: those have only bytes, no
// context, and no signature.
template <class Body, class H>
[[gnu::always_inline]] inline Ticket ChannelImpl::begin_call(const CallSpec& spec, Body&& body, H&& handler,
                                                             std::uint8_t flags, std::uint64_t into) {
  const Scope scope(*this, false);
  ++counters_.calls;
  constexpr bool kPlain = std::is_same_v<Body, ByteVector>;
  const bool extended = !kPlain && spec.context != nullptr;
  if (extended) watch(spec.context, handler);
  Status status = admission(Kind::kCall);
  PeerMethod* known = nullptr;
  if (status.ok()) status = names_.find(spec.service, spec.method, known);
  if (!status.ok()) return refuse(Kind::kCall, std::move(handler), std::move(status));

  OutFrame frame;
  frame.header.type = wire::FrameType::kRequest;
  frame.header.flags = flags & wire::kFlagStream;
  if constexpr (!kPlain) status = put_kind(frame, body);
  frame.deadline = spec.deadline;
  frame.one_way = flags == wire::kFlagOneWay;
  const bool said = !kPlain && spec.signature != 0;
  if (said && known != nullptr) known = MethodNames::find_by_signature(*known, spec.signature);
  if (known != nullptr) frame.header.method = known->id;
  if (frame.header.method == 0) frame.text = wire::encode_names(spec.service, spec.method);
  if (extended && status.ok()) status = put_context(frame, *spec.context);
  if (said) put_signature(frame, known, spec.signature);
  Handle lent;
  if (status.ok()) status = lending_.put_body(frame, std::move(body), lent);
  if (!status.ok()) return refuse(Kind::kCall, std::move(handler), std::move(status));
  const auto [handle, pending] = add_pending(Kind::kCall, std::move(handler), spec.deadline);
  pending->lent = lent;
  if (!kPlain) pending->tag = into;
  pending->method = known;
  if (extended) keep_context(handle, spec.context);
  return ask(handle, spec.deadline, frame);
}

Ticket ChannelImpl::call(const CallSpec& spec, ByteVector body, CallHandler handler) {
  if (spec.context != nullptr || spec.signature != 0) [[unlikely]]
    return ask_attached(spec, {std::move(body)}, std::move(handler), 0);
  return begin_call(spec, std::move(body), std::move(handler), 0, 0);
}

Ticket ChannelImpl::call_one_way(const CallSpec& spec, AttachedBody request, DoneHandler handler) {
  return begin_call(spec, std::move(request), std::move(handler), wire::kFlagOneWay, 0);
}

// Of any kind that is answered.
Ticket ChannelImpl::ask_attached(const CallSpec& spec, AttachedBody&& request, CallHandler&& handler,
                                 std::uint8_t flags) {
  std::uint64_t into = 0;
  if (!request.into.empty()) handler = keep_destinations(std::move(request.into), std::move(handler), into);
  return begin_call(spec, std::move(request), std::move(handler), flags, into);
}

Ticket ChannelImpl::send(std::uint64_t tag, ByteVector body, TimePoint deadline, DoneHandler handler) {
  const Scope scope(*this, false);
  Status status = admission(Kind::kSend);
  OutFrame frame;
  frame.header.type = wire::FrameType::kUserMessage;
  frame.header.value = tag;
  Handle lent;
  if (status.ok()) status = lending_.put_body(frame, std::move(body), lent);
  if (!status.ok()) return refuse(Kind::kSend, std::move(handler), std::move(status));
  const auto [handle, pending] = add_pending(Kind::kSend, std::move(handler), deadline);
  pending->lent = lent;
  return ask(handle, deadline, frame);
}

Ticket ChannelImpl::lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) {
  const Scope scope(*this, false);
  Status status = admission(Kind::kLookup);
  if (status.ok()) status = validate_name("region", name);
  if (status.ok() && !connection_.fits(name.size(), 0)) {
    status = Status(Code::kInvalidArgument, "the name of the region does not fit into a message");
  }
  if (!status.ok()) return refuse(Kind::kLookup, std::move(handler), std::move(status));
  OutFrame frame;
  frame.header.type = wire::FrameType::kRegionLookup;
  ByteWriter(frame.text).append(as_bytes(name));
  return ask(add_pending(Kind::kLookup, std::move(handler), deadline).first, deadline, frame);
}

Ticket ChannelImpl::ping(TimePoint deadline, DoneHandler handler) {
  const Scope scope(*this, false);
  Status status = admission(Kind::kPing);
  if (!status.ok()) return refuse(Kind::kPing, std::move(handler), std::move(status));
  OutFrame frame;
  frame.header.type = wire::FrameType::kPing;
  return ask(add_pending(Kind::kPing, std::move(handler), deadline).first, deadline, frame);
}

Ticket ChannelImpl::recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) {
  const Scope scope(*this, false);
  take_answers();  // puts messages that were given back into the inbox, in front of later ones
  // What has arrived can still be taken when nothing more comes.
  Status status = inbox_.would_wait(tag) ? admission(Kind::kRecv) : Status();
  if (status.ok() && receives_ >= connection_.options().max_calls)
    status = Status(Code::kResourceExhausted, str(receives_, " receives wait already"));
  if (!status.ok()) return refuse(Kind::kRecv, std::move(handler), std::move(status));
  const auto [handle, pending] = add_pending(Kind::kRecv, std::move(handler), deadline);
  pending->tag = tag;
  deadlines_.arm(deadline);
  inbox_.add_receive(tag, handle);
  return Ticket{pending_.find(handle) != nullptr ? handle.packed() : 0};
}

DeliveryHandler ChannelImpl::take_receive(Handle receive) {
  DeliveryHandler handler = std::move(std::get<DeliveryHandler>(pending_.find(receive)->handler));
  pending_.erase(receive);
  --receives_;
  return handler;
}

void ChannelImpl::revoke_region(std::string_view name) {
  const Scope scope(*this, false);
  if (connection_.closed() || name.empty() || !connection_.fits(name.size(), 0)) return;
  OutFrame frame;
  frame.header.type = wire::FrameType::kRegionRevoked;
  ByteWriter(frame.text).append(as_bytes(name));
  outbox_.submit(frame);
}

void ChannelImpl::cancel(Ticket ticket) {
  const Scope scope(*this, false);
  const Handle handle = Handle::unpack(ticket.value);
  tell_cancelled(handle);
  fail(handle, Status(Code::kCancelled, "cancelled"));
}

// The peer's handler may stop: nobody waits for its answer. Of a deadline it knows by itself.
void ChannelImpl::tell_cancelled(Handle handle) {
  const Pending* const pending = pending_.find(handle);
  if (pending == nullptr || pending->kind != Kind::kCall || !pending->sent || pending->pulling ||
      connection_.closed() || !connection_.peer_has(wire::kFeatureCancel))
    return;
  outbox_.answer(wire::FrameType::kCancel, handle.packed());
}

Status ChannelImpl::admission(Kind kind) const {
  if (connection_.closed() || connection_.closing()) return connection_.closing_status();
  if (kind == Kind::kRecv) return {};
  if (asked_ >= connection_.max_requests()) {
    return Status(Code::kResourceExhausted,
                  str(asked_, " requests to ", connection_.peer_name(), " wait for an answer already"));
  }
  return {};
}

Ticket ChannelImpl::refuse(Kind kind, Handler&& handler, Status status) {
  if (kind == Kind::kCall) ++counters_.calls_failed;
  completions_.add(std::move(handler), {std::move(status).with_maybe_executed(false), {}, {}});
  return {};
}

std::pair<Handle, ChannelImpl::Pending*> ChannelImpl::add_pending(Kind kind, Handler&& handler,
                                                                  TimePoint deadline) {
  ++(kind == Kind::kRecv ? receives_ : asked_);
  const auto added = pending_.emplace(kind, std::move(handler), deadline);
  SLIME_CHECK(added.second != nullptr);  // the limits of both kinds together are the table's size
  return added;
}

// What can wait is done once the frame has left.
Ticket ChannelImpl::ask(Handle handle, TimePoint deadline, OutFrame& frame) {
  frame.pending = handle;
  frame.header.id = handle.packed();
  if (deadline != kNever && deadline <= connection_.now()) {
    fail(handle, Status(Code::kDeadlineExceeded, "the deadline had passed before it began"));
    return {};
  }
  const Outbox::Sent sent = outbox_.submit(frame);
  if (sent == Outbox::Sent::kRefused) {
    fail(handle, Status(Code::kResourceExhausted, str(outbox_.queued_bytes(), " bytes wait to be sent to ",
                                                      connection_.peer_name(), " already")));
    return {};
  }
  if (sent == Outbox::Sent::kLeft) {
    on_left(frame);
  } else {
    pending_.find(handle)->queued = outbox_.last();
  }
  deadlines_.arm(deadline);
  return Ticket{handle.packed()};
}

// A frame that asks for something has left.
void ChannelImpl::on_left(const OutFrame& frame) {
  Pending* const pending = pending_.find(frame.pending);
  if (pending == nullptr) return;
  pending->sent = true;
  pending->queued.reset();
  if (frame.one_way) one_way_left(frame);
}

// --------------------------------------------------------------------------------------------------- ending

void ChannelImpl::finish(Handle handle, Outcome&& outcome) {
  Pending* const pending = pending_.find(handle);
  if (pending == nullptr) return;
  const Kind kind = pending->kind;
  const auto queued = pending->queued;
  const Handle unheard = pending->sent ? Handle{} : pending->lent;  // lent to a peer that never heard of it
  const std::uint64_t tag = pending->tag;
  if (kind == Kind::kCall && !outcome.status.ok()) ++counters_.calls_failed;
  completions_.add(std::move(pending->handler), std::move(outcome));
  pending_.erase(handle);
  --(kind == Kind::kRecv ? receives_ : asked_);
  if (queued) outbox_.unqueue(*queued);
  if (unheard.generation != 0) lending_.release(unheard);
  if (kind == Kind::kRecv) inbox_.remove_receive(tag, handle);
}

// A call whose reply has come. Mostly nobody else is on the stack but on_message(), and nothing is to be told
// before it.
void ChannelImpl::finish_call(Handle handle, Pending& pending, Payload&& reply) {
  if (depth_ != 1 || running_done_ || !completions_.empty() || connection_.ready() != ready_told_ ||
      connection_.closed_by_peer() != closing_told_)
    return finish(handle, {{}, std::move(reply), {}});
  CallHandler handler = std::move(std::get<CallHandler>(pending.handler));
  pending_.erase(handle);
  --asked_;
  // As run_done() calls it: from inside no function of ours.
  depth_ = 0;
  running_done_ = true;
  handler(std::move(reply));
  running_done_ = false;
  depth_ = 1;
}

void ChannelImpl::fail(Handle handle, Status status) {
  const Pending* pending = pending_.find(handle);
  if (pending == nullptr) return;
  if (pending->pulling && !connection_.closed() && abort_reply(handle, status)) return;
  const bool sent = pending->sent;
  finish(handle, {std::move(status).with_maybe_executed(sent), {}, {}});
}

void ChannelImpl::leave(bool from_loop) {
  if (depth_ == 1 && connection_.closing() && !connection_.destroying()) check_drained();
  if (--depth_ > 0 || running_done_ || connection_.destroying()) return;
  const bool work = !completions_.empty() || connection_.ready() != ready_told_ ||
                    connection_.closed_by_peer() != closing_told_ || connection_.closed() != closed_told_;
  if (work && from_loop) {
    run_done();
  } else if (work && !done_posted_) {
    done_posted_ = true;
    connection_.loop().post([this, alive = std::weak_ptr<int>(alive_)] {
      if (alive.expired()) return;
      done_posted_ = false;
      run_done();
      tell_awaiting();
    });
  }
  tell_awaiting();
}

void ChannelImpl::tell_awaiting() {
  if (pending_.empty() != awaiting_told_ || connection_.closed()) return;
  awaiting_told_ = !awaiting_told_;
  connection_.endpoint().set_awaiting(awaiting_told_);
}

// Handlers may use the channel: what that ends is appended and called by this loop too.
void ChannelImpl::run_done() {
  if (running_done_) return;
  running_done_ = true;
  for (;;) {
    if (connection_.ready() && !ready_told_) {
      ready_told_ = true;
      if (!connection_.destroying()) owner_.on_channel_ready();
    } else if (connection_.closed_by_peer() && !closing_told_) {
      closing_told_ = true;
      if (!connection_.destroying()) owner_.on_channel_closing();
    } else if (!completions_.empty()) {
      completions_.run_first();
    } else if (connection_.closed() && !closed_told_) {
      closed_told_ = true;
      if (!connection_.destroying()) owner_.on_channel_closed(connection_.closed_reason());
    } else {
      break;
    }
  }
  running_done_ = false;
}

void ChannelImpl::expire() {
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
    const Pending* pending = pending_.find(handle);
    if (pending->kind == Kind::kRecv) {
      fail(handle, Status(Code::kDeadlineExceeded, str("no message with tag ", pending->tag, " came from ",
                                                       connection_.peer_name(), " in time")));
    } else {
      std::string text = stream_deadline_text(handle);
      if (text.empty()) text = str("no answer from ", connection_.peer_name(), " in time");
      fail(handle, Status(Code::kDeadlineExceeded, std::move(text)));
    }
  }
}

bool ChannelImpl::idle() const {
  return pending_.empty() && served_.empty() && lending_.empty() && pulls_.empty() && outbox_.empty() &&
         inbox_.empty() && (streams_ == nullptr || streams_->all.empty());
}

ChannelCounters ChannelImpl::counters() const {
  ChannelCounters out = counters_;
  out.receives_given_back = box_->given_back();
  out.rendezvous += lending_.counters().rendezvous;
  out.copied_bytes += lending_.counters().copied_bytes;
  out.over_budget += lending_.counters().over_budget;
  out.answers_revoked += lending_.counters().revoked;
  out.calls_in_flight = asked_;
  out.queued_frames = outbox_.size();
  out.lent_buffers = lending_.size();
  out.held_bytes = account_->held();
  if (streams_ != nullptr) out.streams = streams_->all.size();
  return out;
}

}  // namespace slime::rpc
