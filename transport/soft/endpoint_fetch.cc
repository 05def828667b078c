// Writes whose bytes the target reads out of the initiator's memory, by addresses that come over the wire
// instead of them: copied once, by the target, under the checks that it makes of every write. They keep their
// place among the frames.
#include <algorithm>

#include "transport/soft/endpoint.h"

namespace slime::transport::soft {
namespace {

// What the acknowledgement of a fetch says that was not made.
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

// On both sides, so that the target reads the two as one.
bool follows(const Copy& before, const Copy& copy) {
  return copy.local == before.local && copy.remote == before.remote &&
         copy.local_offset == before.local_offset + before.length_bytes &&
         copy.remote_offset == before.remote_offset + before.length_bytes;
}

}  // namespace

// -------------------------------------------------------------------------------------------- the initiator

SoftEndpoint::Way SoftEndpoint::fetch_or_wire(const OneSided& operation) {
  if (fetch_denied_) return Way::kWire;
  std::uint64_t total = 0;
  std::uint64_t pieces = 0;
  const Copy* before = nullptr;
  for (const Copy& copy : operation.copies) {
    total += copy.length_bytes;
    pieces += before == nullptr || !follows(*before, copy) ? 1 : 0;
    before = &copy;
  }
  if (total < std::max(limits::kFetchLeastBytes, pieces * limits::kFetchLeastBlock)) return Way::kWire;
  const PeerMemory::Known known = peer_memory_->peer_fetches();
  if (known != PeerMemory::Known::kYes) return known == PeerMemory::Known::kNo ? Way::kWire : Way::kOpen;
  const MemoryRegion* last = nullptr;
  for (const Copy& copy : operation.copies) {
    if (copy.local == last) continue;
    last = copy.local;
    if (!record_of(copy).fetchable()) return Way::kWire;
  }
  return Way::kFetch;
}

// One frame of it. False: the peer has enough to read.
bool SoftEndpoint::stage_fetch(Handle handle, OneSided& operation) {
  if (fetch_asked_ - fetch_done_ + limits::kChunkBytes > limits::kFetchAhead) return false;
  const std::span<const Copy> copies = operation.copies;
  const RemoteRegion* const remote = copies[operation.next_copy].remote;
  ByteVector blocks = take_buffer();
  blocks.clear();
  ByteWriter writer(blocks);
  std::uint64_t left = limits::kChunkBytes;
  for (std::size_t count = 0; operation.next_copy < copies.size(); ++operation.next_copy) {
    const Copy& copy = copies[operation.next_copy];
    if (copy.length_bytes == 0) continue;
    if (copy.remote != remote || left == 0 || count++ == limits::kFetchBlocks) break;
    const std::uint64_t at = operation.copy_offset;
    FetchBlock block;
    block.source = reinterpret_cast<std::uintptr_t>(copy.local->data()) + copy.local_offset + at;
    block.offset = copy.remote_offset + at;
    block.length = std::min(copy.length_bytes - at, left);
    writer.write(block);
    left -= block.length;
    operation.copy_offset = at + block.length;
    if (operation.copy_offset < copy.length_bytes) break;
    operation.copy_offset = 0;
  }
  operation.started = true;
  fetch_asked_ += limits::kChunkBytes - left;
  FrameHeader header;
  header.type = FrameType::kFetch;
  header.payload_bytes = static_cast<std::uint32_t>(blocks.size());
  header.operation = handle.packed();
  header.region = remote->descriptor().id.packed();
  header.key = remote->descriptor().keys[0];
  if (operation.next_copy == copies.size() && !operation.has_imm) {
    header.flags = kFlagLast;
    writes_.pop_front();
  }
  Staged& frame = push_staged(header);
  frame.data = blocks.data();
  frame.message.bytes = std::move(blocks);
  return true;
}

bool SoftEndpoint::on_fetched(std::uint64_t done) {
  if (done <= fetch_done_ || done > fetch_asked_) {
    corrupt("it has read more than it was asked to, or less than before");
    return false;
  }
  fetch_done_ = done;
  note_progress();
  return true;
}

// ----------------------------------------------------------------------------------------------- the target

void SoftEndpoint::begin_fetch(const FrameHeader& header) {
  if (peer_memory_ == nullptr || !peer_memory_->fetches())
    return corrupt("it wants memory read that we cannot read");
  if (!enter_write(header)) return;
  if (fetch_blocks_ == nullptr) fetch_blocks_ = std::make_unique<FetchBlocks>();
  payload_ = Payload::kFetch;
  payload_to_ = reinterpret_cast<std::byte*>(fetch_blocks_->data());
}

// A frame's blocks are there: at most a chunk of bulk data, and no more of such frames than we have room for
// in one turn. False: they will not be read.
bool SoftEndpoint::end_fetch() {
  const std::span<const FetchBlock> blocks(fetch_blocks_->data(), frame_.payload_bytes / sizeof(FetchBlock));
  std::uint64_t total = 0;
  for (const FetchBlock& block : blocks) {
    if (block.length == 0 || block.length > limits::kChunkBytes - total) {
      corrupt("a fetch of nothing, or of too much");
      return false;
    }
    total += block.length;
  }
  if (fetched_ - fetched_told_ + total > limits::kFetchAhead) {
    corrupt("more to fetch than it has been told that it may ask for");
    return false;
  }
  fetched_ += total;
  // A call of the kernel's and the look at the peer cost as much as 10 KiB: what goes to one region, and
  // comes one behind the other, is read together.
  if (!awaited_.empty() && (awaited_.front().region != frame_.region || awaited_.front().key != frame_.key ||
                            awaited_blocks_.size() + blocks.size() > limits::kFetchBlocks))
    fetch_awaited();
  if (!working() || current_write_code_ != Code::kOk) return false;
  FrameHeader part = frame_;
  part.value = blocks.size();
  awaited_.push_back(part);
  awaited_blocks_.insert(awaited_blocks_.end(), blocks.begin(), blocks.end());
  return true;
}

// Before whatever comes behind these parts of writes, and before anything is answered.
void SoftEndpoint::fetch_awaited() {
  if (awaited_.empty()) return;
  const Code together = fetch(awaited_.front(), awaited_blocks_);
  std::span<const FetchBlock> blocks(awaited_blocks_);
  Code code = Code::kOk;  // of the write whose parts these are
  for (const FrameHeader& part : awaited_) {
    const std::span<const FetchBlock> its = blocks.first(part.value);
    blocks = blocks.subspan(part.value);
    // Which of them it was.
    if (code == Code::kOk && together != Code::kOk) code = awaited_.size() == 1 ? together : fetch(part, its);
    if (part.flags != kFlagLast) continue;
    current_write_fetched_ = false;
    if (code == Code::kOk) ++counters_.fetched_copies;
    queue_ack(part.operation, std::exchange(code, Code::kOk));
    if (!working()) break;
  }
  if (awaited_.back().flags != kFlagLast) {  // more of that one is to come
    current_write_code_ = code;
    current_write_fetched_ = true;
  }
  awaited_.clear();
  awaited_blocks_.clear();
}

Code SoftEndpoint::fetch(const FrameHeader& write, std::span<const FetchBlock> blocks) {
  Code why = Code::kOk;
  const std::shared_ptr<RegionRecord> record =
      port_->device->regions.find(Handle::unpack(write.region), write.key, Rights::kRemoteWrite, 0, 0, why);
  if (record == nullptr) return why;
  PeerBlocks list;
  for (const FetchBlock& block : blocks) {
    if (!in_bounds(block.offset, block.length, record->length_bytes)) return Code::kPermissionDenied;
    list.add(record->data + block.offset, block.source, block.length);
  }
  const Pin pin = Pin::for_peer(*record);
  if (!pin) return Code::kNotFound;
  const PeerMemory::Outcome how = peer_memory_->fetch(list);
  if (how == PeerMemory::Outcome::kDone) counters_.fetched_bytes += list.bytes();
  return code_of(how);
}

}  // namespace slime::transport::soft
