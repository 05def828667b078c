// How an endpoint hands messages to the device, and what follows from that. One-sided work: endpoint_data.cc.
#include <algorithm>
#include <array>

#include "base/str.h"
#include "transport/verbs/chain.h"
#include "transport/verbs/endpoint.h"

namespace slime::transport::verbs {

void VerbsEndpoint::flush() {
  if (!working()) return;
  in_burst_ = true;
  prompt_ = false;
  if (got_hello_) {
    // Somebody may wait for what we have, and for nothing else that is done here. Messages leave first while
    // the peer has credits without those that they could bring.
    if (!peer_starved_ && !given_.low()) send_messages();
    post_data();
  }
  // What was freed is posted before it is promised.
  if (working() && port_->post_receives()) given_.top_up();
  if (working() && hello_due_ && connected_) hello_due_ = !send_control();
  if (working() && got_hello_) {
    send_messages();
    send_grant();
  }
  in_burst_ = false;
  complete_sent();
  if (!working()) return;
  advance_close();
  settle();
}

// ------------------------------------------------------------------------------------------------ messages

// A message without bytes: a hello, or grants that a starved peer waits for. It fills the peer's control
// slot.
bool VerbsEndpoint::send_control() {
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  const MessageNote note{static_cast<std::uint32_t>(given_.granted()), true, false, false};
  request.imm_data = htobe32(note.encode());
  if (!post_one(request, true)) return false;
  given_.announce();
  return true;
}

// The shortest way of a message to the device, for one that needs nothing of what the others may: no place in
// the queue, no buffer, no completion, no word about credits but the usual one. False: it has not left.
bool VerbsEndpoint::send_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation) {
  if (in_burst_ || !got_hello_ || hello_due_ || !messages_.empty() || peer_starved_ || credits_.free() == 1 ||
      given_.low() || total > std::min(messages_pair_->max_inline(), limits::kPromptBytes) ||
      messages_pair_->unsignaled() + 1 >= limits::kMessageSignalInterval)
    return false;
  std::array<std::byte, limits::kPromptBytes> bytes;  // the device takes them out during the post
  copy_parts(parts, bytes.data());
  ibv_sge source{address_of(bytes.data()), total, 0};
  ibv_send_wr request{};
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.send_flags = IBV_SEND_INLINE;
  request.sg_list = &source;
  request.num_sge = total > 0 ? 1 : 0;
  const MessageNote note{static_cast<std::uint32_t>(given_.granted()), false, false, false};
  request.imm_data = htobe32(note.encode());
  if (!post_one(request, false)) return false;
  operation.mark_posted();
  given_.announce();
  credits_.use();
  ++counters_.messages_sent;
  counters_.bytes_sent += total;
  credits_.note_send(loop_->now());
  sent_.push_back({&operation, true});
  schedule_housekeeping();
  return true;
}

// Asks for a completion after everything that was sent without one.
void VerbsEndpoint::send_nothing() {
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  post_one(request, true);
}

bool VerbsEndpoint::post_one(ibv_send_wr& request, bool signaled) {
  QueuePair& pair = *messages_pair_;
  if (pair.room() == 0 || port_->may_post(*this, work_in_flight_, 1) == 0) return false;
  request.wr_id = WorkId{place_.index, place_.generation, 0, pair.next_place()}.pack();
  if (signaled) request.send_flags |= IBV_SEND_SIGNALED;
  std::uint32_t accepted = 0;
  Status posted = pair.post(&request, 1, signaled ? 1 : 0, accepted);
  account(pair, QueuePair::Owner{Handle{}, accepted, QueuePair::Owner::kNone});
  ++counters_.doorbells;
  if (!posted.ok()) break_fabric(unavailable(posted));
  return posted.ok();
}

// Work that the device has taken.
void VerbsEndpoint::account(QueuePair& pair, const QueuePair::Owner& owner) {
  if (owner.work_requests == 0) return;
  pair.own(owner);
  port_->took(work_in_flight_, owner.work_requests);
  work_in_flight_ += owner.work_requests;
  counters_.work_requests += owner.work_requests;
}

bool VerbsEndpoint::barrier_passed(std::uint64_t barrier) {
  if (barrier == 0) return true;
  bool passed = true;
  operations_.for_each(
      [&](Handle, const OneSided& operation) { passed = passed && operation.sequence >= barrier; });
  return passed;
}

void VerbsEndpoint::send_messages() {
  while (!messages_.empty() && working() && barrier_passed(messages_.front().barrier)) {
    const auto queued =
        static_cast<std::uint32_t>(std::min<std::size_t>(messages_.size(), limits::kChainRequests));
    const std::uint32_t most =
        port_->may_post(*this, work_in_flight_, std::min(queued, messages_pair_->room()));
    if (most == 0) return;
    Chain& chain = port_->empty_chain();
    while (chain.count < most && barrier_passed(messages_.front().barrier)) {
      const OutMessage message = messages_.pop_front();
      chain.senders[chain.count] = {message.operation, message.buffer};
      add_message(message, chain);
    }
    given_.announce();
    const std::uint32_t accepted = post_chain(*messages_pair_, 0, chain);
    for (std::uint32_t i = 0; i < chain.count; ++i) {
      const Chain::Sender& sender = chain.senders[i];
      // An inline message is with the device already, a refused one never comes back from it.
      if (i >= accepted || chain.owners[i].buffer == QueuePair::Owner::kNone)
        port_->give_buffer(sender.buffer);
      sent_.push_back({sender.operation, i < accepted});
    }
  }
}

void VerbsEndpoint::add_message(const OutMessage& message, Chain& chain) {
  const std::uint32_t place = chain.count;
  const StagingPool::Buffer buffer = port_->staging().buffer(message.buffer);
  ibv_send_wr& request = chain.add(IBV_WR_SEND_WITH_IMM);
  request.sg_list[0] = {address_of(buffer.data), message.bytes, buffer.lkey};
  request.num_sge = message.bytes > 0 ? 1 : 0;
  const bool last_credit = !awaiting_wake_ && credits_.free() == 0 && messages_.empty();
  awaiting_wake_ = awaiting_wake_ || last_credit;
  const bool wakes = peer_starved_ && given_.granted() > peer_limit_;
  peer_starved_ = peer_starved_ && !wakes;
  const MessageNote note{static_cast<std::uint32_t>(given_.granted()), false, last_credit, wakes};
  request.imm_data = htobe32(note.encode());
  counters_.bytes_sent += message.bytes;
  const bool fits = message.bytes <= messages_pair_->max_inline();
  if (fits) request.send_flags = IBV_SEND_INLINE;
  // A buffer comes back with a completion; without one, some messages go by before any is asked for.
  if (!fits || messages_pair_->unsignaled() + chain.count >= limits::kMessageSignalInterval)
    request.send_flags |= IBV_SEND_SIGNALED;
  chain.owners[place] = {Handle{}, 1, fits ? QueuePair::Owner::kNone : message.buffer};
  chain.owner_count = chain.count;
}

// Tells the peer what it may send, when no message of ours has.
void VerbsEndpoint::send_grant() {
  if (!working()) return;
  if (peer_starved_) {
    if (given_.granted() > peer_limit_ && send_control()) peer_starved_ = false;
    return;
  }
  if (!given_.unannounced() || !given_.low()) return;
  ibv_sge source = port_->words().source(place_.index, given_.granted());
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.sg_list = &source;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = peer_.credit_word;
  request.wr.rdma.rkey = peer_.credit_key;
  if (messages_pair_->max_inline() >= source.length) request.send_flags = IBV_SEND_INLINE;
  const bool signaled = messages_pair_->unsignaled() + 1 >= limits::kMessageSignalInterval;
  if (!post_one(request, signaled)) return;
  given_.announce();
  // A peer that is told again and again gets more at once, as if it had starved.
  const TimePoint now = loop_->now();
  if (now - std::exchange(last_grant_, now) < limits::kCreditIdle) given_.grow();
}

// Outside the flush: completions call whoever posted.
void VerbsEndpoint::complete_sent() {
  completing_.swap(sent_);
  for (const Sent& sent : completing_) complete(*sent.operation, sent.accepted ? Status() : life_.leftover());
  completing_.clear();
  if (without_work_.empty()) return;
  const std::vector<Handle> handles = std::exchange(without_work_, {});
  for (const Handle handle : handles) complete_one_sided(*operations_.find(handle), Status());
}

// Returns how many the device took; fewer than all break the endpoint.
std::uint32_t VerbsEndpoint::post_chain(QueuePair& pair, std::uint32_t number, Chain& chain) {
  std::uint32_t signaled_end = 0;
  for (std::uint32_t i = 0; i < chain.count; ++i) {
    ibv_send_wr& request = chain.requests[i];
    request.wr_id = WorkId{place_.index, place_.generation, number, pair.next_place() + i}.pack();
    request.next = i + 1 < chain.count ? &chain.requests[i + 1] : nullptr;
    if ((request.send_flags & IBV_SEND_SIGNALED) != 0) signaled_end = i + 1;
  }
  std::uint32_t accepted = 0;
  Status posted = pair.post(chain.requests.data(), chain.count, signaled_end, accepted);
  ++counters_.doorbells;
  std::uint32_t left = accepted;
  for (std::uint32_t i = 0; i < chain.owner_count; ++i) {
    QueuePair::Owner owner = chain.owners[i];
    const std::uint32_t refused = owner.work_requests - std::min(owner.work_requests, left);
    owner.work_requests -= refused;
    left -= owner.work_requests;
    account(pair, owner);
    if (OneSided* operation = refused > 0 ? operations_.find(owner.operation) : nullptr) {
      operation->in_flight -= refused;
      // What the device took of it may still succeed: the whole has not.
      operation->failure = unavailable(posted);
    }
  }
  if (!posted.ok()) break_fabric(unavailable(posted));
  return accepted;
}

// ----------------------------------------------------------------------------------------------- afterwards

void VerbsEndpoint::set_awaiting(bool awaiting) {
  SLIME_CHECK(loop_->in_loop());
  awaiting_ = awaiting;
  if (working()) tell_waiting();
}

// What the device retries for ever, and what it has delivered and only the peer's program can answer, ends
// when the side channel finds the peer silent. Where the side channel takes another path, a probe finds the
// device's path broken.
void VerbsEndpoint::tell_waiting() {
  const bool waiting =
      in_flight() > 0 || credits_.wanted() > 0 || awaiting_ || !got_hello_ || work_in_flight_ > 0;
  if (waiting != waiting_) side_->set_waiting(waiting_ = waiting);
  if (waiting_ && !probe_timer_) arm_probe();
}

void VerbsEndpoint::arm_probe() {
  heard_before_ = heard();
  const Nanos interval = keepalive_for(port_->pool().options().outage_tolerated).interval();
  probe_timer_ = loop_->add_timer(deadline_after(loop_->now(), interval), [this] { on_probe(); });
}

// A call that the peer has got leaves nothing for the device to repeat. So while work waits and nothing came
// for an interval, the device gets an empty write: the peer's device acknowledges it without its program, and
// a path that is gone ends it, and the connection, by the device's retransmissions. A request that has a
// completion to come is as good as that.
void VerbsEndpoint::on_probe() {
  probe_timer_ = TimerId{};
  if (!working() || !waiting_) return;  // tell_waiting() arms it again
  if (got_hello_ && heard() == heard_before_ && messages_pair_->in_flight() == messages_pair_->unsignaled())
    send_nothing();
  if (working()) arm_probe();
}

void VerbsEndpoint::settle() {
  if (!working()) return;
  tell_waiting();
  if (inbox_.receiver() == nullptr || !life_.takes_posts() || in_flight() >= limits::kMaxOperations) return;
  if (credits_.free() < credits_.wanted()) look_for_grants();
  const bool credit = credits_.wanted_are_free();
  // The last wake-up may have brought fewer credits than a notification needs. Messages that wait say it
  // themselves.
  if (credits_.wanted() > 0 && !credit && messages_.empty()) starve();
  if (!want_room_ && !credit) return;
  want_room_ = false;
  if (credit) credits_.forget_wanted();
  inbox_.receiver()->on_ready();
}

}  // namespace slime::transport::verbs
