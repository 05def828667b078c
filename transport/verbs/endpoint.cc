#include "transport/verbs/endpoint.h"

#include <algorithm>

#include "base/str.h"

namespace slime::transport::verbs {

VerbsEndpoint::VerbsEndpoint(Parts parts)
    : port_(std::move(parts.port)),
      loop_(port_->users_loop()),
      place_(parts.place),
      ours_(parts.ours),
      peer_(parts.peer),
      mtu_(parts.mtu),
      who_(std::move(parts.who)),
      id_(new_endpoint_id()),
      max_message_bytes_(std::min(peer_.slot_bytes, port_->staging().buffer_bytes())),
      checks_(port_->device().get(), id_, who_.peer_name),
      credits_(peer_.initial_credits),
      given_(port_->pool(), std::move(parts.account), 1),
      timer_(*loop_) {
  timer_.on_fire([this](TimePoint now, Nanos pause) { on_timer(now, pause); });
  given_.account().owner = this;
  port_->attach(place_, *this);
  pairs_ = std::make_shared<PairGroup>(port_, place_, given_.shared_account(), parts.queue_pairs, *this);
  for (std::size_t i = 0; i < parts.queue_pairs.size(); ++i)
    port_->attach(*pairs_, *this, static_cast<std::uint32_t>(i), parts.queue_pairs[i]->address().number);
  messages_pair_ = std::move(parts.queue_pairs.front());
  for (std::size_t i = 1; i < parts.queue_pairs.size(); ++i)
    lanes_.push_back({std::move(parts.queue_pairs[i]), {}});
  side_.reset(new SideChannel(std::move(parts.side), *this));  // a private base of ours
  side_text_ = side_->describe();
  side_->set_waiting(true);
  waiting_ = true;
  open_by_ = deadline_after(loop_->now(), limits::kHandshakeTimeout);
  timer_.arm(open_by_);
  pairs_->connect(std::move(parts.routes));
}

VerbsEndpoint::~VerbsEndpoint() {
  SLIME_CHECK(loop_->in_loop());
  loop_->cancel_timer(probe_timer_);
  inbox_.drop_receiver();  // the receiver may be gone: nobody hears of what follows but the operations
  if (working()) break_now(Status(Code::kCancelled, "the endpoint was destroyed"));
  if (life_.broken()) {
    bool at_device = false;  // memory of users is
    operations_.for_each([&](Handle, const OneSided& operation) {
      at_device = at_device || (operation.in_flight > 0 && !operation.left);
    });
    if (at_device) pairs_->leave_now();
    if (life_.broken()) end();
  }
  pairs_->disown();
  port_->forget(*this);
}

void VerbsEndpoint::set_receiver(Receiver& receiver) {
  inbox_.set_receiver(receiver);
  schedule();
}

std::string VerbsEndpoint::describe() const {
  return str(who_.local_name, who_.initiator ? " -> " : " <- ", who_.peer_name, " over verbs ", path());
}

// ------------------------------------------------------------------------------------------------- posting

// Only when there is a reason.
Status VerbsEndpoint::explain_refusal() {
  if (!life_.takes_posts()) return life_.error().ok() ? checks_.closed_here() : life_.error();
  want_room_ = true;
  return checks_.too_many();
}

// Leaves `reserve` credits.
Status VerbsEndpoint::need_credit(std::uint64_t reserve) {
  if (credits_.free() <= reserve) look_for_grants();
  if (credits_.free() > reserve) return {};
  credits_.want(reserve);
  ++counters_.credit_stalls;
  // A message that took the last credit says so itself; a notification cannot.
  if (messages_.empty()) starve();
  return checks_.no_credit();
}

std::uint64_t VerbsEndpoint::credits() const {
  if (!life_.takes_posts()) return 0;
  // Looking changes only what this side knows, never what it is.
  const_cast<VerbsEndpoint*>(this)->look_for_grants();
  return std::min<std::uint64_t>(credits_.free(), limits::kMaxOperations - in_flight());
}

TimePoint VerbsEndpoint::take_deadline(const Operation& operation) {
  const TimePoint now = loop_->now();
  credits_.note_send(now);
  const TimePoint deadline =
      operation.deadline != kNever ? operation.deadline : deadline_after(now, limits::kOperationDeadline);
  timer_.arm(deadline);
  return deadline;
}

TimeBounds VerbsEndpoint::take_bounds(const Operation& operation) {
  const TimePoint now = loop_->now();
  credits_.note_send(now);
  const TimeBounds bounds = TimeBounds::of(operation, now);
  timer_.arm(
      std::min(bounds.next_look(now, stalls_.last_progress()), deadline_after(now, limits::kStuckAfter)));
  return bounds;
}

Status VerbsEndpoint::send(std::span<const Bytes> parts, Operation& operation, SendOptions options) {
  std::uint64_t total = 0;
  for (const Bytes part : parts) total += part.size();
  if (total > max_message_bytes_) return checks_.too_long(total, max_message_bytes_);
  SLIME_TRY(refusal());
  SLIME_TRY(need_credit());
  if (std::exchange(prompt_, false) && !options.after_writes) {
    if (send_now(parts, static_cast<std::uint32_t>(total), operation)) return {};
    SLIME_TRY(refusal());  // it may have broken the connection
  }
  const Result<StagingPool::Buffer> buffer = port_->staging().take();
  if (!buffer) {
    want_room_ = true;
    port_->wait_for_buffer(*this);
    return buffer.status();
  }
  copy_parts(parts, buffer->data);
  operation.mark_posted();
  credits_.use();
  ++counters_.messages_sent;
  OutMessage message;
  message.operation = &operation;
  message.deadline = take_deadline(operation);
  message.barrier = options.after_writes ? next_sequence_ : 0;
  message.buffer = buffer->index;
  message.bytes = static_cast<std::uint32_t>(total);
  messages_.push_back(message);
  schedule();
  return {};
}

bool VerbsEndpoint::wants_flush_read(std::span<const Copy> copies) const {
  return port_->context()->options.flush_read && !copies.empty() &&
         allows(copies.back().remote->rights(), Rights::kRemoteRead);
}

bool VerbsEndpoint::worth_striping(std::span<const Copy> copies) const {
  if (lanes_.size() < 2) return false;
  std::uint64_t total = 0;
  for (const Copy& copy : copies) total += copy.length_bytes;
  return total >= limits::kStripeBytes && total / copies.size() >= limits::kStripePartBytes;
}

VerbsRegion& VerbsEndpoint::region_of(const Copy& copy) {
  return *static_cast<VerbsRegion*>(copy.local->impl());
}

Status VerbsEndpoint::check_copies(std::span<const Copy> copies, Rights need) const {
  SLIME_TRY(checks_.copies(copies, need));
  for (const Copy& copy : copies) {
    if (!region_of(copy).has_local_key()) SLIME_TRY(region_of(copy).registered());
  }
  return {};
}

// Checks a batch and takes it in, or refuses it. The record is to be completed, and handed to enqueue().
Status VerbsEndpoint::admit(Kind kind, std::span<const Copy> copies, bool notifies, Operation& operation,
                            OneSided*& record) {
  SLIME_TRY(refusal());
  const Rights need = kind >= Kind::kFetchAdd ? Rights::kReadWrite
                      : kind == Kind::kRead   ? Rights::kRemoteRead
                                              : Rights::kRemoteWrite;
  SLIME_TRY(check_copies(copies, need));
  if (notifies) SLIME_TRY(need_credit(credits_.message_reserve()));
  if (!PostChecks::add_uses(copies)) return PostChecks::region_closed();
  operation.mark_posted();
  if (notifies) credits_.use();
  const auto [handle, stored] = operations_.emplace();
  SLIME_CHECK(stored != nullptr);
  record = stored;
  record->self = handle;
  record->operation = &operation;
  record->kind = kind;
  record->batch = copies;
  record->has_imm = notifies;
  record->bounds = take_bounds(operation);
  record->sequence = next_sequence_++;
  return {};
}

// Of several that are idle always the same, which the device then knows best; the last, which has the
// shortest ring.
std::uint32_t VerbsEndpoint::least_busy_lane() const {
  std::uint32_t best = 0;
  std::size_t least = SIZE_MAX;
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    const std::size_t busy = lanes_[i].pair->in_flight() + lanes_[i].backlog.size();
    if (busy > least) continue;
    least = busy;
    best = i;
  }
  return best;
}

void VerbsEndpoint::enqueue(OneSided& record, bool striped) {
  record.striped = striped;
  const bool now = std::exchange(prompt_, false) && got_hello_ && !in_burst_;
  if (striped) {
    for (Lane& lane : lanes_) lane.backlog.push_back(record.self);
  } else {
    // Notifications come in the order of their posts, as messages do: one queue pair carries them all. The
    // first has room for many blocks.
    const bool first = record.has_imm || record.batch.size() > limits::kSideDepth / 2;
    const std::uint32_t number = first ? 0 : least_busy_lane();
    if (now && post_single(record, number)) return schedule_housekeeping();
    lanes_[number].backlog.push_back(record.self);
  }
  if (now) post_data();
  schedule_after_completion();
}

Status VerbsEndpoint::read(std::span<const Copy> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of reads");
  OneSided* record = nullptr;
  SLIME_TRY(admit(Kind::kRead, copies, false, operation, record));
  ++counters_.reads;
  enqueue(*record, worth_striping(copies));
  return {};
}

Status VerbsEndpoint::write(std::span<const Copy> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of writes");
  OneSided* record = nullptr;
  SLIME_TRY(admit(Kind::kWrite, copies, false, operation, record));
  ++counters_.writes;
  record->flush_read = wants_flush_read(copies);
  // A batch with a read that flushes it goes through one queue pair, which keeps that behind the data.
  enqueue(*record, !record->flush_read && worth_striping(copies));
  return {};
}

Status VerbsEndpoint::write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Operation& operation) {
  OneSided* record = nullptr;
  SLIME_TRY(admit(Kind::kWrite, copies, true, operation, record));
  ++counters_.writes;
  record->imm = imm;
  record->flush_read = wants_flush_read(copies);
  enqueue(*record, false);  // one queue pair keeps the notification behind the data
  return {};
}

Status VerbsEndpoint::post_atomic(Kind kind, const AtomicTarget& target, std::uint64_t compare_add,
                                  std::uint64_t swap, Operation& operation) {
  const Copy copy{target.local, target.local_offset, target.remote, target.remote_offset,
                  sizeof(std::uint64_t)};
  if (target.remote != nullptr &&
      (target.remote->access().base + target.remote_offset) % sizeof(std::uint64_t) != 0)
    return Status(Code::kInvalidArgument,
                  str("remote offset ", target.remote_offset, " is not at a multiple of 8 in the memory of ",
                      who_.peer_name));
  if (peer_.atomics == 0)
    return Status(Code::kUnimplemented, str("the device of ", who_.peer_name, " does no atomics"));
  if (target.local != nullptr && target.local->valid() && target.local->kind() != MemoryKind::kHost)
    return Status(Code::kUnimplemented, "atomics are for host memory");
  OneSided* record = nullptr;
  SLIME_TRY(admit(kind, {&copy, 1}, false, operation, record));
  ++counters_.atomics;
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
  if (!working()) return life_.error().ok() ? checks_.closed_here() : life_.error();
  return checks_.import(descriptor, unpack_keys(descriptor.key, descriptor.length_bytes));
}

void VerbsEndpoint::complete(Operation& operation, Status status) {
  if (!status.ok()) ++counters_.failed_operations;
  operation.finish(std::move(status));
}

void VerbsEndpoint::complete_one_sided(OneSided& done, Status status) {
  Operation& operation = *done.operation;
  PostChecks::drop_uses(done.copies());
  operations_.erase(done.self);
  complete(operation, std::move(status));
}

}  // namespace slime::transport::verbs
