// What an endpoint learns from completions and from the side channel: messages, notifications, credits, ends.
#include <algorithm>

#include "base/str.h"
#include "transport/verbs/endpoint.h"
#include "transport/verbs/errors.h"

namespace slime::transport::verbs {

// ------------------------------------------------------------------------------------------- our own work

bool VerbsEndpoint::on_sent(const WorkId& id, const ibv_wc& completion) {
  if (messages_pair_ == nullptr || id.queue_pair > lanes_.size()) return false;
  QueuePair& pair = id.queue_pair == 0 ? *messages_pair_ : *lanes_[id.queue_pair - 1].pair;
  if (!pair.in_window(id.place)) return false;
  ++counters_.completions;
  prompt_ = true;
  const bool good = completion.status == IBV_WC_SUCCESS;
  if (QueuePair::Owner one; good && pair.reap_one(id.place, one)) {
    finish_one(one);
    schedule_after_completion();
    return true;
  }
  // Requests complete in order: with an error, all before it have succeeded.
  const bool succeeded = good || completion.status != IBV_WC_WR_FLUSH_ERR;
  finished_.clear();
  const std::uint32_t before = work_in_flight_;
  const std::uint32_t count = pair.reap(id.place, [&](const QueuePair::Owner& owner, bool) {
    if (owner.buffer != QueuePair::Owner::kNone) port_->give_buffer(owner.buffer);
    OneSided* operation = operations_.find(owner.operation);
    if (operation == nullptr) return;
    if (good) stalls_.note_progress(loop_->now());
    operation->in_flight -= owner.work_requests;
    finished_.push_back(owner.operation);
  });
  work_in_flight_ -= count;
  port_->gave_back(before, count);
  if (!good) fail_work(id, completion);
  complete_finished(succeeded, good);
  schedule_after_completion();
  return true;
}

// The usual completion: of one work request.
void VerbsEndpoint::finish_one(const QueuePair::Owner& owner) {
  port_->gave_back(work_in_flight_--, 1);
  if (owner.buffer != QueuePair::Owner::kNone) port_->give_buffer(owner.buffer);
  OneSided* const operation = operations_.find(owner.operation);
  if (operation == nullptr) return;
  stalls_.note_progress(loop_->now());
  --operation->in_flight;
  if (operation->succeeded()) complete_one_sided(*operation, Status());
}

// Urgent is what somebody may wait for: posts, grants, the end.
void VerbsEndpoint::schedule_after_completion() {
  const bool patient =
      life_.state() == EndpointLife::State::kOpen && messages_.empty() && !want_room_ &&
      credits_.wanted() == 0 && !peer_starved_ && !given_.low() && without_work_.empty() &&
      std::all_of(lanes_.begin(), lanes_.end(), [](Lane& lane) { return lane.backlog.empty(); });
  if (patient)
    schedule_housekeeping();
  else
    schedule();
}

// Those whose last request this was. The newest owner is the one that failed. By index, because a callback
// may post; none of them polls.
void VerbsEndpoint::complete_finished(bool succeeded, bool all) {
  if (!succeeded) return;
  const std::size_t failed = all || finished_.empty() ? 0 : 1;
  for (std::size_t i = 0; i + failed < finished_.size(); ++i) {
    OneSided* operation = operations_.find(finished_[i]);
    if (operation != nullptr && operation->succeeded()) complete_one_sided(*operation, Status());
  }
}

void VerbsEndpoint::count_error(ibv_wc_status status) {
  ++counters_.error_completions;
  if (status == IBV_WC_RNR_RETRY_EXC_ERR) ++counters_.receiver_not_ready;
  switch (blame_for(status)) {
    case Blame::kLocal:
      ++counters_.errors_local;
      break;
    case Blame::kRemote:
      ++counters_.errors_remote;
      break;
    case Blame::kPath:
      ++counters_.errors_path;
      break;
    case Blame::kPeer:
      ++counters_.errors_peer;
      break;
    case Blame::kDevice:
      ++counters_.errors_device;
      break;
    case Blame::kVictim:
      ++counters_.errors_victim;
      break;
  }
}

// Work that came back without an error before it: the device stopped the queue pair by itself.
Status VerbsEndpoint::flushed() const {
  if (goodbye_) return {Code::kUnavailable, "the peer closed the connection before it had taken everything"};
  if (!lost_.ok()) return {Code::kUnavailable, str("the peer ended or reset the connection: ", lost_.text())};
  return {Code::kUnavailable,
          "its queue pair was flushed, and neither the device nor the peer gave a reason. Cause: the device "
          "stopped the queue pair, because the peer asked for what it may not have, or the device was reset. "
          "Check: what the peer logged at that time; dmesg on this host"};
}

// Drivers call it many things when a request cannot leave, even a malformed request. A port that is down is
// the reason, unless the peer answered.
Status VerbsEndpoint::explain(const FailedWork& work, const ibv_wc& completion) const {
  Status error = completion_error(port_->context()->functions, completion, work);
  const Blame blame = blame_for(completion.status);
  if (blame == Blame::kRemote || blame == Blame::kPeer) return error;
  const Status port = port_->context()->probe_again();
  if (port.ok()) return error;
  return Status(Code::kUnavailable, str(port.text(), "; ", error.text()));
}

// The first error breaks the endpoint, and is what its operation ends with; those that were flushed behind it
// are its victims.
void VerbsEndpoint::fail_work(const WorkId& id, const ibv_wc& completion) {
  count_error(completion.status);
  if (completion.status == IBV_WC_WR_FLUSH_ERR) {
    if (working()) break_now(peer_gone(flushed()));
    return;
  }
  if (!working()) return;
  OneSided* failed = finished_.empty() ? nullptr : operations_.find(finished_.back());
  if (id.queue_pair == 0) failed = nullptr;
  std::string_view what = "message";
  if (failed != nullptr) {
    constexpr std::array<std::string_view, 4> kNames{"read", "write", "fetch_add", "compare_swap"};
    what = kNames[static_cast<std::size_t>(failed->kind)];
  }
  const Status error = explain({what, who_.peer_name, path()}, completion);
  if (failed != nullptr) failed->failure = error;
  break_fabric(unavailable(error));
}

// ---------------------------------------------------------------------------------------- what the peer sent

void VerbsEndpoint::on_received(std::uint32_t queue_pair, const ibv_wc& completion, ReceiveSlot& slot) {
  const bool usable = completion.status == IBV_WC_SUCCESS && !life_.ended();
  if (!usable) {
    port_->pool().put_back(slot);
    if (completion.status != IBV_WC_SUCCESS && completion.status != IBV_WC_WR_FLUSH_ERR && working()) {
      count_error(completion.status);
      const Status error = explain({"receive", who_.peer_name, path()}, completion);
      break_fabric(unavailable(error));
    }
    return;
  }
  prompt_ = true;
  if (queue_pair == 0)
    on_message_slot(completion, slot);
  else
    on_notification(completion, slot);
  schedule_after_completion();  // last: somebody may be waiting for what the receiver posted
}

void VerbsEndpoint::on_notification(const ibv_wc& completion, ReceiveSlot& slot) {
  port_->pool().put_back(slot);
  if (completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM) return corrupt("a message on a data queue pair");
  if (!given_.receive()) return corrupt("a notification without a credit");
  ++counters_.notifications_received;
  inbox_.deliver(be32toh(completion.imm_data));
}

void VerbsEndpoint::on_message_slot(const ibv_wc& completion, ReceiveSlot& slot) {
  const std::optional<MessageNote> note = (completion.wc_flags & IBV_WC_WITH_IMM) != 0
                                              ? MessageNote::decode(be32toh(completion.imm_data))
                                              : std::nullopt;
  const bool right = connected_ && note && completion.opcode == IBV_WC_RECV &&
                     completion.byte_len <= port_->pool().options().slot_bytes &&
                     (!note->control || completion.byte_len == 0);
  if (!right || (!note->control && given_.outstanding() == 0)) {
    port_->pool().put_back(slot);
    return corrupt(right ? "a message without a credit" : "a message of an unknown kind");
  }
  const std::int32_t ahead = note->ahead_of(credits_.limit());
  if (note->control) {
    port_->pool().put_back(slot);
    if (!got_hello_) {
      got_hello_ = true;
      life_.opened();
    }
  }
  // An older one than what the word said already is nothing new.
  if (ahead > 0) on_grant(credits_.limit() + static_cast<std::uint64_t>(ahead));
  if (note->control || note->woken) {
    awaiting_wake_ = false;
    // It had not seen yet how much of its grant was used.
    if (credits_.free() == 0 && port_->post_receives()) starve();
  }
  if (note->control) return;
  given_.receive();
  ++counters_.messages_received;
  counters_.bytes_received += completion.byte_len;
  if (note->starved) on_starved(given_.received());
  port_->pool().hand_out(slot, given_.account());
  inbox_.deliver(Message(Bytes(slot.memory(), completion.byte_len), &slot));
}

void VerbsEndpoint::release_credits(std::uint32_t count) {
  SLIME_CHECK(loop_->in_loop());
  if (!working()) return;
  given_.release(count);
  on_slot_free();
}

void VerbsEndpoint::corrupt(std::string_view what) {
  break_now(peer_gone(Status(Code::kCorrupt, str("it broke the protocol: ", what))));
}

// ------------------------------------------------------------------------------------------------- credits

void VerbsEndpoint::on_grant(std::uint64_t limit) {
  const SendCredits::Raise raise = credits_.raise(limit);
  if (raise == SendCredits::Raise::kOld) return;
  if (raise == SendCredits::Raise::kTooMany)
    return corrupt(str("it granted ", limit, " messages after ", credits_.limit()));
  if (credits_.has_spare()) timer_.arm(credits_.idle_at());
}

// The peer writes its grants into our word; while it is to wake us, what it writes is left alone, so that at
// most one wake-up is ever under way.
void VerbsEndpoint::look_for_grants() {
  if (!awaiting_wake_ && working()) on_grant(port_->words().read(place_.index));
}

void VerbsEndpoint::starve() {
  if (awaiting_wake_ || !got_hello_ || !working()) return;
  awaiting_wake_ = true;
  side_->send(SideFrameType::kStarved, credits_.limit());
}

void VerbsEndpoint::on_starved(std::uint64_t limit) {
  if (limit > given_.granted()) return corrupt(str("it says that it may send ", limit, " messages"));
  peer_starved_ = true;
  peer_limit_ = limit;
  given_.grow();
}

void VerbsEndpoint::on_credit_return(std::uint64_t count) {
  if (!given_.take_returned(count)) return corrupt(str("it gave back ", count, " credits"));
}

void VerbsEndpoint::on_slot_free() noexcept { schedule_housekeeping(); }

// -------------------------------------------------------------------------------------------- side channel

void VerbsEndpoint::on_side_frame(const SideFrame& frame) noexcept {
  if (!working()) return;
  switch (frame.type) {
    case SideFrameType::kReady:
      if (got_ready_) return corrupt("ready twice");
      got_ready_ = true;
      hello_due_ = true;
      break;
    case SideFrameType::kGoodbye:
      if (goodbye_) return corrupt("goodbye twice");
      goodbye_ = Goodbye{frame.a, frame.b};
      goodbye_by_ = deadline_after(loop_->now(), limits::kGoodbyeBound);
      timer_.arm(goodbye_by_);
      break;
    case SideFrameType::kStarved:
      on_starved(frame.a);
      break;
    case SideFrameType::kReturn:
      on_credit_return(frame.a);
      break;
    case SideFrameType::kUnreached:
      unreached_ = true;
      break_now(peer_gone(Status(Code::kUnavailable, "the peer got nothing from here over its device")));
      return;
  }
  schedule();
}

void VerbsEndpoint::on_side_broken(Status reason) noexcept {
  if (!working() || !lost_.ok()) return;
  if (goodbye_) return schedule();  // it closed; what it sent before still counts
  lost_ = peer_gone(reason);
  lost_at_poll_ = port_->polls();
  schedule();
}

// The peer closed. All that it sent has been acknowledged by our device, so it comes out of the queue soon.
void VerbsEndpoint::check_goodbye() {
  if (!goodbye_ || !working()) return;
  const bool all = counters_.messages_received >= goodbye_->messages &&
                   counters_.notifications_received >= goodbye_->notifications;
  if (!all && loop_->now() < goodbye_by_) return;
  break_now(Status(Code::kUnavailable, str("closed by peer: ", who_.peer_name, " closed the connection")));
}

}  // namespace slime::transport::verbs
