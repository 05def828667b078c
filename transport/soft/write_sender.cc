#include "transport/soft/write_sender.h"

#include <algorithm>

namespace slime::transport::soft {

bool WriteSender::stage() {
  Queue<Handle>& writes = link_.operations.writes();
  while (!writes.empty()) {
    const Handle handle = writes.front();
    OneSided* operation = link_.operations.find(handle);
    if (operation == nullptr) {
      writes.pop_front();
      continue;
    }
    if (!ways_.by_frames(*operation)) return false;
    if (operation->skip_empty()) {
      writes.pop_front();
      if (operation->has_imm) {
        stage_imm(handle, *operation);
        return true;
      }
      link_.completed_in_stage = true;  // a batch without a byte
      link_.complete_one_sided(handle, {});
      if (!link_.working()) return false;
      continue;
    }
    if (operation->way == Way::kFetch) return stage_fetch(handle, *operation);
    if (!stage_list(handle, *operation)) stage_bytes(handle, *operation);
    return true;
  }
  return false;
}

void WriteSender::stage_imm(Handle handle, OneSided& operation) {
  operation.started = true;
  FrameHeader header;
  header.operation = handle.packed();
  header.type = FrameType::kImm;
  header.value = operation.imm;
  header.flags = operation.starved ? kFlagStarved : 0;
  frames_.push(header);
}

void WriteSender::stage_bytes(Handle handle, OneSided& operation) {
  const CopyBlock& copy = operation.copies[operation.next_copy];
  const std::uint64_t offset = operation.copy_offset;
  const auto part = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(copy.length_bytes - offset, link_.port->pace.chunk_bytes()));
  operation.started = true;
  operation.copy_offset += part;
  patient_bytes_ += part;
  if (operation.copy_offset == copy.length_bytes) {
    operation.copy_offset = 0;
    ++operation.next_copy;
  }
  FrameHeader header;
  header.operation = handle.packed();
  header.type = FrameType::kWrite;
  header.payload_bytes = part;
  header.region = copy.remote->id().packed();
  header.key = copy.remote->access().key;
  header.offset = copy.remote_offset + offset;
  if (operation.copy_offset == 0) header.flags = end_flags(operation);
  frames_.push_bulk(header, copy.local->data() + copy.local_offset + offset, shared_record_of(copy));
}

// Returns the flags of the frame that has just been filled. If it is the last one of the write, the
// next write's turn has come.
std::uint8_t WriteSender::end_flags(OneSided& operation) {
  if (!operation.skip_empty() || operation.has_imm) return 0;
  link_.operations.writes().pop_front();
  return patient_write() ? kFlagLast | kFlagPatient : kFlagLast;
}

// Stages one frame with the next blocks of the write, if they are short: a frame for each block
// costs more than its bytes. Returns false if fewer than two such blocks follow each other.
bool WriteSender::stage_list(Handle handle, OneSided& operation) {
  const std::span<const CopyBlock> copies = listed_copies(operation);
  if (copies.size() < 2) return false;
  ByteVector list = frames_.take_buffer(copies.size() * (sizeof(ListedBlock) + sizeof(const std::byte*)));
  ByteWriter writer(list);
  std::uint64_t bytes = 0;
  for (const CopyBlock& copy : copies) {
    writer.write(ListedBlock{copy.remote_offset, copy.length_bytes});
    bytes += copy.length_bytes;
  }
  for (const CopyBlock& copy : copies) {
    const std::byte* const source = copy.local->data() + copy.local_offset;
    writer.write(source);
  }
  operation.started = true;
  operation.next_copy += copies.size();
  patient_bytes_ += bytes;
  const CopyBlock& first = copies.front();
  FrameHeader header;
  header.operation = handle.packed();
  header.type = FrameType::kWriteBlocks;
  header.payload_bytes = static_cast<std::uint32_t>(copies.size() * sizeof(ListedBlock) + bytes);
  header.region = first.remote->id().packed();
  header.key = first.remote->access().key;
  header.value = copies.size();
  header.flags = end_flags(operation);
  frames_.push_list(header, std::move(list), shared_record_of(first));
  return true;
}

// Returns those of the next copies that fit one kWriteBlocks frame.
std::span<const CopyBlock> WriteSender::listed_copies(const OneSided& operation) const {
  const std::span<const CopyBlock> rest = operation.copies.subspan(operation.next_copy);
  std::uint64_t room = std::min<std::uint64_t>(limits::kListedBytes, frames_.bulk_room());
  if (operation.copy_offset != 0) return {};
  std::size_t count = 0;
  while (count < std::min(rest.size(), limits::kListedBlocks)) {
    const CopyBlock& copy = rest[count];
    const std::uint64_t taken = sizeof(ListedBlock) + copy.length_bytes;
    if (copy.length_bytes == 0 || copy.length_bytes > limits::kListedBlock || taken > room) break;
    if (copy.remote != rest.front().remote || copy.local != rest.front().local) break;
    room -= taken;
    ++count;
  }
  return rest.first(count);
}

// Returns whether the peer may delay the ack of the write whose last frame is staged next, until it
// acks a later write. Acks one at a time cost both sides as much as the bytes do. An ack is asked
// for at once after half of the writes in flight, so that it comes while the rest moves.
bool WriteSender::patient_write() {
  Queue<Handle>& writes = link_.operations.writes();
  OneSided* const next = writes.empty() ? nullptr : link_.operations.find(writes.front());
  ++patient_writes_;
  if (next != nullptr && ways_.decide(*next) == Way::kWire && patient_writes_ < link_.in_flight() / 2 &&
      patient_bytes_ < limits::kAckBytes)
    return true;
  patient_writes_ = 0;
  patient_bytes_ = 0;
  return false;
}

// Stages one kFetch frame. Returns false if the peer has been asked for as many bytes as allowed.
bool WriteSender::stage_fetch(Handle handle, OneSided& operation) {
  if (fetch_asked_ - fetch_done_ + limits::kChunkBytes > limits::kFetchAhead) return false;
  const std::span<const CopyBlock> copies = operation.copies;
  const RemoteRegion* const remote = copies[operation.next_copy].remote;
  ByteVector blocks = frames_.take_buffer(0);
  ByteWriter writer(blocks);
  std::uint64_t left = limits::kChunkBytes;
  for (std::size_t count = 0; operation.next_copy < copies.size(); ++operation.next_copy) {
    const CopyBlock& copy = copies[operation.next_copy];
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
  header.region = remote->id().packed();
  header.key = remote->access().key;
  if (operation.next_copy == copies.size() && !operation.has_imm) {
    header.flags = kFlagLast;
    link_.operations.writes().pop_front();
  }
  Staged& frame = frames_.push(header);
  frame.data = blocks.data();
  frame.message.bytes = std::move(blocks);
  return true;
}

void WriteSender::on_ack(const FrameHeader& header) {
  const Handle handle = Handle::unpack(header.operation);
  OneSided* operation = link_.operations.find(handle);
  if (operation == nullptr || operation->kind != Kind::kWrite || !operation->sent)
    return link_.corrupt("an answer to a write that it was not sent");
  if (header.value != 0 && !on_fetched(header.value)) return;
  link_.note_progress();
  if (header.code == static_cast<std::uint8_t>(Code::kUnimplemented)) ways_.deny_fetches();
  if (header.code != 0) operation->failure = error_code_from_wire(header.code);
  link_.complete_one_sided(handle,
                           header.code == 0 ? Status() : refused_by_peer(*operation, link_.who.peer_name));
}

bool WriteSender::on_fetched(std::uint64_t done) {
  if (done <= fetch_done_ || done > fetch_asked_) {
    link_.corrupt("it has read more than it was asked to, or less than before");
    return false;
  }
  fetch_done_ = done;
  link_.note_progress();
  return true;
}

}  // namespace slime::transport::soft
