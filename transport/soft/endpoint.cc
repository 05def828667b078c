#include "transport/soft/endpoint.h"

#include <algorithm>

#include "base/str.h"
#include "transport/copy_checks.h"

namespace slime::transport::soft {
SoftEndpoint::SoftEndpoint(std::shared_ptr<PortState> port, std::shared_ptr<CreditAccount> account,
                           const Parameters& peer, std::unique_ptr<Wire> wire, Introduction who)
    : port_(std::move(port)),
      loop_(port_->loop()),
      account_(std::move(account)),
      peer_(peer),
      who_(std::move(who)),
      id_(new_endpoint_id()),
      wire_(std::move(wire)),
      peer_memory_(wire_->peer_memory(port_->device->regions)),
      wire_text_(wire_->describe()),
      always_prompt_(wire_->cheap_writes()),
      credit_limit_(peer.initial_credits),
      granted_(account_->promised),
      announced_(account_->promised),
      target_(account_->promised),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(limits::kReceiveBufferBytes)) {
  account_->owner = this;
  port_->add(*this);
  wire_->start(*this);
}

SoftEndpoint::~SoftEndpoint() {
  SLIME_CHECK(loop_->in_loop());
  receiver_ = nullptr;  // the receiver may be gone: nobody hears of what follows but the operations
  if (working()) break_now(Status(Code::kCancelled, "the endpoint was destroyed"));
  if (state_ == State::kBroken) end();
  loop_->cancel_timer(timer_);
  port_->remove(*this);
}

void SoftEndpoint::set_receiver(Receiver& receiver) {
  SLIME_CHECK(receiver_ == nullptr);
  receiver_ = &receiver;
  schedule();
}

std::string SoftEndpoint::describe() const {
  return str(who_.local_name, who_.initiator ? " -> " : " <- ", who_.peer_name, " over ", wire_text_);
}

std::uint64_t SoftEndpoint::credits() const {
  if (state_ != State::kOpen) return 0;
  return std::min<std::uint64_t>(credit_limit_ - credit_used_, limits::kMaxOperations - in_flight());
}

// --------------------------------------------------------------------------------------------------- posting

void SoftEndpoint::schedule() {
  if (!in_burst_) schedule_turn();
}

void SoftEndpoint::schedule_turn(bool lazily) {
  if (!lazily) loop_->hurry();
  if (!std::exchange(scheduled_, true)) port_->schedule(*this);
}

Status SoftEndpoint::refusal() {
  SLIME_CHECK(loop_->in_loop());
  if (state_ != State::kOpen) {
    if (!close_called_ && !error_.ok()) return error_;
    return Status(Code::kCancelled, str("the connection to ", who_.peer_name, " was closed here"));
  }
  if (in_flight() >= limits::kMaxOperations) {
    want_room_ = true;
    return Status(Code::kResourceExhausted,
                  str(limits::kMaxOperations, " operations are in flight to ", who_.peer_name));
  }
  return {};
}

// Credits kept for messages, which go on while the peer holds the credits of notifications. None if
// the peer gives few credits.
std::uint64_t SoftEndpoint::message_credits() const {
  return peer_.initial_credits >= 2 * limits::kMessageCredits ? limits::kMessageCredits : 0;
}

// Succeeds if more than `reserve` credits are free.
Status SoftEndpoint::need_credit(std::uint64_t reserve) {
  if (free_credits() > reserve) return {};
  want_credits_ = want_credits_ == 0 ? reserve + 1 : std::min(want_credits_, reserve + 1);
  starved_ = true;
  ++counters_.credit_stalls;
  return Status(Code::kResourceExhausted,
                str(who_.peer_name, " has no free receive slot for us now: its credits are used up"));
}

TimePoint SoftEndpoint::take_deadline(const Operation& operation) {
  last_send_ = loop_->now();
  const TimePoint deadline = operation.deadline != kNever
                                 ? operation.deadline
                                 : deadline_after(last_send_, limits::kOperationDeadline);
  arm(deadline);
  return deadline;
}

TimeBounds SoftEndpoint::take_bounds(const Operation& operation) {
  last_send_ = loop_->now();
  const TimeBounds bounds = TimeBounds::of(operation, last_send_);
  arm(bounds.next_look(last_send_, last_progress_));
  return bounds;
}

Status SoftEndpoint::send(std::span<const Bytes> parts, Operation& operation, SendOptions options) {
  std::uint64_t total = 0;
  for (const Bytes part : parts) total += part.size();
  if (total > peer_.slot_bytes)
    return Status(Code::kInvalidArgument, str("a message of ", total, " bytes; ", who_.peer_name,
                                              " takes at most ", peer_.slot_bytes));
  SLIME_TRY(refusal());
  SLIME_TRY(need_credit());
  if ((std::exchange(prompt_, false) || always_prompt_) && !options.after_writes) {
    if (send_now(parts, static_cast<std::uint32_t>(total), operation, options.late_completion)) return {};
    SLIME_TRY(refusal());  // it may have broken the connection
  }
  operation.mark_posted();
  ++credit_used_;
  ++messages_in_flight_;
  OutMessage& message = messages_.push_back({});
  message.operation = &operation;
  message.deadline = take_deadline(operation);
  message.barrier = options.after_writes ? next_sequence_ : 0;
  message.header.type = FrameType::kMessage;
  message.header.payload_bytes = static_cast<std::uint32_t>(total);
  message.header.flags = std::exchange(starved_, false) ? kFlagStarved : 0;
  message.bytes = take_buffer();
  message.bytes.clear();
  for (const Bytes part : parts) message.bytes.insert(message.bytes.end(), part.begin(), part.end());
  schedule();
  return {};
}

RegionRecord& SoftEndpoint::record_of(const Copy& copy) {
  return static_cast<SoftRegion*>(copy.local->impl())->record();
}

Status SoftEndpoint::check_local(const Copy& copy) const {
  if (copy.local->impl()->device != port_->device.get())
    return Status(Code::kInvalidArgument, "the local region is registered with another device");
  if (static_cast<const SoftRegion*>(copy.local->impl())->record().uses.revoked())
    return Status(Code::kInvalidArgument, "the local region is closed");
  return {};
}

// A run of copies with one region counts as one use: batches mostly name few regions.
bool SoftEndpoint::add_uses(std::span<const Copy> copies) {
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (i > 0 && copies[i].local == copies[i - 1].local) continue;
    if (!record_of(copies[i]).uses.add_use()) {
      drop_uses(copies.first(i));
      return false;
    }
  }
  return true;
}

void SoftEndpoint::drop_uses(std::span<const Copy> copies) {
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (i > 0 && copies[i].local == copies[i - 1].local) continue;
    record_of(copies[i]).uses.drop_use();
  }
}

Status SoftEndpoint::check_blocks(const OneSided& record) const {
  const MemoryRegion* local = nullptr;
  for (const Copy& copy : record.blocks()) {
    SLIME_TRY(check_copy(copy, record.need(), id_, who_.peer_name));
    if (copy.local != local) SLIME_TRY(check_local(copy));
    local = copy.local;
  }
  return {};
}

bool SoftEndpoint::done_now(Kind kind, std::span<const Copy> copies) {
  OneSided record(kind, copies);
  if (!refusal().ok() || copies.empty() || !check_blocks(record).ok() ||
      !copy_now(record, limits::kPromptCopyBytes))
    return false;
  ++(kind == Kind::kWrite ? counters_.writes : counters_.reads);
  count_copy(record);
  return true;
}

Status SoftEndpoint::post_one_sided(OneSided& record, Operation& operation) {
  SLIME_TRY(refusal());
  SLIME_TRY(check_blocks(record));
  if (record.has_imm) SLIME_TRY(need_credit(message_credits()));
  if (copy_now(record, limits::kPromptFetchBytes)) {
    operation.mark_posted();
    ++(record.kind == Kind::kWrite ? counters_.writes : counters_.reads);
    count_copy(record);
    ++messages_in_flight_;
    sent_.push_back(&operation);
    schedule();
    return {};
  }
  if (!add_uses(record.blocks())) return Status(Code::kInvalidArgument, "the local region is closed");
  operation.mark_posted();
  if (record.has_imm) {
    ++credit_used_;
    record.starved = std::exchange(starved_, false);
  }
  record.operation = &operation;
  record.bounds = take_bounds(operation);
  record.sequence = next_sequence_++;
  const std::optional<Handle> handle = operations_.insert(record);
  SLIME_CHECK(handle.has_value());
  if (record.kind == Kind::kWrite) {
    ++counters_.writes;
    writes_.push_back(*handle);
  } else {
    ++(record.atomic() ? counters_.atomics : counters_.reads);
    requests_.push_back(*handle);
    open_requests_.push_back(*handle);
    // Its owner is asked now, so that the answer is there when its turn comes.
    if (peer_memory_ != nullptr && !record.atomic())
      static_cast<void>(peer_memory_->reach(record.blocks().front().remote->descriptor()));
  }
  schedule();
  return {};
}

Status SoftEndpoint::read(std::span<const Copy> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of reads");
  OneSided record(Kind::kRead, copies);
  return post_one_sided(record, operation);
}

Status SoftEndpoint::write(std::span<const Copy> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of writes");
  OneSided record(Kind::kWrite, copies);
  return post_one_sided(record, operation);
}

Status SoftEndpoint::write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Operation& operation) {
  OneSided record(Kind::kWrite, copies);
  record.has_imm = true;
  record.imm = imm;
  return post_one_sided(record, operation);
}

Result<RemoteRegion> SoftEndpoint::import_region(const RegionDescriptor& descriptor) {
  if (!working()) {
    if (!error_.ok()) return error_;
    return Status(Code::kCancelled, str("the connection to ", who_.peer_name, " was closed here"));
  }
  if (descriptor.id.generation == 0 || descriptor.key_count != 1 || descriptor.base != 0 ||
      descriptor.length_bytes == 0 ||
      static_cast<std::uint8_t>(descriptor.rights) > static_cast<std::uint8_t>(Rights::kReadWrite))
    return Status(Code::kInvalidArgument,
                  str("not a region of ", who_.peer_name, " on this transport: wrong provider, or damaged"));
  return RemoteRegion(descriptor, id_);
}

// ------------------------------------------------------------------------------------------------ completion

void SoftEndpoint::complete(Operation& operation, Status status) {
  if (!status.ok()) ++counters_.failed_operations;
  operation.finish(std::move(status));
}

void SoftEndpoint::complete_one_sided(Handle handle, Status status) {
  const std::optional<OneSided> done = operations_.take(handle);
  SLIME_CHECK(done.has_value());
  drop_uses(done->blocks());
  complete(*done->operation, std::move(status));
}

Status SoftEndpoint::refused_by_peer(const OneSided& operation) const {
  const std::string_view what = operation.atomic()              ? "remote atomic"
                                : operation.kind == Kind::kRead ? "read"
                                                                : "write";
  if (operation.failure == Code::kNotFound)
    return Status(Code::kNotFound, str(who_.peer_name, " refused a ", what,
                                       ": the region is not registered there (any more); ask for it again"));
  if (operation.failure == Code::kPermissionDenied)
    return Status(Code::kPermissionDenied,
                  str(who_.peer_name, " refused a ", what, ": wrong key, rights or bounds"));
  if (operation.failure == Code::kInvalidArgument && !operation.atomic())
    return Status(
        Code::kInvalidArgument,
        str("a ", what, " with ", who_.peer_name,
            " met memory that is not there: a region's pages were unmapped on one side, or the kernel "
            "reads them for no other process"));
  if (operation.failure == Code::kUnimplemented && operation.kind == Kind::kWrite)
    return Status(Code::kUnavailable, str(who_.peer_name,
                                          " may not read the memory of this process any more; "
                                          "the next write brings its bytes along"));
  if (operation.failure == Code::kInvalidArgument)
    return Status(Code::kInvalidArgument,
                  str(who_.peer_name, " refused a remote atomic: the address of its region plus offset ",
                      operation.number->remote_offset, " is not a multiple of 8"));
  return Status(operation.failure, str(who_.peer_name, " refused a ", what));
}

}  // namespace slime::transport::soft
