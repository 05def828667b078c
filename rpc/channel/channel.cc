#include "rpc/channel.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "rpc/channel/channel_impl.h"

// Sends the requests of this side, and runs turns (rpc/channel/turn.h). docs/wire-format.md
// describes the protocol, rpc/README.md the invariants.
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
      owner_(owner),
      account_(std::make_shared<Account>(connection_.options().memory_bytes)),
      box_(std::make_shared<AnswerBox>(loop, static_cast<AnswerBox::Host*>(this), account_,
                                       connection_.message_bytes())),
      completions_(box_),
      names_(connection_.peer_name(), server),
      outbox_(connection_, *this, *this),
      lending_(connection_, *this, account_),
      inbox_(*this, lent_messages_, completions_, box_,
             {connection_.options().inbox_messages, connection_.options().inbox_bytes}),
      calls_(connection_, completions_, outbox_, lending_, *this, *this),
      contexts_(loop.clock()),
      room_(connection_),
      puller_(connection_, outbox_, room_, *this, server, account_),
      requests_({connection_, names_, outbox_, lending_, calls_, contexts_, room_}),
      lent_messages_({connection_, calls_, outbox_, puller_, inbox_, room_, *this}),
      messages_({connection_, calls_, outbox_, lending_, puller_, inbox_, room_, lent_messages_}),
      served_({connection_, names_, outbox_, lending_, puller_, streams_}, box_, server),
      streams_({connection_, completions_, outbox_, lending_, calls_, puller_, *this, served_}, box_) {}

void ChannelImpl::start() {
  const Scope scope(*this, false);
  wire::Hello hello;
  hello.max_requests =
      static_cast<std::uint32_t>(std::min<std::size_t>(connection_.options().max_calls, UINT32_MAX));
  hello.max_payload_bytes = connection_.options().max_payload_bytes;
  if (connection_.endpoint().long_message_bytes() == 0)
    hello.optional_features &= ~wire::kFeatureLongMessages;
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
  // Completes posted operations. Their objects must still exist; and callers that named memory must
  // hear of the end of their calls (run_done) only afterwards.
  connection_.destroy_endpoint();
  run_done();
}

// ------------------------------------------------------------------------------------------ asking

Ticket ChannelImpl::call(const CallSpec& spec, ByteVector body, CallHandler handler) {
  const Scope scope(*this, false);
  if (spec.context != nullptr || spec.signature != 0) [[unlikely]]
    return requests_.call(spec, {std::move(body)}, std::move(handler), 0);
  return requests_.call(spec, std::move(body), std::move(handler));
}

Ticket ChannelImpl::call_attached(const CallSpec& spec, AttachedBody request, CallHandler handler) {
  const Scope scope(*this, false);
  return requests_.call(spec, std::move(request), std::move(handler), 0);
}

Ticket ChannelImpl::call_one_way(const CallSpec& spec, AttachedBody request, DoneHandler handler) {
  const Scope scope(*this, false);
  return requests_.call_one_way(spec, std::move(request), std::move(handler));
}

Ticket ChannelImpl::stream(const CallSpec& spec, AttachedBody request, std::shared_ptr<StreamEnd> stream,
                           CallHandler handler) {
  const Scope scope(*this, false);
  CallHandler ends = streams_.end_with(stream, std::move(handler));
  if (!connection_.peer_has(wire::kFeatureStreams))
    return requests_.refuse_call(spec, std::move(ends), streams_.no_streams());
  const Ticket ticket = requests_.call(spec, std::move(request), std::move(ends), wire::kFlagStream);
  if (ticket.value != 0) streams_.add_opened(std::move(stream), ticket, spec.idle_timeout);
  return ticket;
}

Ticket ChannelImpl::send(std::uint64_t tag, ByteVector body, TimePoint deadline, DoneHandler handler) {
  const Scope scope(*this, false);
  return messages_.send(tag, std::move(body), deadline, std::move(handler));
}

Ticket ChannelImpl::recv(std::uint64_t tag, TimePoint deadline, DeliveryHandler handler) {
  const Scope scope(*this, false);
  // Puts messages that the user gave back into the inbox, in front of later messages.
  take_answers();
  return messages_.recv(tag, deadline, std::move(handler));
}

Ticket ChannelImpl::send_ranges(std::uint64_t tag, Attachments ranges, TimePoint deadline,
                                DoneHandler handler) {
  const Scope scope(*this, false);
  return messages_.send(tag, std::move(ranges), deadline, std::move(handler));
}

Ticket ChannelImpl::recv_into(std::uint64_t tag, Destinations into, TimePoint deadline,
                              LengthHandler handler) {
  const Scope scope(*this, false);
  take_answers();  // as in recv()
  return messages_.recv_into(tag, std::move(into), deadline, std::move(handler));
}

Ticket ChannelImpl::lookup_region(std::string_view name, TimePoint deadline, RegionHandler handler) {
  const Scope scope(*this, false);
  return requests_.lookup_region(name, deadline, std::move(handler));
}

Ticket ChannelImpl::ping(TimePoint deadline, DoneHandler handler) {
  const Scope scope(*this, false);
  return requests_.ping(deadline, std::move(handler));
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
  calls_.fail(handle, Status(Code::kCancelled, "its caller cancelled it"));
}

// ---------------------------------------------------------------------------------- the answer box

void ChannelImpl::take_answers() {
  const Scope scope(*this, true);
  AnswerBox::Waiting waiting = box_->take();
  for (AnswerBox::GivenBack& given : waiting.messages)
    inbox_.put_back(given.tag, given.number, std::move(given.message));
  for (const std::uint64_t key : waiting.streams) streams_.attend(key);
  served_.send_answers(std::move(waiting.answers));
}

void ChannelImpl::attend_user(std::uint64_t key) {
  const Scope scope(*this, false);
  streams_.attend(key);
}

void ChannelImpl::on_granted(Handle served) {
  const Scope scope(*this, true);
  puller_.on_granted(served);
}

// ------------------------------------------------------------------------------------------- turns

// Ends a call whose reply has arrived. Calls the handler at once if no other function of the
// channel is running and no other handler waits to be called; otherwise queues the handler.
void ChannelImpl::finish_call(Handle handle, CallTable::Pending& pending, Payload&& reply) {
  if (depth_ != 1 || running_done_ || !completions_.empty() || connection_.ready() != ready_told_ ||
      connection_.closed_by_peer() != closing_told_)
    return calls_.finish(handle, {{}, std::move(reply), {}});
  CallHandler handler = calls_.take_call(handle, pending);
  // Like run_done(), outside of any turn.
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

// Calls all queued handlers. They may use the channel, and this loop also calls the handlers that
// they add.
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

// `method`: null if unknown (older peers do not send the method's number).
void ChannelImpl::on_one_way_failed(Status status, const PeerMethod* method) {
  ++one_way_failed_;
  if (method != nullptr)
    status = std::move(status).with_context(method_label(method->service, method->method));
  if (!connection_.destroying()) owner_.on_one_way_failed(status);
}

bool ChannelImpl::idle() const {
  return calls_.empty() && served_.empty() && lending_.empty() && puller_.empty() && outbox_.empty() &&
         inbox_.empty() && streams_.empty() && held_.empty();
}

ChannelCounters ChannelImpl::counters() const {
  ChannelCounters out;
  out.calls = requests_.calls();
  out.requests = served_.requests();
  out.one_way_failed = one_way_failed_;
  out.receives_given_back = box_->given_back();
  out.calls_failed = calls_.counters().calls_failed;
  out.stale_replies = calls_.counters().stale_replies;
  out.rendezvous = lending_.counters().rendezvous;
  out.answers_revoked = lending_.counters().revoked;
  out.pulled_bytes = puller_.counters().pulled_bytes;
  out.copied_bytes = lending_.counters().copied_bytes + puller_.counters().copied_bytes;
  out.registrations = lending_.counters().registrations + puller_.counters().registrations;
  out.blocks_made = connection_.blocks().made();
  out.block_bytes = connection_.blocks().held_bytes();
  out.over_budget = lending_.counters().over_budget + puller_.counters().over_budget;
  out.calls_in_flight = calls_.asked();
  out.queued_frames = outbox_.size();
  out.lent_buffers = lending_.size();
  out.held_bytes = account_->held();
  out.streams = streams_.size();
  return out;
}

}  // namespace slime::rpc
