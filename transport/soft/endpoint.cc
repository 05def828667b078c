#include "transport/soft/endpoint.h"

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "transport/soft/region_key.h"

namespace slime::transport::soft {

SoftEndpoint::SoftEndpoint(std::shared_ptr<PortState> port, std::shared_ptr<CreditAccount> account,
                           const Parameters& peer, std::unique_ptr<Wire> wire, Introduction who)
    : link_(*this, std::move(port), std::move(account), peer, std::move(wire), std::move(who)),
      inbox_(link_.given),
      frames_(link_),
      ways_(link_),
      copies_(link_, ways_),
      messages_(link_, frames_),
      requests_(link_, frames_, ways_),
      writes_(link_, frames_, ways_),
      answers_(link_, frames_),
      incoming_writes_(link_, frames_),
      incoming_(link_, {inbox_, requests_, writes_, answers_, incoming_writes_}) {
  link_.timer.on_fire([this](TimePoint now, Nanos pause) { on_timer(now, pause); });
  link_.given.account().owner = this;
  link_.port->add(*this);
  link_.wire->start(*this);
}

SoftEndpoint::~SoftEndpoint() {
  SLIME_CHECK(link_.loop->in_loop());
  // the receiver may be destroyed already, so only operations are told of the end
  inbox_.drop_receiver();
  link_.break_now(Status(Code::kCancelled, "the endpoint was destroyed"));
  if (link_.life.broken()) end();
  link_.port->remove(*this);
}

void SoftEndpoint::set_receiver(Receiver& receiver) {
  inbox_.set_receiver(receiver);
  link_.schedule();
}

std::string SoftEndpoint::describe() const {
  return str(link_.who.local_name, link_.who.initiator ? " -> " : " <- ", link_.who.peer_name, " over ",
             link_.wire_text);
}

std::uint64_t SoftEndpoint::credits() const { return link_.gate.messages(in_flight()); }

// ----------------------------------------------------------------------------------------- posting

// Returns OK if more than `reserve` credits are free; else notes the refusal and returns its error.
Status SoftEndpoint::need_credit(std::uint64_t reserve) {
  if (link_.credits.free() > reserve) return {};
  link_.starved = true;
  ++link_.counters.credit_stalls;
  return link_.gate.refuse_for_credit(reserve);
}

// A refusal for want of credits makes the peer give more, but no caller waits for them.
bool SoftEndpoint::takes_long(std::uint64_t bytes) {
  const bool waits = link_.long_unsent > 0 && link_.long_unsent + bytes > limits::kLongMessageBytes;
  if (bytes > link_.long_bytes || waits || !link_.gate.has_room(in_flight())) return false;
  if (link_.credits.spares(slots_of(static_cast<std::uint32_t>(bytes), link_.peer.slot_bytes))) return true;
  link_.starved = true;
  return false;
}

Status SoftEndpoint::send(std::span<const Bytes> parts, Operation& operation, SendOptions options) {
  std::uint64_t total = 0;
  for (const Bytes part : parts) total += part.size();
  if (total > link_.peer.slot_bytes) [[unlikely]] {
    if (total > link_.long_bytes) return link_.checks.too_long(total, link_.peer.slot_bytes);
    SLIME_TRY(refusal());
    if (!takes_long(total)) return link_.checks.no_credit();
  }
  SLIME_TRY(refusal());
  SLIME_TRY(need_credit());
  if (messages_.send_now(parts, static_cast<std::uint32_t>(total), operation, options)) return {};
  SLIME_TRY(refusal());  // sending may have broken the connection
  messages_.queue(parts, static_cast<std::uint32_t>(total), operation, options);
  return {};
}

bool SoftEndpoint::done_now(Kind kind, std::span<const CopyBlock> copies) {
  OneSided record(kind, copies);
  return refusal().ok() && !copies.empty() &&
         link_.checks.check(copies, record.need(), record.one_pair).ok() &&
         copies_.copy_now(record, limits::kPromptCopyBytes);
}

Status SoftEndpoint::post_one_sided(OneSided& record, Operation& operation) {
  SLIME_TRY(refusal());
  bool one_pair = false;
  SLIME_TRY(link_.checks.check(record.blocks(), record.need(), one_pair));
  record.one_pair = one_pair && !record.copies.empty();
  if (record.has_imm) SLIME_TRY(need_credit(link_.credits.message_reserve()));
  if (copies_.copy_now(record, limits::kPromptFetchBytes)) {
    operation.mark_posted();
    link_.finish_later(operation);
    link_.schedule();
    return {};
  }
  if (!PostChecks::add_uses(record.regions())) return PostChecks::region_closed();
  operation.mark_posted();
  if (record.has_imm) {
    link_.credits.use();
    record.starved = std::exchange(link_.starved, false);
  }
  record.operation = &operation;
  record.bounds = link_.take_bounds(operation);
  EndpointCounters& counters = link_.counters;
  ++(record.atomic() ? counters.atomics : record.kind == Kind::kWrite ? counters.writes : counters.reads);
  link_.operations.add(record);
  ways_.ask_ahead(record);
  link_.schedule();
  return {};
}

Status SoftEndpoint::read(std::span<const CopyBlock> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of reads");
  OneSided record(Kind::kRead, copies);
  return post_one_sided(record, operation);
}

Status SoftEndpoint::write(std::span<const CopyBlock> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of writes");
  OneSided record(Kind::kWrite, copies);
  return post_one_sided(record, operation);
}

Status SoftEndpoint::write_with_imm(std::span<const CopyBlock> copies, std::uint32_t imm,
                                    Operation& operation) {
  OneSided record(Kind::kWrite, copies);
  record.has_imm = true;
  record.imm = imm;
  return post_one_sided(record, operation);
}

Status SoftEndpoint::fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) {
  OneSided record(Kind::kFetchAdd);
  record.value = add;
  return post_atomic(target, record, operation);
}

Status SoftEndpoint::compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                                  Operation& operation) {
  OneSided record(Kind::kCompareSwap);
  record.value = desired;
  record.expected = expected;
  return post_atomic(target, record, operation);
}

// Does not check the alignment of the peer's address, which only the peer knows: the peer checks
// it.
Status SoftEndpoint::post_atomic(const AtomicTarget& target, OneSided record, Operation& operation) {
  record.number =
      CopyBlock{target.local, target.local_offset, target.remote, target.remote_offset, kAtomicBytes};
  return post_one_sided(record, operation);
}

Result<RemoteRegion> SoftEndpoint::import_region(const RegionDescriptor& descriptor) {
  if (!link_.working()) return link_.gate.closed();
  return link_.checks.import(descriptor, unpack_key(descriptor.key));
}

void SoftEndpoint::release_credits(std::uint32_t count) {
  SLIME_CHECK(link_.loop->in_loop());
  if (!link_.working()) return;
  link_.given.release(count);
  link_.top_up();
}

// ------------------------------------------------------------------------------------------- turns

// Runs a turn of the endpoint. Called by the port, never inside a callback.
void SoftEndpoint::run() {
  link_.scheduled = false;
  if (link_.life.broken()) {
    end();
    link_.schedule();  // the next turn calls on_closed
    return;
  }
  if (inbox_.receiver() != nullptr) {
    inbox_.deliver_kept();
    link_.top_up();
  }
  if (link_.life.ended()) {
    if (inbox_.receiver() != nullptr && peer_has_left()) tell_closed();
    return;
  }
  link_.complete_finished();
  copies_.begin_turn();
  if (link_.working()) flush();
}

void SoftEndpoint::on_readable() noexcept {
  if (!link_.working()) return;
  link_.in_burst = true;
  messages_.be_prompt();
  const Status received = incoming_.receive();
  if (!received.ok()) frames_.lost(received);
  link_.in_burst = false;
  if (link_.working()) incoming_writes_.fetch_awaited();
  if (link_.working()) link_.complete_finished();
  if (link_.working()) flush();
}

void SoftEndpoint::on_writable() noexcept {
  if (!link_.working()) return;
  frames_.room_again();
  flush();
}

void SoftEndpoint::on_peer_memory() noexcept {
  if (link_.working()) link_.schedule();
}

void SoftEndpoint::flush() {
  link_.in_burst = true;
  std::size_t moved = 0;
  while (link_.working()) {
    copies_.run();  // copies need no room on the wire
    if (!link_.working()) break;
    if (!frames_.wire_full()) {
      stage();
      if (!link_.working()) break;
    }
    if (frames_.wire_full() || frames_.empty()) {
      // its callback may have posted more operations
      if (std::exchange(link_.completed_in_stage, false)) continue;
      break;
    }
    moved += frames_.send();
    if (!link_.working()) break;
    if (frames_.take_cut_answer()) answers_.cut();
    // Goes on although the wire is full: the callback of a write that completed may have posted
    // copies, which need no wire.
    if (!frames_.wire_full() && moved >= link_.port->pace.turn_bytes()) {
      link_.schedule_turn();
      break;
    }
  }
  link_.in_burst = false;
  // completes messages that callbacks of this burst have sent within send()
  if (link_.has_finished()) link_.schedule_turn();
  if (link_.working()) frames_.ask_for_room();
  settle();
}

// Places the next frames in the stream: small frames first, then at most one chunk of bulk data.
void SoftEndpoint::stage() {
  if (frames_.goodbye_staged()) return;
  stage_control();
  requests_.stage();
  messages_.stage();
  stage_bulk();
  if (link_.life.closing() && in_flight() == 0 && incoming_writes_.acked() && !frames_.full())
    frames_.push_goodbye();
}

void SoftEndpoint::stage_control() {
  FrameHeader header;
  // A message carries the grant if a message is next, so no frame is needed for it.
  if (link_.must_announce() && !messages_.next_may_go() && !frames_.small_full()) {
    header.type = FrameType::kCredit;
    header.value = link_.take_grant();
    frames_.push(header);
  }
  if (credits_to_return_ > 0 && !frames_.small_full()) {
    header.type = FrameType::kCreditReturn;
    header.value = std::exchange(credits_to_return_, 0);
    frames_.push(header);
  }
  if (link_.life.closing()) incoming_writes_.hurry_acks();
  incoming_writes_.stage_acks();
}

// Stages bulk data, in turns from our writes and from our answers to the peer's reads.
void SoftEndpoint::stage_bulk() {
  while (link_.working() && !frames_.bulk_full()) {
    answers_turn_ = !answers_turn_;
    const bool staged =
        answers_turn_ ? answers_.stage() || writes_.stage() : writes_.stage() || answers_.stage();
    if (!staged) return;
  }
}

void SoftEndpoint::settle() {
  if (!link_.working()) return;
  tell_waiting();
  if (inbox_.receiver() == nullptr || !link_.gate.has_room(in_flight())) return;
  if (link_.gate.reopen(link_.credits.wanted_are_free())) inbox_.receiver()->on_ready();
}

void SoftEndpoint::set_awaiting(bool awaiting) {
  SLIME_CHECK(link_.loop->in_loop());
  awaiting_ = awaiting;
  if (link_.working()) tell_waiting();
}

void SoftEndpoint::tell_waiting() {
  const bool waiting = in_flight() > 0 || link_.credits.wanted() > 0 || awaiting_;
  if (waiting != waiting_) link_.wire->set_waiting(waiting_ = waiting);
}

// -------------------------------------------------------------------------------------------- time

void SoftEndpoint::on_timer(TimePoint now, Nanos pause) {
  if (!link_.working()) return link_.schedule_turn();  // looks whether the peer has left
  link_.stalls.excuse(link_.operations.records(), pause, now);
  if (link_.life.closing() && now >= link_.life.close_by())
    return frames_.finish_close(link_.checks.cut_by_close());
  incoming_writes_.hurry_acks();
  TimePoint next = link_.life.close_by();
  credits_to_return_ += link_.credits.return_idle(now, next);
  messages_.expire(now, next);
  if (!link_.working() || !expire(now, next)) return;
  link_.timer.arm(next);
  link_.schedule();
}

// Counts it as progress of writes if the wire has fewer unacknowledged bytes than at the last look:
// over a slow link, a wire takes the bytes of writes long before the peer has them.
void SoftEndpoint::note_backlog(TimePoint now) {
  bool writes = false;
  link_.operations.records().for_each([&writes](Handle, const OneSided& operation) {
    writes = writes || (operation.kind == Kind::kWrite && operation.started);
  });
  const std::uint64_t before = std::exchange(backlog_bytes_, writes ? link_.wire->backlog_bytes() : 0);
  const bool comparable = std::exchange(backlog_at_, now) >= link_.stalls.last_progress();
  if (comparable && backlog_bytes_ < before && writes) link_.note_progress();
}

// Ends overdue operations. If the peer knows of one of them, breaks the link and returns false,
// because only a reset gives the operation's memory back.
bool SoftEndpoint::expire(TimePoint now, TimePoint& next) {
  note_backlog(now);
  const StallWatch::Late late = link_.stalls.look(link_.operations.records(), now, next, [](OneSided&) {});
  if (late.reset != nullptr) {
    link_.break_now(late.reset->reset_reason(link_.who.peer_name));
    return false;
  }
  for (const Handle handle : late.not_started) {
    const OneSided* operation = link_.operations.find(handle);
    if (operation == nullptr) continue;
    if (operation->has_imm) link_.credits.unuse();
    link_.complete_one_sided(handle, operation->bounds.not_started(link_.who.peer_name));
    if (!link_.working()) return false;
  }
  return true;
}

// ----------------------------------------------------------------------------------------- the end

void SoftEndpoint::close(Nanos bound) {
  SLIME_CHECK(link_.loop->in_loop());
  if (!link_.life.close(deadline_after(link_.loop->now(), bound))) return;
  link_.timer.arm(link_.life.close_by());
  link_.schedule_turn();
}

void SoftEndpoint::reset(Status reason) {
  SLIME_CHECK(link_.loop->in_loop());
  SLIME_CHECK(!reason.ok());
  link_.break_now(std::move(reason));
}

void SoftEndpoint::reset_if_using(const RegionRecord& record) {
  if (!link_.working() || !link_.operations.use(record.uses)) return;
  link_.break_now(
      Status(Code::kUnavailable, str("the connection to ", link_.who.peer_name,
                                     " was reset: a local region was closed while operations used it")));
}

// Ends a broken endpoint and completes its operations. Runs in a turn of its own: not inside an
// event of the wire or a callback.
void SoftEndpoint::end() {
  link_.life.end();
  link_.given.end();
  link_.memory = nullptr;
  left_inside_ = link_.wire->take_back();
  link_.wire.reset();
  link_.timer.cancel();
  complete_leftovers();
  if (ReceiveSlot* slot = incoming_.take_slot()) link_.port->pool->recycle(*slot);
  incoming_.drop_payload();
  link_.port->pool->close(link_.given.account());
}

void SoftEndpoint::complete_leftovers() {
  link_.complete_finished();
  const Status& leftover = link_.life.leftover();
  SLIME_CHECK(!leftover.ok());  // an operation that was not carried out must not complete with OK
  frames_.drop(leftover);
  messages_.drop(leftover);
  std::vector<Handle> handles;
  link_.operations.records().for_each([&](Handle handle, OneSided&) { handles.push_back(handle); });
  for (const Handle handle : handles) {
    const TimeBounds& bounds = link_.operations.find(handle)->bounds;
    link_.complete_one_sided(
        handle, bounds.passed == Overdue::kNo ? leftover : bounds.not_ended(link_.who.peer_name));
  }
}

void SoftEndpoint::tell_closed() {
  if (inbox_.receiver() == nullptr || !link_.life.tell_closed()) return;
  inbox_.drop_receiver()->on_closed(link_.life.error());
}

// Returns whether the peer is outside of copies of this side's memory, so that on_closed may be
// called. A peer that was stopped inside a copy may go on at any time, and the memory must keep its
// pages while its region is open (an adapter or other peers may use them). So on_closed waits until
// the peer has left the copy or has ended, or the region was closed. The peer does not report this:
// this side checks again and again, at growing intervals.
bool SoftEndpoint::peer_has_left() {
  link_.timer.cancel();
  if (left_inside_ == nullptr || !left_inside_->busy()) {
    left_inside_.reset();
    return true;
  }
  link_.timer.arm(deadline_after(link_.loop->now(), next_look_));
  next_look_ = std::min(2 * next_look_, limits::kLoanLookMost);
  return false;
}

}  // namespace slime::transport::soft
