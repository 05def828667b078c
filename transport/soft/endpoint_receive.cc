#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/str.h"
#include "transport/soft/endpoint.h"

namespace slime::transport::soft {
namespace {

constexpr std::uint64_t kEverything = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void SoftEndpoint::on_readable() noexcept {
  if (!working()) return;
  in_burst_ = true;
  prompt_ = true;
  std::size_t moved = read_in_place();
  while (working() && moved < limits::kTurnBytes) {
    if (moved > 0 && buffer_begin_ == buffer_end_ && payload_left_ == 0 && wire_->shows()) break;
    const std::size_t direct = direct_room();
    const std::size_t room = direct + buffer_room(direct);
    const Result<std::size_t> got = fill();
    if (!working()) break;
    if (!got) {
      lost(got.error());
      break;
    }
    counters_.bytes_received += *got;
    moved += *got;
    if (*got == room) expects_bulk_ = false;  // unless the frames that follow here are
    Bytes input(buffer_.get() + buffer_begin_, buffer_end_ - buffer_begin_);
    parse(input, kEverything);
    buffer_begin_ = buffer_end_ - input.size();
    if (*got < room) break;  // the wire is empty, or tells us in the next turn that it is not
  }
  in_burst_ = false;
  if (working()) fetch_awaited();
  if (working()) complete_sent();
  if (working()) flush();
}

// Parses what the wire shows where it lies. What is cut there goes through the buffer. Of fetches no more
// than the peer should be told of before the next: it asks for others while those behind are read.
std::size_t SoftEndpoint::read_in_place() {
  std::size_t moved = 0;
  const std::uint64_t fetched_most = fetched_ + limits::kFetchTold;
  while (working() && moved < limits::kTurnBytes && buffer_begin_ == buffer_end_ &&
         (awaited_.empty() || fetched_ < fetched_most)) {
    const Bytes there = wire_->peek();
    if (there.empty()) break;
    Bytes input = there;
    parse(input, fetched_most);
    const std::size_t used = there.size() - input.size();
    if (used == 0) break;
    wire_->skip(used);
    counters_.bytes_received += used;
    moved += used;
  }
  return moved;
}

void SoftEndpoint::on_writable() noexcept {
  if (!working()) return;
  want_write_ = false;
  flush();
}

void SoftEndpoint::on_broken(Status reason) noexcept { lost(reason); }

// The stream ended. After our goodbye that is what we waited for.
void SoftEndpoint::lost(const Status& cause) {
  if (!working()) return;
  if (goodbye_sent_)
    finish_close({});
  else
    break_now(peer_gone(cause));
}

// Holds the region that the payload goes into, until it is placed. Where the region refuses, the rest of a
// peer's write is thrown away, and a read of ours breaks the connection: its data has no place any more.
Pin SoftEndpoint::pin_payload() {
  Pin pin;
  if (payload_ == Payload::kWrite) {
    pin = Pin::for_peer(*payload_record_);
    if (!pin) {
      current_write_code_ = Code::kNotFound;
      payload_ = Payload::kDiscard;
    }
  } else if (payload_ == Payload::kRead) {
    pin = Pin::for_own(*payload_record_);
    if (!pin) break_now(Status(Code::kUnavailable, "a local region was closed while a read used it"));
  }
  return pin;
}

// What the next read may place straight where it belongs, and into the buffer behind that.
std::size_t SoftEndpoint::direct_room() const { return payload_ == Payload::kDiscard ? 0 : payload_left_; }
std::size_t SoftEndpoint::buffer_room(std::size_t direct) const {
  const std::size_t room = limits::kReceiveBufferBytes - (buffer_end_ - buffer_begin_);
  const bool discards = direct == 0 && payload_left_ > 0;
  return expects_bulk_ && !discards ? std::min(room, limits::kReceiveAroundBulk) : room;
}

// Reads the rest of a payload straight to where it belongs, and what follows into the buffer. A payload is
// only outstanding here when the buffer is empty.
Result<std::size_t> SoftEndpoint::fill() {
  if (buffer_begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + buffer_begin_, buffer_end_ - buffer_begin_);
    buffer_end_ -= buffer_begin_;
    buffer_begin_ = 0;
  }
  const Pin pin = pin_payload();
  if (!working()) return std::size_t{0};
  std::array<iovec, 2> parts;
  std::size_t count = 0;
  const std::size_t direct = direct_room();
  const std::size_t behind = buffer_room(direct);
  if (direct > 0) parts[count++] = {payload_to_, direct};
  if (behind > 0) parts[count++] = {buffer_.get() + buffer_end_, behind};
  const Result<std::size_t> got = wire_->read(std::span(parts.data(), count));
  if (!got) return got;
  const std::size_t placed = std::min(*got, direct);
  if (placed > 0 && payload_ == Payload::kRead) note_progress();
  payload_to_ += placed;
  payload_left_ -= placed;
  buffer_end_ += *got - placed;
  return got;
}

// Takes what it understands off the front of `input`, until so many bytes of fetches are dealt with and whole
// writes wait to be read.
void SoftEndpoint::parse(Bytes& input, std::uint64_t fetched_most) {
  while (working() && (awaited_.empty() || fetched_ < fetched_most)) {
    if (payload_ != Payload::kNone) {
      if (payload_left_ > 0) {
        if (input.empty()) return;
        take_payload(input);
      }
      if (working() && payload_left_ == 0) end_payload();
      continue;
    }
    if (input.size() < kHeaderBytes) return;
    const Result<FrameHeader> header =
        decode_header(input.first(kHeaderBytes), port_->pool->options().slot_bytes);
    if (!header) {
      corrupt(header.error().text());
      return;
    }
    input = input.subspan(kHeaderBytes);
    begin_frame(*header);
  }
}

// Moves payload bytes that came with their header.
void SoftEndpoint::take_payload(Bytes& input) {
  const Pin pin = pin_payload();
  if (!working()) return;
  const std::size_t bytes = std::min(payload_left_, input.size());
  if (payload_ == Payload::kRead) note_progress();
  if (payload_ != Payload::kDiscard) {
    std::memcpy(payload_to_, input.data(), bytes);
    payload_to_ += bytes;
  }
  input = input.subspan(bytes);
  payload_left_ -= bytes;
}

void SoftEndpoint::begin_frame(const FrameHeader& header) {
  if (header.type != FrameType::kFetch && !awaited_.empty()) {
    fetch_awaited();
    if (!working()) return;
  }
  frame_ = header;
  payload_left_ = header.payload_bytes;
  expects_bulk_ |= header.payload_bytes >= limits::kReceiveBulkBytes;
  switch (header.type) {
    case FrameType::kMessage:
      return begin_message(header);
    case FrameType::kWrite:
      return begin_write(header);
    case FrameType::kReadData:
      return begin_read_data(header);
    case FrameType::kCredit:
      on_grant(header.value);
      return;
    case FrameType::kCreditReturn:
      return on_credit_return(header);
    case FrameType::kImm:
      return on_imm_frame(header);
    case FrameType::kAck:
      return on_ack(header);
    case FrameType::kReadRequest:
      return on_read_request(header);
    case FrameType::kReadDone:
      return on_read_done(header);
    case FrameType::kGoodbye:
      return on_goodbye();
    case FrameType::kFetchAdd:
      return on_atomic_request(header, 0);
    case FrameType::kCompareSwap:
      payload_ = Payload::kExpected;
      payload_to_ = reinterpret_cast<std::byte*>(&expected_);
      return;
    case FrameType::kAtomicReply:
      return on_atomic_reply(header);
    case FrameType::kFetch:
      return begin_fetch(header);
    case FrameType::kFetched:
      on_fetched(header.value);
      return;
  }
}

void SoftEndpoint::end_payload() {
  const Payload kind = std::exchange(payload_, Payload::kNone);
  payload_record_.reset();
  if (kind == Payload::kMessage) {
    ReceiveSlot* slot = std::exchange(slot_, nullptr);
    ++counters_.messages_received;
    deliver({Message(Bytes(slot->memory(), frame_.payload_bytes), slot), 0, false});
    return;
  }
  if (kind == Payload::kExpected) return on_atomic_request(frame_, expected_);
  if (frame_.type == FrameType::kReadData) {
    asked_.front().received += frame_.payload_bytes;
    return;
  }
  if (kind == Payload::kFetch && end_fetch()) {
    if (frame_.flags == kFlagLast) current_write_ = 0;
    return;
  }
  if (working() && (frame_.flags & kFlagLast) != 0) {
    end_write();
    queue_ack(frame_.operation, current_write_code_, (frame_.flags & kFlagPatient) != 0);
  }
}

void SoftEndpoint::end_write() {
  current_write_ = 0;
  if (std::exchange(current_write_fetched_, false) && current_write_code_ == Code::kOk)
    ++counters_.fetched_copies;
}

void SoftEndpoint::corrupt(std::string_view what) {
  break_now(Status(Code::kCorrupt, str(who_.peer_name, " (", wire_text_, ") broke the protocol: ", what)));
}

// -------------------------------------------------------------------------------------- messages and credits

bool SoftEndpoint::use_credit(const FrameHeader& header) {
  if (received_ >= announced_) {
    corrupt("it sent more messages than it had credits");
    return false;
  }
  ++received_;
  if (header.flags == kFlagStarved) target_ = std::min(port_->pool->options().max_credits, target_ * 2);
  return true;
}

// Promises up to target_ credits besides the held ones, at most max_credits in all, if slots are
// free. Tells the peer before it runs out.
void SoftEndpoint::top_up() {
  if (!working()) return;
  const std::uint32_t wanted =
      std::min(target_ + held_credits_, std::max(target_, port_->pool->options().max_credits));
  while (account_->promised < wanted && port_->pool->promise(*account_)) ++granted_;
  if (announce_ || granted_ == announced_ || announced_ - received_ > target_ / 2) return;
  announce_ = true;
  schedule();
}

void SoftEndpoint::on_slot_free() noexcept { top_up(); }

void SoftEndpoint::begin_message(const FrameHeader& header) {
  if ((header.value != 0 && !on_grant(header.value)) || !use_credit(header)) return;
  slot_ = &port_->pool->take_slot(*account_);
  payload_ = Payload::kMessage;
  payload_to_ = slot_->memory();
  top_up();
}

bool SoftEndpoint::on_grant(std::uint64_t limit) {
  if (limit <= credit_limit_ || limit - credit_limit_ > limits::kMaxPoolSlots) {
    corrupt(str("it granted ", limit, " messages after ", credit_limit_));
    return false;
  }
  credit_limit_ = limit;
  if (credit_limit_ - credit_used_ > peer_.initial_credits) arm(last_send_ + limits::kCreditIdle);
  return true;
}

void SoftEndpoint::on_credit_return(const FrameHeader& header) {
  if (header.value == 0 || header.value > announced_ - received_)
    return corrupt(str("it gave back ", header.value, " credits"));
  received_ += header.value;
  target_ = port_->pool->options().base_credits;
  port_->pool->take_back(*account_, static_cast<std::uint32_t>(header.value));
  top_up();
}

void SoftEndpoint::on_imm_frame(const FrameHeader& header) {
  if (current_write_ != 0 && current_write_ != header.operation)
    return corrupt("a notification inside another write");
  const Code code = current_write_ != 0 ? current_write_code_ : Code::kOk;
  end_write();
  if (!use_credit(header)) return;
  queue_ack(header.operation, code);
  if (!working()) return;
  if (code == Code::kOk) {
    ++counters_.notifications_received;
    deliver({Message(), static_cast<std::uint32_t>(header.value), true});
  } else {
    port_->pool->take_back(*account_, 1);
  }
  top_up();
}

void SoftEndpoint::deliver(Arrived arrived) {
  if (receiver_ == nullptr || !arrived_.empty()) {
    arrived_.push_back(std::move(arrived));
    return;
  }
  if (!arrived.is_imm) return receiver_->on_message(std::move(arrived.message));
  hold_credit_ = false;
  receiver_->on_imm(arrived.imm);
  // The end of the endpoint has taken back all promised credits already.
  if (!hold_credit_ && state_ != State::kEnded) port_->pool->take_back(*account_, 1);
}

void SoftEndpoint::release_credits(std::uint32_t count) {
  SLIME_CHECK(loop_->in_loop());
  if (!working()) return;
  count = std::min(count, held_credits_);
  held_credits_ -= count;
  port_->pool->take_back(*account_, count);
  on_slot_free();
}

void SoftEndpoint::deliver_arrived() {
  Queue<Arrived> arrived = std::exchange(arrived_, {});
  while (!arrived.empty()) deliver(arrived.pop_front());
  top_up();
}

// -------------------------------------------------------------------------------------- one-sided operations

void SoftEndpoint::queue_ack(std::uint64_t operation, Code code, bool patient) {
  if (acks_.size() >= limits::kMaxOperations) return corrupt("it has more writes in flight than allowed");
  acks_.push_back({operation, code});
  if (!patient)
    acks_due_ = true;
  else if (!acks_due_)
    arm(loop_->now() + limits::kAckPatience);  // for a sender that did not send the next one
}

// The next part of a write that has begun, or the first of one.
bool SoftEndpoint::enter_write(const FrameHeader& header) {
  if (current_write_ == 0) {
    current_write_ = header.operation;
    current_write_code_ = Code::kOk;
  } else if (current_write_ != header.operation) {
    corrupt("a write inside another one");
    return false;
  }
  return true;
}

void SoftEndpoint::begin_write(const FrameHeader& header) {
  if (!enter_write(header)) return;
  payload_ = Payload::kDiscard;
  if (current_write_code_ != Code::kOk) return;
  payload_record_ =
      port_->device->regions.find(Handle::unpack(header.region), header.key, Rights::kRemoteWrite,
                                  header.offset, header.payload_bytes, current_write_code_);
  if (payload_record_ == nullptr) return;
  payload_ = Payload::kWrite;
  payload_to_ = payload_record_->data + header.offset;
}

void SoftEndpoint::on_ack(const FrameHeader& header) {
  const Handle handle = Handle::unpack(header.operation);
  OneSided* operation = operations_.find(handle);
  if (operation == nullptr || operation->kind != Kind::kWrite || !operation->sent)
    return corrupt("an answer to a write that it was not sent");
  if (header.value != 0 && !on_fetched(header.value)) return;
  note_progress();
  if (header.code == static_cast<std::uint8_t>(Code::kUnimplemented)) fetch_denied_ = true;
  if (header.code != 0) operation->failure = error_code_from_wire(header.code);
  complete_one_sided(handle, header.code == 0 ? Status() : refused_by_peer(*operation));
}

bool SoftEndpoint::take_request(const FrameHeader& header) {
  if (header.operation != last_request_ + 1) {
    corrupt("a request with a wrong number");
    return false;
  }
  if (answers_.size() >= limits::kReadWindow) {
    corrupt("more requests than allowed");
    return false;
  }
  last_request_ = header.operation;
  return true;
}

void SoftEndpoint::on_read_request(const FrameHeader& header) {
  if (!take_request(header)) return;
  Answer answer;
  answer.request = header.operation;
  answer.offset = header.offset;
  answer.length = header.value;
  answer.record = port_->device->regions.find(Handle::unpack(header.region), header.key, Rights::kRemoteRead,
                                              header.offset, header.value, answer.code);
  answers_.push_back(std::move(answer));
}

void SoftEndpoint::begin_read_data(const FrameHeader& header) {
  if (asked_.empty() || asked_.front().request != header.operation || asked_.front().copy == nullptr)
    return corrupt("data of a read that it was not asked for");
  const Asked& asked = asked_.front();
  if (header.offset != asked.received || header.payload_bytes > asked.copy->length_bytes - asked.received)
    return corrupt("data outside the read that it was asked for");
  payload_ = Payload::kRead;
  payload_record_ = static_cast<SoftRegion*>(asked.copy->local->impl())->shared_record();
  payload_to_ = asked.copy->local->data() + asked.copy->local_offset + asked.received;
}

void SoftEndpoint::on_read_done(const FrameHeader& header) {
  if (asked_.empty() || asked_.front().request != header.operation || asked_.front().copy == nullptr)
    return corrupt("the end of a read that it was not asked for");
  if (header.code == 0 && asked_.front().received != asked_.front().copy->length_bytes)
    return corrupt("the end of a read before its last byte");
  const Handle handle = asked_.pop_front().operation;
  OneSided* operation = operations_.find(handle);
  SLIME_CHECK(operation != nullptr);  // a read stays until all its requests are answered
  note_progress();
  --operation->asked;
  if (header.code != 0 && operation->failure == Code::kOk)
    operation->failure = error_code_from_wire(header.code);
  if (operation->asked > 0) return;
  if (operation->failure != Code::kOk)
    complete_one_sided(handle, refused_by_peer(*operation));
  else if (operation->next_copy == operation->copies.size())
    complete_one_sided(handle, {});
}

void SoftEndpoint::on_goodbye() {
  break_now(Status(Code::kUnavailable, str("closed by peer: ", who_.peer_name, " closed the connection")));
}

}  // namespace slime::transport::soft
