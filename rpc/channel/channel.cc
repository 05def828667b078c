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
      calls_(connection_, completions_, outbox_, lending_, *this, *this),
      contexts_(loop.clock()),
      room_(connection_),
      puller_(connection_, outbox_, room_, *this, server, account_),
      served_(connection_.options().max_calls) {}

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
  if (extended) contexts_.watch(spec.context, handler);
  Status status = calls_.admission(Kind::kCall);
  PeerMethod* known = nullptr;
  if (status.ok()) status = names_.find(spec.service, spec.method, known);
  if (!status.ok()) return calls_.refuse(Kind::kCall, std::forward<H>(handler), std::move(status));

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
  if (status.ok()) status = lending_.put_body(frame, std::forward<Body>(body), lent);
  if (!status.ok()) return calls_.refuse(Kind::kCall, std::forward<H>(handler), std::move(status));
  const auto [handle, pending] = calls_.add(Kind::kCall, std::forward<H>(handler), spec.deadline);
  pending->lent = lent;
  if (!kPlain) pending->into = into;
  pending->method = known;
  if (extended) contexts_.keep(handle, spec.context);
  return calls_.ask(handle, spec.deadline, frame);
}

Ticket ChannelImpl::call(const CallSpec& spec, ByteVector body, CallHandler handler) {
  if (spec.context != nullptr || spec.signature != 0) [[unlikely]]
    return ask_attached(spec, {std::move(body)}, std::move(handler), 0);
  return begin_call(spec, std::move(body), std::move(handler), 0, 0);
}

Ticket ChannelImpl::call_attached(const CallSpec& spec, AttachedBody request, CallHandler handler) {
  return ask_attached(spec, std::move(request), std::move(handler), 0);
}

Ticket ChannelImpl::call_one_way(const CallSpec& spec, AttachedBody request, DoneHandler handler) {
  return begin_call(spec, std::move(request), std::move(handler), wire::kFlagOneWay, 0);
}

// Of any kind that is answered.
Ticket ChannelImpl::ask_attached(const CallSpec& spec, AttachedBody&& request, CallHandler&& handler,
                                 std::uint8_t flags) {
  std::uint64_t into = 0;
  if (!request.into.empty()) handler = room_.keep(std::move(request.into), std::move(handler), into);
  return begin_call(spec, std::move(request), std::move(handler), flags, into);
}

Ticket ChannelImpl::send(std::uint64_t tag, ByteVector body, TimePoint deadline, DoneHandler handler) {
  const Scope scope(*this, false);
  Status status = calls_.admission(Kind::kSend);
  OutFrame frame;
  frame.header.type = wire::FrameType::kUserMessage;
  frame.header.value = tag;
  Handle lent;
  if (status.ok()) status = lending_.put_body(frame, std::move(body), lent);
  if (!status.ok()) return calls_.refuse(Kind::kSend, std::move(handler), std::move(status));
  const auto [handle, pending] = calls_.add(Kind::kSend, std::move(handler), deadline);
  pending->lent = lent;
  return calls_.ask(handle, deadline, frame);
}

Ticket ChannelImpl::lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) {
  const Scope scope(*this, false);
  Status status = calls_.admission(Kind::kLookup);
  if (status.ok()) status = validate_name("region", name);
  if (status.ok() && !connection_.fits(name.size(), 0)) {
    status = Status(Code::kInvalidArgument, "the name of the region does not fit into a message");
  }
  if (!status.ok()) return calls_.refuse(Kind::kLookup, std::move(handler), std::move(status));
  OutFrame frame;
  frame.header.type = wire::FrameType::kRegionLookup;
  ByteWriter(frame.text).append(as_bytes(name));
  return calls_.ask(calls_.add(Kind::kLookup, std::move(handler), deadline).first, deadline, frame);
}

Ticket ChannelImpl::ping(TimePoint deadline, DoneHandler handler) {
  const Scope scope(*this, false);
  Status status = calls_.admission(Kind::kPing);
  if (!status.ok()) return calls_.refuse(Kind::kPing, std::move(handler), std::move(status));
  OutFrame frame;
  frame.header.type = wire::FrameType::kPing;
  return calls_.ask(calls_.add(Kind::kPing, std::move(handler), deadline).first, deadline, frame);
}

Ticket ChannelImpl::recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) {
  const Scope scope(*this, false);
  take_answers();  // puts messages that were given back into the inbox, in front of later ones
  // What has arrived can still be taken when nothing more comes.
  Status status = inbox_.would_wait(tag) ? calls_.admission(Kind::kRecv) : Status();
  if (status.ok() && calls_.receives() >= connection_.options().max_calls)
    status = Status(Code::kResourceExhausted, str(calls_.receives(), " receives wait already"));
  if (!status.ok()) return calls_.refuse(Kind::kRecv, std::move(handler), std::move(status));
  const auto [handle, pending] = calls_.add(Kind::kRecv, std::move(handler), deadline);
  pending->tag = tag;
  calls_.watch(deadline);
  inbox_.add_receive(tag, handle);
  return Ticket{calls_.find(handle) != nullptr ? handle.packed() : 0};
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
  calls_.tell_cancelled(handle);
  calls_.fail(handle, Status(Code::kCancelled, "cancelled"));
}

// --------------------------------------------------------------------------------------------------- ending

// A call whose reply has come. Mostly nobody else is on the stack but on_message(), and nothing is to be told
// before it.
void ChannelImpl::finish_call(Handle handle, CallTable::Pending& pending, Payload&& reply) {
  if (depth_ != 1 || running_done_ || !completions_.empty() || connection_.ready() != ready_told_ ||
      connection_.closed_by_peer() != closing_told_)
    return calls_.finish(handle, {{}, std::move(reply), {}});
  CallHandler handler = calls_.take_call(handle, pending);
  // As run_done() calls it: from inside no function of ours.
  depth_ = 0;
  running_done_ = true;
  handler(std::move(reply));
  running_done_ = false;
  depth_ = 1;
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
  if (calls_.empty() != awaiting_told_ || connection_.closed()) return;
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

bool ChannelImpl::idle() const {
  return calls_.empty() && served_.empty() && lending_.empty() && puller_.empty() && outbox_.empty() &&
         inbox_.empty() && (streams_ == nullptr || streams_->all.empty());
}

ChannelCounters ChannelImpl::counters() const {
  ChannelCounters out = counters_;
  out.receives_given_back = box_->given_back();
  out.calls_failed = calls_.counters().calls_failed;
  out.stale_replies = calls_.counters().stale_replies;
  out.rendezvous = lending_.counters().rendezvous;
  out.answers_revoked = lending_.counters().revoked;
  out.pulled_bytes = puller_.counters().pulled_bytes;
  out.copied_bytes = lending_.counters().copied_bytes + puller_.counters().copied_bytes;
  out.over_budget = lending_.counters().over_budget + puller_.counters().over_budget;
  out.calls_in_flight = calls_.asked();
  out.queued_frames = outbox_.size();
  out.lent_buffers = lending_.size();
  out.held_bytes = account_->held();
  if (streams_ != nullptr) out.streams = streams_->all.size();
  return out;
}

}  // namespace slime::rpc
