#include "transport/soft/request_sender.h"

#include <cstring>

namespace slime::transport::soft {

void RequestSender::stage() {
  Queue<Handle>& requests = link_.operations.requests();
  while (!requests.empty() && asked_.size() < limits::kReadWindow && !frames_.small_full()) {
    const Handle handle = requests.front();
    OneSided* operation = link_.operations.find(handle);
    if (operation == nullptr || operation->failure != Code::kOk) {
      requests.pop_front();
      continue;
    }
    if (operation->atomic()) {
      requests.pop_front();
      stage_atomic(handle, *operation);
      continue;
    }
    if (!ways_.by_frames(*operation)) return;
    if (operation->skip_empty()) {
      requests.pop_front();
      if (operation->asked > 0) continue;
      // No copy of this read is left to ask for and no answer is missing: the batch has no bytes,
      // or its last answer came before its empty copies were skipped.
      link_.completed_in_stage = true;
      link_.complete_one_sided(handle, {});
      if (!link_.working()) return;
      continue;
    }
    stage_read(handle, *operation);
  }
}

void RequestSender::stage_read(Handle handle, OneSided& operation) {
  const CopyBlock& copy = operation.copies[operation.next_copy++];
  FrameHeader header;
  header.type = FrameType::kReadRequest;
  header.operation = next_request_++;
  header.region = copy.remote->id().packed();
  header.key = copy.remote->access().key;
  header.offset = copy.remote_offset;
  header.value = copy.length_bytes;
  operation.started = true;
  ++operation.asked;
  asked_.push_back({header.operation, handle, &copy, 0});
  frames_.push(header);
}

void RequestSender::stage_atomic(Handle handle, OneSided& operation) {
  const bool swap = operation.kind == Kind::kCompareSwap;
  const CopyBlock& number = *operation.number;
  FrameHeader header;
  header.type = swap ? FrameType::kCompareSwap : FrameType::kFetchAdd;
  header.payload_bytes = swap ? kAtomicBytes : 0;
  header.operation = next_request_++;
  header.region = number.remote->id().packed();
  header.key = number.remote->access().key;
  header.offset = number.remote_offset;
  header.value = operation.value;
  operation.started = true;
  operation.asked = 1;
  asked_.push_back({header.operation, handle, nullptr, 0});
  frames_.push(header).expected = operation.expected;
}

bool RequestSender::is_oldest(const FrameHeader& header, bool atomic) {
  return !asked_.empty() && asked_.front().request == header.operation &&
         (asked_.front().copy == nullptr) == atomic;
}

void RequestSender::begin_data(const FrameHeader& header, Payload& payload) {
  if (!is_oldest(header, false)) return link_.corrupt("data of a read that it was not asked for");
  const Asked& asked = asked_.front();
  if (header.offset != asked.received || header.payload_bytes > asked.copy->length_bytes - asked.received)
    return link_.corrupt("data outside the read that it was asked for");
  payload.place(Payload::Kind::kRead, shared_record_of(*asked.copy),
                asked.copy->local_offset + asked.received);
}

void RequestSender::on_read_done(const FrameHeader& header) {
  if (!is_oldest(header, false)) return link_.corrupt("the end of a read that it was not asked for");
  if (header.code == 0 && asked_.front().received != asked_.front().copy->length_bytes)
    return link_.corrupt("the end of a read before its last byte");
  const Handle handle = asked_.pop_front().operation;
  OneSided* operation = link_.operations.find(handle);
  // a read stays in the table until all its requests are answered
  SLIME_CHECK(operation != nullptr);
  link_.note_progress();
  --operation->asked;
  if (header.code != 0 && operation->failure == Code::kOk)
    operation->failure = error_code_from_wire(header.code);
  if (operation->asked > 0) return;
  if (operation->failure != Code::kOk)
    link_.complete_one_sided(handle, refused_by_peer(*operation, link_.who.peer_name));
  else if (operation->next_copy == operation->copies.size())
    link_.complete_one_sided(handle, {});
}

void RequestSender::on_atomic_reply(const FrameHeader& header) {
  if (!is_oldest(header, true)) return link_.corrupt("the answer to an atomic that it was not asked for");
  const Handle handle = asked_.pop_front().operation;
  OneSided* operation = link_.operations.find(handle);
  SLIME_CHECK(operation != nullptr);  // an atomic stays until it is answered
  link_.note_progress();
  if (header.code != 0) {
    operation->failure = error_code_from_wire(header.code);
    link_.complete_one_sided(handle, refused_by_peer(*operation, link_.who.peer_name));
    return;
  }
  const CopyBlock& number = *operation->number;
  {
    const Pin pin = Pin::for_own(record_of(number));
    if (!pin)
      return link_.break_now(
          Status(Code::kUnavailable, "a local region was closed while a remote atomic used it"));
    std::memcpy(number.local->data() + number.local_offset, &header.value, kAtomicBytes);
  }
  link_.complete_one_sided(handle, {});
}

}  // namespace slime::transport::soft
