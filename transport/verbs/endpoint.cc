#include "transport/verbs/endpoint.h"

#include <algorithm>
#include <utility>

#include "base/str.h"
#include "transport/verbs/regions.h"

namespace slime::transport::verbs {

VerbsEndpoint::VerbsEndpoint(EndpointParts parts)
    : link_(*this, parts),
      who_(std::move(parts.who)),
      max_message_bytes_(std::min(link_.peer.slot_bytes, link_.port->staging().buffer_bytes())),
      inbox_(link_.credits.given),
      credits_(link_),
      side_(link_, credits_),
      messages_(link_),
      data_(link_),
      completions_(link_, side_),
      arrivals_(link_, inbox_, credits_),
      silence_(link_) {
  link_.timer.on_fire([this](TimePoint now, Nanos pause) { on_timer(now, pause); });
  link_.credits.given.account().owner = this;
  link_.port->attach(link_.place, *this);
  for (std::uint32_t i = 0; i < link_.queues.pairs().size(); ++i)
    link_.port->attach(*link_.pairs, *this, i, link_.queues.pair(i).address().number);
  link_.side = std::make_unique<SideChannel>(std::move(parts.side), side_);
  silence_.start();
  link_.opening.by = deadline_after(link_.loop->now(), limits::kHandshakeTimeout);
  link_.timer.arm(link_.opening.by);
  link_.pairs->connect(std::move(parts.routes));
}

VerbsEndpoint::~VerbsEndpoint() {
  SLIME_CHECK(link_.loop->in_loop());
  // the receiver may be destroyed already, so it is not called from here on
  inbox_.drop_receiver();
  link_.break_now(Status(Code::kCancelled, "the endpoint was destroyed"));
  if (link_.life.broken()) {
    if (link_.operations.at_device()) link_.pairs->leave_now();
    end();
  }
  link_.pairs->disown();
  link_.port->forget(*this);
}

void VerbsEndpoint::set_receiver(Receiver& receiver) {
  inbox_.set_receiver(receiver);
  schedule();
}

std::string VerbsEndpoint::describe() const {
  return str(who_.local_name, who_.initiator ? " -> " : " <- ", who_.peer_name, " over verbs ",
             link_.path.text());
}

std::uint64_t VerbsEndpoint::credits() const {
  // look() only updates what this side knows of its credits, so a const function may call it.
  if (link_.life.takes_posts()) const_cast<VerbsEndpoint*>(this)->credits_.look();
  return link_.gate.messages(in_flight());
}

// ----------------------------------------------------------------------------------------- posting

Status VerbsEndpoint::send(std::span<const Bytes> parts, Operation& operation, SendOptions options) {
  std::uint64_t total = 0;
  for (const Bytes part : parts) total += part.size();
  if (total > max_message_bytes_) return link_.checks.too_long(total, max_message_bytes_);
  SLIME_TRY(refusal());
  SLIME_TRY(credits_.need(0, !messages_.empty()));
  const auto bytes = static_cast<std::uint32_t>(total);
  if (std::exchange(link_.prompt, false) && !options.after_writes) {
    if (messages_.send_now(parts, bytes, operation)) return {};
    SLIME_TRY(refusal());  // sending may have broken the connection
  }
  Status queued = messages_.queue(parts, bytes, operation, options);
  if (!queued.ok()) {
    link_.gate.want_room();
    link_.port->wait_for_buffer(*this);
    return queued;
  }
  schedule();
  return {};
}

// Checks a batch and adds it to the posted operations as `record`, or returns why not. The caller
// fills in the rest of the record and passes it to enqueue().
Status VerbsEndpoint::admit(Kind kind, std::span<const CopyBlock> copies, bool notifies, Operation& operation,
                            OneSided*& record) {
  SLIME_TRY(refusal());
  SLIME_TRY(link_.checks.copies(copies, rights_for(kind)));
  for (const CopyBlock& copy : copies) {
    if (!region_of(copy).has_local_key()) SLIME_TRY(region_of(copy).registered());
  }
  SendCredits& credits = link_.credits.ours;
  if (notifies) SLIME_TRY(credits_.need(credits.message_reserve(), !messages_.empty()));
  if (!PostChecks::add_uses(copies)) return PostChecks::region_closed();
  operation.mark_posted();
  if (notifies) credits.use();
  record = &link_.operations.add(operation, kind, copies);
  record->has_imm = notifies;
  link_.take_bounds(operation, record->bounds);
  return {};
}

void VerbsEndpoint::enqueue(OneSided& record, bool striped) {
  if (data_.add(record, striped))
    link_.schedule_housekeeping();
  else
    schedule_after_completion();
}

Status VerbsEndpoint::read(std::span<const CopyBlock> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of reads");
  OneSided* record = nullptr;
  SLIME_TRY(admit(Kind::kRead, copies, false, operation, record));
  ++link_.counters.reads;
  const bool striped = data_.worth_striping(copies);
  if (!striped) record->chunk = data_.read_chunk(copies);
  enqueue(*record, striped);
  return {};
}

Status VerbsEndpoint::write(std::span<const CopyBlock> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of writes");
  OneSided* record = nullptr;
  SLIME_TRY(admit(Kind::kWrite, copies, false, operation, record));
  ++link_.counters.writes;
  record->flush_read = data_.wants_flush_read(copies);
  // A batch with a flushing read is not striped, because one queue pair keeps the read behind the
  // data.
  enqueue(*record, !record->flush_read && data_.worth_striping(copies));
  return {};
}

Status VerbsEndpoint::write_with_imm(std::span<const CopyBlock> copies, std::uint32_t imm,
                                     Operation& operation) {
  OneSided* record = nullptr;
  SLIME_TRY(admit(Kind::kWrite, copies, true, operation, record));
  ++link_.counters.writes;
  record->imm = imm;
  record->flush_read = data_.wants_flush_read(copies);
  enqueue(*record, false);  // one queue pair keeps the notification behind the data
  return {};
}

Status VerbsEndpoint::post_atomic(Kind kind, const AtomicTarget& target, std::uint64_t compare_add,
                                  std::uint64_t swap, Operation& operation) {
  const CopyBlock copy{target.local, target.local_offset, target.remote, target.remote_offset,
                       sizeof(std::uint64_t)};
  if (target.remote != nullptr &&
      (target.remote->access().base + target.remote_offset) % sizeof(std::uint64_t) != 0)
    return Status(Code::kInvalidArgument,
                  str("remote offset ", target.remote_offset, " is not at a multiple of 8 in the memory of ",
                      who_.peer_name));
  if (link_.peer.atomics == 0)
    return Status(Code::kUnimplemented, str("the device of ", who_.peer_name, " does no atomics"));
  if (target.local != nullptr && target.local->valid() && target.local->kind() != MemoryKind::kHost)
    return Status(Code::kUnimplemented, "atomics are for host memory");
  OneSided* record = nullptr;
  SLIME_TRY(admit(kind, {&copy, 1}, false, operation, record));
  ++link_.counters.atomics;
  record->atomic = {copy, compare_add, swap};
  record->batch = {};
  enqueue(*record, false);
  return {};
}

Status VerbsEndpoint::fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) {
  return post_atomic(Kind::kFetchAdd, target, add, 0, operation);
}

Status VerbsEndpoint::compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                                   Operation& operation) {
  return post_atomic(Kind::kCompareSwap, target, expected, desired, operation);
}

Result<RemoteRegion> VerbsEndpoint::import_region(const RegionDescriptor& descriptor) {
  if (!link_.working()) return link_.gate.closed();
  return link_.checks.import(descriptor, unpack_keys(descriptor.key, descriptor.length_bytes));
}

void VerbsEndpoint::release_credits(std::uint32_t count) {
  SLIME_CHECK(link_.loop->in_loop());
  if (!link_.working()) return;
  link_.credits.given.release(count);
  on_slot_free();
}

void VerbsEndpoint::set_awaiting(bool awaiting) {
  SLIME_CHECK(link_.loop->in_loop());
  silence_.set_awaiting(awaiting);
  if (link_.working()) silence_.update(in_flight() > 0);
}

// ------------------------------------------------------------------------------------------- turns

bool VerbsEndpoint::on_sent(const WorkId& id, const ibv_wc& completion) {
  if (!completions_.take(id, completion)) return false;
  schedule_after_completion();
  return true;
}

void VerbsEndpoint::on_received(std::uint32_t queue_pair, const ibv_wc& completion, ReceiveSlot& slot) {
  // Schedules the turn after the receiver has run: it may have posted operations for which a caller
  // waits.
  if (arrivals_.take(queue_pair, completion, slot)) schedule_after_completion();
}

// Schedules a turn of the endpoint: at once if the endpoint has posts to make or credits to grant,
// or is closing, because a caller may wait for that; otherwise after the next polls.
void VerbsEndpoint::schedule_after_completion() {
  const CreditBook& credits = link_.credits;
  const bool patient = data_.idle() && link_.life.state() == EndpointLife::State::kOpen &&
                       messages_.empty() && !link_.gate.wants_room() && credits.ours.wanted() == 0 &&
                       !credits.peer_starved() && !credits.given.low();
  if (patient)
    link_.schedule_housekeeping();
  else
    schedule();
}

// Runs one turn of the endpoint. The port calls it, never inside of a callback.
void VerbsEndpoint::run() {
  link_.begin_turn();
  if (link_.life.broken()) {
    link_.side.reset();  // closing the side channel tells the peer at once
    if (!link_.pairs->gone()) return link_.pairs->check();
    end();
    return schedule();  // a turn of its own calls on_closed()
  }
  inbox_.deliver_kept();
  if (link_.life.ended()) return tell_closed();
  if (side_.look_for_end()) flush();
}

void VerbsEndpoint::flush() {
  if (!link_.working()) return;
  const Opening& opening = link_.opening;
  link_.in_burst = true;
  link_.prompt = false;
  if (opening.got_hello) {
    // Messages leave first, because a caller may wait for them. If the peer has few credits left,
    // they leave further below, after the freed slots were posted, and bring it new credits.
    if (!link_.credits.peer_starved() && !link_.credits.given.low()) messages_.run();
    data_.run();
  }
  // Posts freed slots before the peer is granted credits for them.
  if (link_.working() && link_.port->post_receives()) link_.credits.given.top_up();
  if (link_.working() && opening.hello_due && opening.connected)
    link_.opening.hello_due = !credits_.send_control();
  if (link_.working() && opening.got_hello) {
    messages_.run();
    credits_.send_grant();
  }
  link_.in_burst = false;
  complete_sent();
  if (!link_.working()) return;
  advance_close();
  settle();
}

void VerbsEndpoint::complete_sent() {
  messages_.complete_sent();
  data_.complete_empty();
}

void VerbsEndpoint::settle() {
  if (!link_.working()) return;
  silence_.update(in_flight() > 0);
  if (inbox_.receiver() == nullptr || !link_.gate.has_room(in_flight())) return;
  if (link_.gate.reopen(credits_.wanted_are_free(!messages_.empty()))) inbox_.receiver()->on_ready();
}

}  // namespace slime::transport::verbs
