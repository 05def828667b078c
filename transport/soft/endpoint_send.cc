#include <algorithm>
#include <array>

#include "base/str.h"
#include "transport/soft/endpoint.h"

namespace slime::transport::soft {
namespace {

// What a peer gets for the rest of a promised part whose region was revoked meanwhile.
constexpr std::array<std::byte, limits::kChunkBytes> kZeros{};

// The regions that one write to the wire touches.
class PinSet {
 public:
  PinSet() = default;
  PinSet(const PinSet&) = delete;
  PinSet& operator=(const PinSet&) = delete;
  ~PinSet() {
    for (std::size_t i = 0; i < count_; ++i) records_[i]->unpin();
  }
  bool add(RegionRecord& record, bool own) {
    if (count_ > 0 && records_[count_ - 1] == &record && own_ == own) return true;
    if (!(own ? record.pin_for_own() : record.pin_for_peer())) return false;
    records_[count_++] = &record;
    own_ = own;
    return true;
  }

 private:
  std::array<RegionRecord*, limits::kBurstFrames> records_;
  std::size_t count_ = 0;
  bool own_ = false;
};

}  // namespace

// The shortest way of a message to the wire, for one that has nothing in front of it: no place in a queue and
// no buffer. False: it has not left.
bool SoftEndpoint::send_now(std::span<const Bytes> parts, std::uint32_t total, Operation& operation,
                            bool late_completion) {
  std::array<iovec, limits::kPromptParts + 1> pieces;
  if (want_write_ || (in_burst_ && !always_prompt_) || !staged_.empty() || !messages_.empty() ||
      total > limits::kPromptBytes || parts.size() > limits::kPromptParts)
    return false;
  FrameHeader header;
  header.type = FrameType::kMessage;
  header.payload_bytes = total;
  header.flags = starved_ ? kFlagStarved : 0;
  header.value = granted_ == announced_ ? 0 : granted_;
  pieces[0] = {&header, kHeaderBytes};
  for (std::size_t i = 0; i < parts.size(); ++i)
    pieces[i + 1] = {const_cast<std::byte*>(parts[i].data()), parts[i].size()};
  const Result<std::size_t> taken = wire_->write(std::span(pieces).first(parts.size() + 1));
  if (!taken) {
    lost(taken.error());
    return false;
  }
  if (*taken == 0) return false;
  starved_ = false;
  take_grant();
  operation.mark_posted();
  ++credit_used_;
  ++messages_in_flight_;
  counters_.bytes_sent += *taken;
  if (*taken == kHeaderBytes + total) {
    ++counters_.messages_sent;
    sent_.push_back(&operation);
  } else {
    // The rest is the next that the wire gets.
    Staged& frame = push_staged(header);
    frame.message.bytes = take_buffer();
    frame.message.bytes.resize(total);
    copy_parts(parts, frame.message.bytes.data());
    frame.data = frame.message.bytes.data();
    frame.message.operation = &operation;
    frame.message.deadline = take_deadline(operation);
    frame.sent = *taken;
    late_completion = false;
  }
  if (!in_burst_) schedule_turn(late_completion);
  return true;
}

// Outside of every post.
void SoftEndpoint::complete_sent() {
  if (sent_.empty()) return;
  last_send_ = loop_->now();
  completing_.swap(sent_);
  for (Operation* operation : completing_) {
    --messages_in_flight_;
    complete(*operation, {});
  }
  completing_.clear();
}

void SoftEndpoint::flush() {
  in_burst_ = true;
  std::size_t moved = 0;
  while (working()) {
    copy_directly();  // which needs no room on the wire
    if (!working()) break;
    if (want_write_) {
      if (std::exchange(completed_in_stage_, false)) continue;  // its callback may have posted more
      break;
    }
    stage();
    if (!working()) break;
    if (staged_.empty()) {
      if (std::exchange(completed_in_stage_, false)) continue;  // its callback may have posted more
      break;
    }
    std::size_t offered = 0;
    for (std::size_t i = 0; i < staged_.size(); ++i) offered += staged_[i].size() - staged_[i].sent;
    const Result<std::size_t> taken = write_staged();
    if (!working()) break;
    if (!taken) {
      lost(taken.error());
      break;
    }
    counters_.bytes_sent += *taken;
    consume(*taken);
    if (!working()) break;
    if (*taken < offered) {
      want_write_ = true;
      continue;  // what completed with this write may have posted copies
    }
    moved += *taken;
    if (moved >= limits::kTurnBytes) {
      schedule_turn();
      break;
    }
  }
  in_burst_ = false;
  if (!sent_.empty()) schedule_turn();  // what callbacks of this burst have sent at once
  if (working() && wire_wants_write_ != want_write_) wire_->want_write(wire_wants_write_ = want_write_);
  settle();
}

// Fixes the order of what goes next: small frames first, then bulk data, never more of it than one chunk.
void SoftEndpoint::stage() {
  if (goodbye_staged_) return;
  stage_control();
  stage_requests();
  stage_messages();
  stage_bulk();
  if (state_ == State::kClosing && in_flight() == 0 && acks_.empty() && !burst_full(limits::kBurstFrames)) {
    FrameHeader header;
    header.type = FrameType::kGoodbye;
    push_staged(header);
    goodbye_staged_ = true;
  }
}

SoftEndpoint::Staged& SoftEndpoint::push_staged(FrameHeader header) {
  Staged frame;
  frame.header = header;
  return staged_.push_back(std::move(frame));
}

// What the peer has not been told of; 0: nothing.
std::uint64_t SoftEndpoint::take_grant() {
  announce_ = false;
  return std::exchange(announced_, granted_) == granted_ ? 0 : granted_;
}

// The same of fetches.
std::uint64_t SoftEndpoint::take_fetched() {
  return std::exchange(fetched_told_, fetched_) == fetched_ ? 0 : fetched_;
}

void SoftEndpoint::stage_control() {
  FrameHeader header;
  // A message takes it along, if one is next.
  const bool message_is_next = !messages_.empty() && barrier_passed(messages_.front().barrier);
  if (announce_ && !message_is_next && !burst_full(limits::kBurstSmallFrames)) {
    header.type = FrameType::kCredit;
    header.value = take_grant();
    push_staged(header);
  }
  if (credits_to_return_ > 0 && !burst_full(limits::kBurstSmallFrames)) {
    header.type = FrameType::kCreditReturn;
    header.value = std::exchange(credits_to_return_, 0);
    push_staged(header);
  }
  header = {};
  header.type = FrameType::kAck;
  if (state_ == State::kClosing) acks_due_ = true;
  while (acks_due_ && !acks_.empty() && !burst_full(limits::kBurstSmallFrames)) {
    const Ack ack = acks_.pop_front();
    header.operation = ack.operation;
    header.code = static_cast<std::uint8_t>(ack.code);
    header.value = take_fetched();
    push_staged(header);
  }
  if (acks_.empty()) acks_due_ = false;
  if (fetched_ != fetched_told_ && !burst_full(limits::kBurstSmallFrames)) {
    header = {};
    header.type = FrameType::kFetched;
    header.value = take_fetched();
    push_staged(header);
  }
}

void SoftEndpoint::stage_requests() {
  while (!requests_.empty() && asked_.size() < limits::kReadWindow &&
         !burst_full(limits::kBurstSmallFrames)) {
    const Handle handle = requests_.front();
    OneSided* operation = operations_.find(handle);
    if (operation == nullptr || operation->failure != Code::kOk) {
      requests_.pop_front();
      continue;
    }
    if (operation->atomic()) {
      requests_.pop_front();
      stage_atomic(handle, *operation);
      continue;
    }
    if (!goes_by_wire(*operation)) return;
    const std::span<const Copy> copies = operation->copies;
    while (operation->next_copy < copies.size() && copies[operation->next_copy].length_bytes == 0)
      ++operation->next_copy;
    if (operation->next_copy == copies.size()) {
      requests_.pop_front();
      if (operation->asked > 0) continue;
      completed_in_stage_ =
          true;  // a batch without a byte, or whose last answer came before its empty copies
      complete_one_sided(handle, {});
      if (!working()) return;
      continue;
    }
    const Copy& copy = copies[operation->next_copy++];
    FrameHeader header;
    header.type = FrameType::kReadRequest;
    header.operation = next_request_++;
    header.region = copy.remote->descriptor().id.packed();
    header.key = copy.remote->descriptor().keys[0];
    header.offset = copy.remote_offset;
    header.value = copy.length_bytes;
    operation->started = true;
    ++operation->asked;
    asked_.push_back({header.operation, handle, &copy, 0});
    push_staged(header);
  }
}

bool SoftEndpoint::barrier_passed(std::uint64_t barrier) {
  const auto oldest_passed = [&](Queue<Handle>& queue) {
    while (!queue.empty()) {
      const OneSided* operation = operations_.find(queue.front());
      if (operation != nullptr) return operation->sequence >= barrier;
      queue.pop_front();
    }
    return true;
  };
  return barrier == 0 || (oldest_passed(writes_) && oldest_passed(open_requests_));
}

void SoftEndpoint::stage_messages() {
  while (!messages_.empty() && !burst_full(limits::kBurstSmallFrames)) {
    if (!barrier_passed(messages_.front().barrier)) return;
    OutMessage message = messages_.pop_front();
    message.header.value = take_grant();
    Staged& frame = push_staged(message.header);
    frame.data = message.bytes.data();
    frame.message = std::move(message);
  }
}

// Our writes and the answers to the peer's reads take turns.
void SoftEndpoint::stage_bulk() {
  while (working() && staged_bulk_ < limits::kChunkBytes && !burst_full(limits::kBurstFrames)) {
    answers_turn_ = !answers_turn_;
    const bool staged = answers_turn_ ? stage_answer() || stage_write() : stage_write() || stage_answer();
    if (!staged) return;
  }
}

bool SoftEndpoint::stage_write() {
  while (!writes_.empty()) {
    const Handle handle = writes_.front();
    OneSided* operation = operations_.find(handle);
    if (operation == nullptr) {
      writes_.pop_front();
      continue;
    }
    if (!goes_by_wire(*operation)) return false;
    const std::span<const Copy> copies = operation->copies;
    const auto skip_empty = [&] {
      while (operation->next_copy < copies.size() && copies[operation->next_copy].length_bytes == 0)
        ++operation->next_copy;
      return operation->next_copy == copies.size();
    };
    FrameHeader header;
    header.operation = handle.packed();
    if (skip_empty()) {
      writes_.pop_front();
      if (operation->has_imm) {
        operation->started = true;
        header.type = FrameType::kImm;
        header.value = operation->imm;
        header.flags = operation->starved ? kFlagStarved : 0;
        push_staged(header);
        return true;
      }
      completed_in_stage_ = true;  // a batch without a byte
      complete_one_sided(handle, {});
      if (!working()) return false;
      continue;
    }
    if (operation->way == Way::kFetch) return stage_fetch(handle, *operation);
    const Copy& copy = copies[operation->next_copy];
    const std::uint64_t offset = operation->copy_offset;
    const auto part =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(copy.length_bytes - offset, limits::kChunkBytes));
    operation->started = true;
    operation->copy_offset += part;
    patient_bytes_ += part;
    if (operation->copy_offset == copy.length_bytes) {
      operation->copy_offset = 0;
      ++operation->next_copy;
    }
    header.type = FrameType::kWrite;
    header.payload_bytes = part;
    header.region = copy.remote->descriptor().id.packed();
    header.key = copy.remote->descriptor().keys[0];
    header.offset = copy.remote_offset + offset;
    if (operation->copy_offset == 0 && skip_empty() && !operation->has_imm) {
      writes_.pop_front();
      header.flags = patient_write() ? kFlagLast | kFlagPatient : kFlagLast;
    }
    Staged& frame = push_staged(header);
    frame.data = copy.local->data() + copy.local_offset + offset;
    frame.record = static_cast<SoftRegion*>(copy.local->impl())->shared_record();
    staged_bulk_ += part;
    return true;
  }
  return false;
}

// Whether the ack of the write whose last part is next may wait for that of one behind it. One at a time they
// cost both sides as much as the bytes do; but half of what is in flight is asked for while the rest moves.
bool SoftEndpoint::patient_write() {
  OneSided* const next = writes_.empty() ? nullptr : operations_.find(writes_.front());
  ++patient_writes_;
  if (next != nullptr && goes_by_wire(*next) && next->way == Way::kWire &&
      patient_writes_ < in_flight() / 2 && patient_bytes_ < limits::kAckBytes)
    return true;
  patient_writes_ = 0;
  patient_bytes_ = 0;
  return false;
}

bool SoftEndpoint::stage_answer() {
  if (answers_.empty()) return false;
  Answer& answer = answers_.front();
  FrameHeader header;
  header.operation = answer.request;
  if (answer.atomic) {
    header.type = FrameType::kAtomicReply;
    header.code = static_cast<std::uint8_t>(answer.code);
    header.value = answer.old_value;
    push_staged(header);
    answers_.pop_front();
    return true;
  }
  if (answer.code != Code::kOk || answer.staged == answer.length) {
    header.type = FrameType::kReadDone;
    header.code = static_cast<std::uint8_t>(answer.code);
    push_staged(header);
    answers_.pop_front();
    return true;
  }
  const auto part =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(answer.length - answer.staged, limits::kChunkBytes));
  header.type = FrameType::kReadData;
  header.payload_bytes = part;
  header.offset = answer.staged;
  Staged& frame = push_staged(header);
  frame.data = answer.record->data + answer.offset + answer.staged;
  frame.record = answer.record;
  answer.staged += part;
  staged_bulk_ += part;
  return true;
}

// One write to the wire for the whole burst, straight from the registered memory, which is pinned meanwhile.
Result<std::size_t> SoftEndpoint::write_staged() {
  std::array<iovec, 2 * limits::kBurstFrames> parts;
  std::size_t count = 0;
  PinSet pins;
  for (std::size_t i = 0; i < staged_.size(); ++i) {
    Staged& frame = staged_[i];
    if (frame.record != nullptr) {
      const bool own = frame.header.type == FrameType::kWrite;
      if (!pins.add(*frame.record, own)) {
        if (own) {
          break_now(Status(Code::kUnavailable, "a local region was closed while a write used it"));
          return std::size_t{0};
        }
        zero_answer(i);
      }
    }
    const std::size_t header_sent = std::min(frame.sent, kHeaderBytes);
    if (header_sent < kHeaderBytes) {
      parts[count++] = {reinterpret_cast<std::byte*>(&frame.header) + header_sent,
                        kHeaderBytes - header_sent};
    }
    const std::size_t data_sent = frame.sent - header_sent;
    if (data_sent < frame.header.payload_bytes) {
      parts[count++] = {const_cast<std::byte*>(frame.payload()) + data_sent,
                        frame.header.payload_bytes - data_sent};
    }
  }
  return wire_->write(std::span(parts.data(), count));
}

// The region of an answer is gone: what was promised is filled with zeros, and the request fails.
void SoftEndpoint::zero_answer(std::size_t index) {
  const std::uint64_t request = staged_[index].header.operation;
  bool done_staged = false;
  for (std::size_t i = index; i < staged_.size(); ++i) {
    Staged& frame = staged_[i];
    if (frame.header.operation != request) continue;
    if (frame.header.type == FrameType::kReadData) {
      frame.data = kZeros.data();
      frame.record.reset();
    } else if (frame.header.type == FrameType::kReadDone) {
      frame.header.code = static_cast<std::uint8_t>(Code::kNotFound);
      done_staged = true;
    }
  }
  if (!done_staged) answers_.front().code = Code::kNotFound;
}

void SoftEndpoint::consume(std::size_t bytes) {
  while (bytes > 0 && working()) {
    Staged& front = staged_.front();
    const std::size_t part = std::min(bytes, front.size() - front.sent);
    front.sent += part;
    bytes -= part;
    if (front.header.type == FrameType::kWrite) note_progress();
    if (front.sent < front.size()) return;
    Staged frame = staged_.pop_front();
    on_sent(frame);
  }
}

void SoftEndpoint::on_sent(Staged& frame) {
  switch (frame.header.type) {
    case FrameType::kMessage:
      ++counters_.messages_sent;
      give_buffer(std::move(frame.message.bytes));
      if (frame.message.operation == nullptr) return;  // it was past its deadline
      --messages_in_flight_;
      complete(*frame.message.operation, {});
      return;
    case FrameType::kWrite:
      staged_bulk_ -= frame.header.payload_bytes;
      if ((frame.header.flags & kFlagLast) == 0) return;
      [[fallthrough]];
    case FrameType::kImm:
      operations_.find(Handle::unpack(frame.header.operation))->sent = true;
      return;
    case FrameType::kFetch:
      give_buffer(std::move(frame.message.bytes));
      if (frame.header.flags == kFlagLast)
        operations_.find(Handle::unpack(frame.header.operation))->sent = true;
      return;
    case FrameType::kReadData:
      staged_bulk_ -= frame.header.payload_bytes;
      return;
    case FrameType::kGoodbye:
      goodbye_sent_ = true;
      return;
    default:
      return;
  }
}

ByteVector SoftEndpoint::take_buffer() {
  if (buffers_.empty()) return {};
  ByteVector out = std::move(buffers_.back());
  buffers_.pop_back();
  return out;
}

void SoftEndpoint::give_buffer(ByteVector buffer) {
  if (buffers_.size() < limits::kSpareMessageBuffers) buffers_.push_back(std::move(buffer));
}

}  // namespace slime::transport::soft
