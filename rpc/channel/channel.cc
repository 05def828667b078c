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

// The tables have room for all that the limits allow: a lent body for each request and each reply.
ChannelImpl::ChannelImpl(transport::Loop& loop, transport::Device& device,
                         std::unique_ptr<transport::Endpoint> endpoint, Server* server, ChannelOwner& owner,
                         ChannelOptions options)
    : loop_(loop),
      device_(device),
      endpoint_(std::move(endpoint)),
      message_bytes_(endpoint_->max_message_bytes()),
      server_(server),
      owner_(owner),
      options_(std::move(options)),
      account_(std::make_shared<Account>(options_.memory_bytes)),
      box_(std::make_shared<AnswerBox>(loop, *this, account_, message_bytes_)),
      pending_(2 * options_.max_calls),
      lent_(4 * options_.max_calls),
      served_(options_.max_calls) {}

void ChannelImpl::start() {
  const Scope scope(*this, false);
  wire::Hello hello;
  hello.max_requests = static_cast<std::uint32_t>(std::min<std::size_t>(options_.max_calls, UINT32_MAX));
  hello.max_payload_bytes = options_.max_payload_bytes;
  OutFrame frame;
  frame.header.type = wire::FrameType::kHello;
  ByteWriter(frame.body).write(hello);
  submit(std::move(frame));
  endpoint_->set_receiver(*this);
}

ChannelImpl::~ChannelImpl() {
  destroying_ = true;
  box_->close();
  if (!closed_) endpoint_->reset(Status(Code::kCancelled, "the channel was destroyed"));
  if (!closed_) sweep(Status(Code::kUnavailable, "the channel was destroyed"));
  loop_.cancel_timer(deadline_timer_);
  loop_.cancel_timer(close_timer_);
  loop_.cancel_timer(revoke_timer_);
  loop_.cancel_timer(places_timer_);
  // Completes what is posted, while the operations are still there, and before calls that named memory hear
  // of their end.
  endpoint_.reset();
  run_done();
  lent_.for_each([](Handle, Lent& lent) { lent.close(); });
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
  if (status.ok()) status = find_method(spec.service, spec.method, known);
  if (!status.ok()) return refuse(Kind::kCall, std::move(handler), std::move(status));

  OutFrame frame;
  frame.header.type = wire::FrameType::kRequest;
  frame.header.flags = flags & wire::kFlagStream;
  if constexpr (!kPlain) status = put_kind(frame, body);
  frame.deadline = spec.deadline;
  frame.one_way = flags == wire::kFlagOneWay;
  const bool said = !kPlain && spec.signature != 0;
  if (said && known != nullptr) known = known_as(*known, spec.signature);
  if (known != nullptr) frame.header.method = known->id;
  if (frame.header.method == 0) frame.text = wire::encode_names(spec.service, spec.method);
  if (extended && status.ok()) status = put_context(frame, *spec.context);
  if (said) put_signature(frame, known, spec.signature);
  Handle lent;
  if (status.ok()) status = put_body(frame, std::move(body), lent);
  if (!status.ok()) return refuse(Kind::kCall, std::move(handler), std::move(status));
  const auto [handle, pending] = add_pending(Kind::kCall, std::move(handler), spec.deadline);
  pending->lent = lent;
  if (!kPlain) pending->tag = into;
  pending->method = known;
  if (extended) keep_context(handle, spec.context);
  return ask(handle, spec.deadline, std::move(frame));
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

// Where the peer's number for the method is kept, which may be none yet; null when too many are known.
Status ChannelImpl::find_method(std::string_view service, std::string_view method, PeerMethod*& known) {
  // Most callers call one method again and again.
  if (last_method_ != nullptr && last_method_->method == method && last_method_->service == service) {
    known = last_method_;
    return {};
  }
  const auto names = method_ids_.find(service);
  if (names != method_ids_.end()) {
    const auto found = names->second.find(method);
    if (found != names->second.end()) {
      known = last_method_ = &found->second;
      return {};
    }
  }
  SLIME_TRY(validate_name("service", service));
  SLIME_TRY(validate_name("method", method));
  if (methods_known_ == limits::kMaxMethods) return {};
  ++methods_known_;
  PeerMethod added{std::string(service), std::string(method)};
  known = last_method_ = &method_ids_[added.service].emplace(added.method, std::move(added)).first->second;
  return {};
}

Ticket ChannelImpl::send(std::uint64_t tag, ByteVector body, TimePoint deadline, DoneHandler handler) {
  const Scope scope(*this, false);
  Status status = admission(Kind::kSend);
  OutFrame frame;
  frame.header.type = wire::FrameType::kUserMessage;
  frame.header.value = tag;
  Handle lent;
  if (status.ok()) status = put_body(frame, std::move(body), lent);
  if (!status.ok()) return refuse(Kind::kSend, std::move(handler), std::move(status));
  const auto [handle, pending] = add_pending(Kind::kSend, std::move(handler), deadline);
  pending->lent = lent;
  return ask(handle, deadline, std::move(frame));
}

Ticket ChannelImpl::lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) {
  const Scope scope(*this, false);
  Status status = admission(Kind::kLookup);
  if (status.ok()) status = validate_name("region", name);
  if (status.ok() && !fits(name.size(), 0)) {
    status = Status(Code::kInvalidArgument, "the name of the region does not fit into a message");
  }
  if (!status.ok()) return refuse(Kind::kLookup, std::move(handler), std::move(status));
  OutFrame frame;
  frame.header.type = wire::FrameType::kRegionLookup;
  ByteWriter(frame.text).append(as_bytes(name));
  return ask(add_pending(Kind::kLookup, std::move(handler), deadline).first, deadline, std::move(frame));
}

Ticket ChannelImpl::ping(TimePoint deadline, DoneHandler handler) {
  const Scope scope(*this, false);
  Status status = admission(Kind::kPing);
  if (!status.ok()) return refuse(Kind::kPing, std::move(handler), std::move(status));
  OutFrame frame;
  frame.header.type = wire::FrameType::kPing;
  return ask(add_pending(Kind::kPing, std::move(handler), deadline).first, deadline, std::move(frame));
}

Ticket ChannelImpl::recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) {
  const Scope scope(*this, false);
  take_answers();  // puts messages that were given back into the inbox, in front of later ones
  const auto stored = tags_.find(tag);
  const bool waits =
      stored == tags_.end() || stored->second.messages.size() <= stored->second.receivers.size();
  // What has arrived can still be taken when nothing more comes.
  Status status = waits ? admission(Kind::kRecv) : Status();
  if (status.ok() && receives_ >= options_.max_calls)
    status = Status(Code::kResourceExhausted, str(receives_, " receives wait already"));
  if (!status.ok()) return refuse(Kind::kRecv, std::move(handler), std::move(status));
  const auto [handle, pending] = add_pending(Kind::kRecv, std::move(handler), deadline);
  pending->tag = tag;
  arm_deadlines(deadline);
  tags_[tag].receivers.push_back(handle);
  match(tag);
  return Ticket{pending_.find(handle) != nullptr ? handle.packed() : 0};
}

void ChannelImpl::revoke_region(std::string_view name) {
  const Scope scope(*this, false);
  if (closed_ || name.empty() || !fits(name.size(), 0)) return;
  OutFrame frame;
  frame.header.type = wire::FrameType::kRegionRevoked;
  ByteWriter(frame.text).append(as_bytes(name));
  submit(std::move(frame));
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
  if (pending == nullptr || pending->kind != Kind::kCall || !pending->sent || pending->pulling || closed_ ||
      (peer_.optional_features & wire::kFeatureCancel) == 0)
    return;
  answer(wire::FrameType::kCancel, handle.packed());
}

Status ChannelImpl::admission(Kind kind) const {
  if (closed_ || closing_) return closing_status();
  if (kind == Kind::kRecv) return {};
  const std::size_t limit =
      ready_ ? std::min<std::size_t>(options_.max_calls, peer_.max_requests) : options_.max_calls;
  if (asked_ >= limit) {
    return Status(Code::kResourceExhausted,
                  str(asked_, " requests to ", options_.peer_name, " wait for an answer already"));
  }
  return {};
}

Ticket ChannelImpl::refuse(Kind kind, Handler&& handler, Status status) {
  if (kind == Kind::kCall) ++counters_.calls_failed;
  done_.push_back({std::move(handler), {std::move(status).with_maybe_executed(false), {}, {}}});
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
Ticket ChannelImpl::ask(Handle handle, TimePoint deadline, OutFrame&& frame) {
  frame.pending = handle;
  frame.header.id = handle.packed();
  if (deadline != kNever && deadline <= loop_.now()) {
    fail(handle, Status(Code::kDeadlineExceeded, "the deadline had passed before it began"));
    return {};
  }
  if (!submit(std::move(frame))) {
    fail(handle, Status(Code::kResourceExhausted,
                        str(queued_bytes_, " bytes wait to be sent to ", options_.peer_name, " already")));
    return {};
  }
  arm_deadlines(deadline);
  return Ticket{handle.packed()};
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
  done_.push_back({std::move(pending->handler), std::move(outcome)});
  pending_.erase(handle);
  --(kind == Kind::kRecv ? receives_ : asked_);
  if (queued) unqueue(*queued);
  if (unheard.generation != 0) release_lent(unheard);
  if (kind == Kind::kRecv) {
    const auto waiting = tags_.find(tag);
    if (waiting != tags_.end()) std::erase(waiting->second.receivers, handle);
    forget_tag_if_empty(tag);
  }
}

// A call whose reply has come. Mostly nobody else is on the stack but on_message(), and nothing is to be told
// before it.
void ChannelImpl::finish_call(Handle handle, Pending& pending, Payload&& reply) {
  if (depth_ != 1 || running_done_ || !done_.empty() || ready_ != ready_told_ ||
      closed_by_peer_ != closing_told_)
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
  if (pending->pulling && !closed_ && abort_reply(handle, status)) return;
  const bool sent = pending->sent;
  finish(handle, {std::move(status).with_maybe_executed(sent), {}, {}});
}

void ChannelImpl::leave(bool from_loop) {
  if (depth_ == 1 && closing_ && !destroying_) check_drained();
  if (--depth_ > 0 || running_done_ || destroying_) return;
  const bool work =
      !done_.empty() || ready_ != ready_told_ || closed_by_peer_ != closing_told_ || closed_ != closed_told_;
  if (work && from_loop) {
    run_done();
  } else if (work && !done_posted_) {
    done_posted_ = true;
    loop_.post([this, alive = std::weak_ptr<int>(alive_)] {
      if (alive.expired()) return;
      done_posted_ = false;
      run_done();
      tell_awaiting();
    });
  }
  tell_awaiting();
}

void ChannelImpl::tell_awaiting() {
  if (pending_.empty() != awaiting_told_ || closed_) return;
  awaiting_told_ = !awaiting_told_;
  endpoint_->set_awaiting(awaiting_told_);
}

// Handlers may use the channel: what that ends is appended and called by this loop too.
void ChannelImpl::run_done() {
  if (running_done_) return;
  running_done_ = true;
  for (;;) {
    if (ready_ && !ready_told_) {
      ready_told_ = true;
      if (!destroying_) owner_.on_channel_ready();
    } else if (closed_by_peer_ && !closing_told_) {
      closing_told_ = true;
      if (!destroying_) owner_.on_channel_closing();
    } else if (!done_.empty()) {
      Done done = done_.pop_front();
      invoke(done);
    } else if (closed_ && !closed_told_) {
      closed_told_ = true;
      if (!destroying_) owner_.on_channel_closed(closed_reason_);
    } else {
      break;
    }
  }
  running_done_ = false;
}

void ChannelImpl::invoke(Done& done) {
  Outcome& outcome = done.outcome;
  if (auto* const on_call = std::get_if<CallHandler>(&done.handler)) {
    if (outcome.status.ok()) {
      (*on_call)(std::move(outcome.payload));
    } else {
      (*on_call)(std::move(outcome.status));
    }
  } else if (auto* const on_delivery = std::get_if<DeliveryHandler>(&done.handler)) {
    if (outcome.status.ok()) {
      (*on_delivery)(Delivery(box_, outcome.tag, outcome.number, std::move(outcome.payload)));
    } else {
      (*on_delivery)(std::move(outcome.status));
    }
  } else if (auto* const on_region = std::get_if<RegionHandler>(&done.handler)) {
    if (outcome.status.ok()) {
      (*on_region)(std::move(*outcome.region));
    } else {
      (*on_region)(std::move(outcome.status));
    }
  } else {
    std::get<DoneHandler>(done.handler)(std::move(outcome.status));
  }
}

// One timer for all: at the earliest deadline that was known when it was armed. What ends before costs
// nothing but, at most, a timer that finds nothing.
void ChannelImpl::arm_deadlines(TimePoint first) {
  if (first == kNever || (deadline_timer_ && deadline_timer_.when <= first)) return;
  loop_.cancel_timer(deadline_timer_);
  deadline_timer_ = loop_.add_timer(first, [this] {
    const Scope scope(*this, true);
    deadline_timer_ = {};
    expire();
  });
}

void ChannelImpl::expire() {
  const TimePoint now = loop_.now();
  std::vector<std::pair<TimePoint, Handle>> expired;
  TimePoint next = kNever;
  pending_.for_each([&](Handle handle, const Pending& pending) {
    if (pending.deadline <= now)
      expired.emplace_back(pending.deadline, handle);
    else
      next = std::min(next, pending.deadline);
  });
  arm_deadlines(next);
  std::sort(expired.begin(), expired.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [deadline, handle] : expired) {
    const Pending* pending = pending_.find(handle);
    if (pending->kind == Kind::kRecv) {
      fail(handle, Status(Code::kDeadlineExceeded, str("no message with tag ", pending->tag, " came from ",
                                                       options_.peer_name, " in time")));
    } else {
      std::string text = stream_deadline_text(handle);
      if (text.empty()) text = str("no answer from ", options_.peer_name, " in time");
      fail(handle, Status(Code::kDeadlineExceeded, std::move(text)));
    }
  }
}

bool ChannelImpl::idle() const {
  return pending_.empty() && served_.empty() && lent_.empty() && pulls_.empty() && queue_.empty() &&
         inbox_messages_ == 0 && (streams_ == nullptr || streams_->all.empty());
}

ChannelCounters ChannelImpl::counters() const {
  ChannelCounters out = counters_;
  out.receives_given_back = box_->given_back();
  out.calls_in_flight = asked_;
  out.queued_frames = queue_.size();
  out.lent_buffers = lent_.size();
  out.held_bytes = account_->held();
  if (streams_ != nullptr) out.streams = streams_->all.size();
  return out;
}

}  // namespace slime::rpc
