#include "transport/soft/write_receiver.h"

#include <algorithm>
#include <utility>

namespace slime::transport::soft {
namespace {

// Returns the code to send in the ack of a fetch with this outcome.
Code code_of(PeerMemory::Outcome fetch) {
  switch (fetch) {
    case PeerMemory::Outcome::kDone:
      return Code::kOk;
    case PeerMemory::Outcome::kFault:
      return Code::kInvalidArgument;
    case PeerMemory::Outcome::kDenied:
      return Code::kUnimplemented;
    case PeerMemory::Outcome::kGone:
      break;
  }
  return Code::kUnavailable;
}

}  // namespace

// Begins a write with its first frame, or goes on with the current write. Returns false if `header`
// belongs to another write: the link is then broken.
bool WriteReceiver::enter(const FrameHeader& header) {
  if (current_ == 0) {
    current_ = header.operation;
    current_code_ = Code::kOk;
  } else if (current_ != header.operation) {
    link_.corrupt("a write inside another one");
    return false;
  }
  return true;
}

void WriteReceiver::begin_bytes(const FrameHeader& header, Payload& payload) {
  if (!enter(header)) return;
  payload.discard();
  if (current_code_ != Code::kOk) return;
  std::shared_ptr<RegionRecord> record =
      link_.port->device->regions.find(Handle::unpack(header.region), header.key, Rights::kRemoteWrite,
                                       header.offset, header.payload_bytes, current_code_);
  if (record != nullptr) payload.place(Payload::Kind::kWrite, std::move(record), header.offset);
}

void WriteReceiver::begin_list(const FrameHeader& header, Payload& payload) {
  if (!enter(header)) return;
  if (current_code_ != Code::kOk) return payload.discard();
  if (listed_ == nullptr) listed_ = std::make_unique<ListedBlocks>();
  payload.begin(header.value * sizeof(ListedBlock));
  payload.place(Payload::Kind::kTable, reinterpret_cast<std::byte*>(listed_->data()));
}

void WriteReceiver::end_table(const FrameHeader& header, Payload& payload) {
  const std::span<const ListedBlock> blocks(listed_->data(), header.value);
  const std::uint64_t bytes = header.payload_bytes - header.value * sizeof(ListedBlock);
  std::uint64_t left = bytes;
  for (const ListedBlock& block : blocks) {
    if (block.length == 0 || block.length > left)
      return link_.corrupt("a list whose blocks are not its bytes");
    left -= block.length;
  }
  if (left != 0) return link_.corrupt("a list with more bytes than its blocks have");
  payload.begin(bytes);
  payload.discard();
  std::shared_ptr<RegionRecord> record = link_.port->device->regions.find(
      Handle::unpack(header.region), header.key, Rights::kRemoteWrite, 0, 0, current_code_);
  if (record == nullptr) return;
  const auto is_inside = [&record](const ListedBlock& block) {
    return in_bounds(block.offset, block.length, record->length_bytes);
  };
  if (std::all_of(blocks.begin(), blocks.end(), is_inside))
    payload.place(Payload::Kind::kWrite, std::move(record), blocks);
  else
    current_code_ = Code::kPermissionDenied;
}

void WriteReceiver::end_bytes(const FrameHeader& header) {
  if (!link_.working() || (header.flags & kFlagLast) == 0) return;
  end_write();
  queue_ack(header.operation, current_code_, (header.flags & kFlagPatient) != 0);
}

void WriteReceiver::end_write() {
  current_ = 0;
  if (std::exchange(current_fetched_, false) && current_code_ == Code::kOk) ++link_.counters.fetched_copies;
}

Code WriteReceiver::end_with_imm(const FrameHeader& header) {
  if (current_ != 0 && current_ != header.operation) {
    link_.corrupt("a notification inside another write");
    return Code::kCorrupt;
  }
  const Code code = current_ != 0 ? current_code_ : Code::kOk;
  end_write();
  return code;
}

// ----------------------------------------------------------------------------------------- fetches

void WriteReceiver::begin_fetch(const FrameHeader& header, Payload& payload) {
  if (link_.memory == nullptr || !link_.memory->fetches())
    return link_.corrupt("it wants memory read that we cannot read");
  if (!enter(header)) return;
  if (blocks_ == nullptr) blocks_ = std::make_unique<FetchBlocks>();
  payload.place(Payload::Kind::kFetch, reinterpret_cast<std::byte*>(blocks_->data()));
}

void WriteReceiver::end_fetch(const FrameHeader& header) {
  if (await_fetch(header)) {
    if (header.flags == kFlagLast) current_ = 0;
    return;
  }
  end_bytes(header);
}

// Adds the blocks of a kFetch frame to those that are read together. Returns false if they will not
// be read, because the write has failed or the link is broken.
bool WriteReceiver::await_fetch(const FrameHeader& header) {
  const std::span<const FetchBlock> blocks(blocks_->data(), header.payload_bytes / sizeof(FetchBlock));
  std::uint64_t total = 0;
  for (const FetchBlock& block : blocks) {
    if (block.length == 0 || block.length > limits::kChunkBytes - total) {
      link_.corrupt("a fetch of nothing, or of too much");
      return false;
    }
    total += block.length;
  }
  // The peer may ask for at most kFetchAhead bytes more than this side has reported as handled.
  if (fetched_ - fetched_told_ + total > limits::kFetchAhead) {
    link_.corrupt("more to fetch than it has been told that it may ask for");
    return false;
  }
  fetched_ += total;
  // Reads what waits already, unless the new blocks can be read together with it: each system call,
  // with its check of the peer, costs as much as copying 10 KiB.
  if (!awaited_.empty() && (awaited_.front().region != header.region || awaited_.front().key != header.key ||
                            awaited_blocks_.size() + blocks.size() > limits::kFetchBlocks))
    fetch_awaited();
  if (!link_.working() || current_code_ != Code::kOk) return false;
  FrameHeader part = header;
  part.value = blocks.size();
  awaited_.push_back(part);
  awaited_blocks_.insert(awaited_blocks_.end(), blocks.begin(), blocks.end());
  return true;
}

void WriteReceiver::fetch_awaited() {
  if (awaited_.empty()) return;
  const Code together = fetch(awaited_.front(), awaited_blocks_);
  std::span<const FetchBlock> blocks(awaited_blocks_);
  Code code = Code::kOk;  // outcome of the write to which the current frames belong
  for (const FrameHeader& part : awaited_) {
    const std::span<const FetchBlock> its = blocks.first(part.value);
    blocks = blocks.subspan(part.value);
    // Finds the part that failed.
    if (code == Code::kOk && together != Code::kOk) code = awaited_.size() == 1 ? together : fetch(part, its);
    if (part.flags != kFlagLast) continue;
    current_fetched_ = false;
    if (code == Code::kOk) ++link_.counters.fetched_copies;
    queue_ack(part.operation, std::exchange(code, Code::kOk));
    if (!link_.working()) break;
  }
  if (awaited_.back().flags != kFlagLast) {  // more parts of this write will come
    current_code_ = code;
    current_fetched_ = true;
  }
  awaited_.clear();
  awaited_blocks_.clear();
}

Code WriteReceiver::fetch(const FrameHeader& write, std::span<const FetchBlock> blocks) {
  Code why = Code::kOk;
  const std::shared_ptr<RegionRecord> record = link_.port->device->regions.find(
      Handle::unpack(write.region), write.key, Rights::kRemoteWrite, 0, 0, why);
  if (record == nullptr) return why;
  PeerBlocks list;
  for (const FetchBlock& block : blocks) {
    if (!in_bounds(block.offset, block.length, record->length_bytes)) return Code::kPermissionDenied;
    list.add(record->data + block.offset, block.source, block.length);
  }
  const Pin pin = Pin::for_peer(*record);
  if (!pin) return Code::kNotFound;
  const PeerMemory::Outcome how = link_.memory->fetch(list);
  if (how == PeerMemory::Outcome::kDone) {
    link_.counters.fetched_bytes += list.bytes();
    link_.port->pace.note_bulk(list.bytes());
  }
  return code_of(how);
}

// -------------------------------------------------------------------------------------------- acks

void WriteReceiver::queue_ack(std::uint64_t operation, Code code, bool patient) {
  if (acks_.size() >= limits::kMaxOperations)
    return link_.corrupt("it has more writes in flight than allowed");
  acks_.push_back({operation, code});
  if (!patient)
    acks_due_ = true;
  else if (!acks_due_)
    // sends the ack even if the peer posts no further write
    link_.timer.arm(link_.loop->now() + limits::kAckPatience);
}

void WriteReceiver::stage_acks() {
  while (acks_due_ && !acks_.empty() && !frames_.small_full()) {
    const Ack ack = acks_.pop_front();
    FrameHeader header;
    header.type = FrameType::kAck;
    header.operation = ack.operation;
    header.code = static_cast<std::uint8_t>(ack.code);
    header.value = take_fetched();
    frames_.push(header);
  }
  if (acks_.empty()) acks_due_ = false;
  if (fetched_ != fetched_told_ && !frames_.small_full()) {
    FrameHeader header;
    header.type = FrameType::kFetched;
    header.value = take_fetched();
    frames_.push(header);
  }
}

}  // namespace slime::transport::soft
