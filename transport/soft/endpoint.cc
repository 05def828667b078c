#include "transport/soft/endpoint.h"

#include <algorithm>
#include <atomic>

#include "base/str.h"

namespace slime::transport::soft {
namespace {

std::uint64_t next_endpoint_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

SoftEndpoint::SoftEndpoint(std::shared_ptr<PortState> port, std::shared_ptr<CreditAccount> account,
                           const Parameters& peer, std::unique_ptr<Wire> wire, Introduction who)
    : port_(std::move(port)),
      loop_(port_->loop()),
      account_(std::move(account)),
      peer_(peer),
      who_(std::move(who)),
      id_(next_endpoint_id()),
      wire_(std::move(wire)),
      wire_text_(wire_->describe()),
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

void SoftEndpoint::schedule_turn() {
  if (std::exchange(scheduled_, true)) return;
  port_->schedule(*this);
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

Status SoftEndpoint::need_credit() {
  if (credit_used_ < credit_limit_) return {};
  want_credit_ = true;
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

Status SoftEndpoint::send(std::span<const Bytes> parts, Operation& operation, SendOptions options) {
  std::uint64_t total = 0;
  for (const Bytes part : parts) total += part.size();
  if (total > peer_.slot_bytes)
    return Status(Code::kInvalidArgument, str("a message of ", total, " bytes; ", who_.peer_name,
                                              " takes at most ", peer_.slot_bytes));
  SLIME_TRY(refusal());
  SLIME_TRY(need_credit());
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

Status SoftEndpoint::check_copy(const Copy& copy, Rights need) const {
  if (copy.local == nullptr || !copy.local->valid() || copy.remote == nullptr)
    return Status(Code::kInvalidArgument, "a copy names no region");
  const auto* region = dynamic_cast<const SoftRegion*>(copy.local->impl());
  if (region == nullptr || region->device() != port_->device.get())
    return Status(Code::kInvalidArgument, "the local region is registered with another device");
  if (region->record().revoked()) return Status(Code::kInvalidArgument, "the local region is closed");
  if (copy.remote->endpoint_id() != id_)
    return Status(Code::kAborted, str("the remote region was asked for over another connection; ask ",
                                      who_.peer_name, " again"));
  if (!in_bounds(copy.local_offset, copy.length_bytes, copy.local->length_bytes()))
    return Status(Code::kInvalidArgument, str("local offset ", copy.local_offset, " + ", copy.length_bytes,
                                              " bytes is outside a region of ", copy.local->length_bytes()));
  if (!in_bounds(copy.remote_offset, copy.length_bytes, copy.remote->length_bytes()))
    return Status(Code::kInvalidArgument, str("remote offset ", copy.remote_offset, " + ", copy.length_bytes,
                                              " bytes is outside a region of ", copy.remote->length_bytes()));
  if (!allows(copy.remote->rights(), need))
    return Status(Code::kPermissionDenied,
                  str(who_.peer_name, " does not allow ", need == Rights::kRemoteRead ? "reading" : "writing",
                      " this region"));
  return {};
}

Status SoftEndpoint::check_copies(std::span<const Copy> copies, Rights need) const {
  for (const Copy& copy : copies) SLIME_TRY(check_copy(copy, need));
  return {};
}

// A run of copies with one region counts as one use: batches mostly name few regions.
bool SoftEndpoint::add_uses(std::span<const Copy> copies) {
  for (std::size_t i = 0; i < copies.size(); ++i) {
    if (i > 0 && copies[i].local == copies[i - 1].local) continue;
    if (!record_of(copies[i]).add_use()) {
      drop_uses(copies, i);
      return false;
    }
  }
  return true;
}

void SoftEndpoint::drop_uses(std::span<const Copy> copies, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0 && copies[i].local == copies[i - 1].local) continue;
    record_of(copies[i]).drop_use();
  }
}

Status SoftEndpoint::post_one_sided(std::span<const Copy> copies, Operation& operation, OneSided record) {
  SLIME_TRY(refusal());
  SLIME_TRY(check_copies(copies, record.is_read ? Rights::kRemoteRead : Rights::kRemoteWrite));
  if (record.has_imm) SLIME_TRY(need_credit());
  if (!add_uses(copies)) return Status(Code::kInvalidArgument, "the local region is closed");
  operation.mark_posted();
  if (record.has_imm) {
    ++credit_used_;
    record.starved = std::exchange(starved_, false);
  }
  record.operation = &operation;
  record.deadline = take_deadline(operation);
  record.sequence = next_sequence_++;
  record.copies = copies;
  const bool is_read = record.is_read;
  const std::optional<Handle> handle = operations_.insert(record);
  SLIME_CHECK(handle.has_value());
  if (is_read) {
    ++counters_.reads;
    reads_.push_back(*handle);
    open_reads_.push_back(*handle);
  } else {
    ++counters_.writes;
    writes_.push_back(*handle);
  }
  schedule();
  return {};
}

Status SoftEndpoint::read(std::span<const Copy> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of reads");
  OneSided record;
  record.is_read = true;
  return post_one_sided(copies, operation, record);
}

Status SoftEndpoint::write(std::span<const Copy> copies, Operation& operation) {
  if (copies.empty()) return Status(Code::kInvalidArgument, "an empty batch of writes");
  return post_one_sided(copies, operation, OneSided{});
}

Status SoftEndpoint::write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Operation& operation) {
  OneSided record;
  record.has_imm = true;
  record.imm = imm;
  return post_one_sided(copies, operation, record);
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
  drop_uses(done->copies, done->copies.size());
  complete(*done->operation, std::move(status));
}

Status SoftEndpoint::refused_by_peer(const OneSided& operation) const {
  const std::string_view what = operation.is_read ? "read" : "write";
  if (operation.failure == Code::kNotFound)
    return Status(Code::kNotFound, str(who_.peer_name, " refused a ", what,
                                       ": the region is not registered there (any more); ask for it again"));
  if (operation.failure == Code::kPermissionDenied)
    return Status(Code::kPermissionDenied,
                  str(who_.peer_name, " refused a ", what, ": wrong key, rights or bounds"));
  return Status(operation.failure, str(who_.peer_name, " refused a ", what));
}

// ---------------------------------------------------------------------------------------------------- the
// end

void SoftEndpoint::close(Nanos bound) {
  SLIME_CHECK(loop_->in_loop());
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  close_called_ = true;
  close_by_ = deadline_after(loop_->now(), bound);
  arm(close_by_);
  schedule_turn();
}

void SoftEndpoint::reset(Status reason) {
  SLIME_CHECK(loop_->in_loop());
  SLIME_CHECK(!reason.ok());
  break_now(std::move(reason));
}

void SoftEndpoint::reset_if_using(const RegionRecord& record) {
  if (!working()) return;
  bool uses = false;
  operations_.for_each([&](Handle, const OneSided& operation) {
    for (const Copy& copy : operation.copies) uses = uses || &record_of(copy) == &record;
  });
  if (!uses) return;
  break_now(
      Status(Code::kUnavailable, str("the connection to ", who_.peer_name,
                                     " was reset: a local region was closed while operations used it")));
}

// Stops all traffic at once; the operations complete in a later turn. Their regions are let go here, so that
// whoever closes one may free it as soon as close() returns.
void SoftEndpoint::break_now(Status reason) {
  if (!working()) return;
  state_ = State::kBroken;
  if (leftover_.ok()) {
    leftover_ = reason.code() == Code::kDeadlineExceeded
                    ? Status(Code::kUnavailable, str("reset: ", reason.text()))
                    : reason;
  }
  if (!close_called_) error_ = std::move(reason);
  operations_.for_each([](Handle, OneSided& operation) {
    drop_uses(operation.copies, operation.copies.size());
    operation.copies = {};
  });
  asked_ = {};
  schedule_turn();
}

// In a turn of its own, so outside the wire's events and every callback.
void SoftEndpoint::end() {
  state_ = State::kEnded;
  wire_.reset();
  loop_->cancel_timer(timer_);
  complete_leftovers();
  if (slot_ != nullptr) port_->pool->recycle(*std::exchange(slot_, nullptr));
  payload_record_.reset();
  port_->pool->close(*account_);
}

void SoftEndpoint::complete_leftovers() {
  SLIME_CHECK(!leftover_.ok());  // what did not happen must not look as if it had
  while (!staged_.empty()) {
    Operation* operation = staged_.pop_front().message.operation;
    if (operation == nullptr) continue;
    --messages_in_flight_;
    complete(*operation, leftover_);
  }
  while (!messages_.empty()) {
    Operation* operation = messages_.pop_front().operation;
    --messages_in_flight_;
    complete(*operation, leftover_);
  }
  std::vector<Handle> handles;
  operations_.for_each([&](Handle handle, OneSided&) { handles.push_back(handle); });
  for (const Handle handle : handles) {
    const bool expired = operations_.find(handle)->expired;
    complete_one_sided(handle, expired ? Status(Code::kDeadlineExceeded,
                                                str("no end of a one-sided operation with ", who_.peer_name,
                                                    " before its deadline; the connection was reset"))
                                       : leftover_);
  }
}

void SoftEndpoint::tell_closed() {
  if (receiver_ == nullptr || told_closed_) return;
  told_closed_ = true;
  std::exchange(receiver_, nullptr)->on_closed(close_called_ ? Status() : error_);
}

Status SoftEndpoint::peer_gone(const Status& cause) const {
  return Status(cause.code() == Code::kOk ? Code::kUnavailable : cause.code(),
                str("lost the connection to ", who_.peer_name, " (", wire_text_, "): ", cause.text()));
}

// Called by the port, never inside a callback.
void SoftEndpoint::run() {
  scheduled_ = false;
  if (state_ == State::kBroken) {
    end();
    schedule();  // on_closed comes in a turn of its own
    return;
  }
  if (receiver_ != nullptr) deliver_arrived();
  if (state_ == State::kEnded) {
    tell_closed();
    return;
  }
  flush();
}

// The bound of a close has passed, or nothing is left to wait for.
void SoftEndpoint::finish_close(Status leftover) {
  SLIME_CHECK(working());
  leftover_ = std::move(leftover);
  say_goodbye_now();
  break_now(Status(Code::kCancelled, "closed"));
}

// One attempt, at a frame boundary only: a half sent frame cannot be followed by anything.
void SoftEndpoint::say_goodbye_now() {
  if (goodbye_sent_ || !working()) return;
  if (!staged_.empty() && staged_.front().sent > 0) return;
  FrameHeader header;
  header.type = FrameType::kGoodbye;
  const iovec part{&header, sizeof header};
  goodbye_sent_ = true;
  wire_->write(std::span(&part, 1)).status().ignore();
}

void SoftEndpoint::settle() {
  if (!working()) return;
  const bool waiting = in_flight() > 0 || want_credit_;
  if (waiting != waiting_) wire_->set_waiting(waiting_ = waiting);
  if (receiver_ == nullptr || state_ != State::kOpen || in_flight() >= limits::kMaxOperations) return;
  if (!want_room_ && !(want_credit_ && credit_used_ < credit_limit_)) return;
  want_room_ = false;
  if (credit_used_ < credit_limit_) want_credit_ = false;
  receiver_->on_ready();
}

// -------------------------------------------------------------------------------------------------------
// time

// One timer for everything; it never fires late, sometimes early.
void SoftEndpoint::arm(TimePoint when) {
  if (when >= timer_due_) return;
  loop_->cancel_timer(timer_);
  timer_due_ = when;
  timer_ = loop_->add_timer(when, [this] { on_timer(); });
}

void SoftEndpoint::on_timer() {
  timer_ = TimerId{};
  timer_due_ = kNever;
  if (!working()) return;
  const TimePoint now = loop_->now();
  if (state_ == State::kClosing && now >= close_by_) {
    finish_close(Status(Code::kCancelled,
                        str("the connection to ", who_.peer_name, " was closed before this had completed")));
    return;
  }
  TimePoint next = state_ == State::kClosing ? close_by_ : kNever;
  return_idle_credits(now, next);
  expire_messages(now, next);
  if (!working() || !expire(now, next)) return;
  arm(next);
  schedule();
}

void SoftEndpoint::return_idle_credits(TimePoint now, TimePoint& next) {
  const std::uint64_t spare = credit_limit_ - credit_used_;
  if (spare <= peer_.initial_credits) return;
  const TimePoint idle = last_send_ + limits::kCreditIdle;
  if (now < idle) {
    next = std::min(next, idle);
    return;
  }
  const std::uint64_t back = spare - peer_.initial_credits;
  credit_used_ += back;
  credits_to_return_ += back;
}

// A message that is not on the wire is taken back; one that is half sent completes, but its bytes must go on.
void SoftEndpoint::expire_messages(TimePoint now, TimePoint& next) {
  std::vector<Operation*> expired;
  messages_.erase_if([&](const OutMessage& message) {
    if (message.deadline > now) {
      next = std::min(next, message.deadline);
      return false;
    }
    expired.push_back(message.operation);
    --credit_used_;
    return true;
  });
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    Staged& frame = staged_[i];
    if (frame.message.operation == nullptr) continue;
    if (frame.message.deadline > now)
      next = std::min(next, frame.message.deadline);
    else
      expired.push_back(std::exchange(frame.message.operation, nullptr));
  }
  messages_in_flight_ -= expired.size();
  for (Operation* operation : expired) {
    complete(*operation, Status(Code::kDeadlineExceeded,
                                str("a message could not be handed to the wire before its deadline: ",
                                    who_.peer_name, " does not read")));
  }
}

// False when an operation that the peer knows of is past its deadline: nothing but a reset gives its memory
// back.
bool SoftEndpoint::expire(TimePoint now, TimePoint& next) {
  std::vector<Handle> expired;
  bool started = false;
  operations_.for_each([&](Handle handle, OneSided& operation) {
    if (operation.deadline > now) {
      next = std::min(next, operation.deadline);
    } else if (operation.started) {
      operation.expired = true;
      started = true;
    } else {
      expired.push_back(handle);
    }
  });
  if (started) {
    break_now(Status(Code::kDeadlineExceeded,
                     str("a one-sided operation with ", who_.peer_name, " passed its deadline")));
    for (const Handle handle : expired) operations_.find(handle)->expired = true;
    return false;
  }
  for (const Handle handle : expired) {
    const OneSided* operation = operations_.find(handle);
    if (operation == nullptr) continue;
    if (operation->has_imm) --credit_used_;
    complete_one_sided(handle,
                       Status(Code::kDeadlineExceeded, str("a one-sided operation with ", who_.peer_name,
                                                           " could not start before its deadline")));
    if (!working()) return false;
  }
  return true;
}

}  // namespace slime::transport::soft
