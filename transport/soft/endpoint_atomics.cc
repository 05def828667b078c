// Remote atomics: posted and answered like reads, executed by the target when the request arrives.
#include <atomic>
#include <cstring>

#include "transport/soft/endpoint.h"

namespace slime::transport::soft {
namespace {

// Whatever shares the number with other endpoints does so through here, without a lock that a peer could
// hold.
using Number = std::atomic_ref<std::uint64_t>;
static_assert(Number::is_always_lock_free);

}  // namespace

Status SoftEndpoint::fetch_add(const AtomicTarget& target, std::uint64_t add, Operation& operation) {
  OneSided record(Kind::kFetchAdd);
  record.value = add;
  return post_atomic(target, record, operation);
}

Status SoftEndpoint::compare_swap(const AtomicTarget& target, std::uint64_t expected, std::uint64_t desired,
                                  Operation& operation) {
  OneSided record(Kind::kCompareSwap);
  record.value = desired;
  record.expected = expected;
  return post_atomic(target, record, operation);
}

// The address that must be aligned is the target's: it checks.
Status SoftEndpoint::post_atomic(const AtomicTarget& target, OneSided record, Operation& operation) {
  record.number = Copy{target.local, target.local_offset, target.remote, target.remote_offset, kAtomicBytes};
  return post_one_sided(record, operation);
}

void SoftEndpoint::stage_atomic(Handle handle, OneSided& operation) {
  const bool swap = operation.kind == Kind::kCompareSwap;
  const Copy& number = *operation.number;
  FrameHeader header;
  header.type = swap ? FrameType::kCompareSwap : FrameType::kFetchAdd;
  header.payload_bytes = swap ? kAtomicBytes : 0;
  header.operation = next_request_++;
  header.region = number.remote->descriptor().id.packed();
  header.key = number.remote->descriptor().keys[0];
  header.offset = number.remote_offset;
  header.value = operation.value;
  operation.started = true;
  operation.asked = 1;
  asked_.push_back({header.operation, handle, nullptr, 0});
  push_staged(header).expected = operation.expected;
}

void SoftEndpoint::on_atomic_request(const FrameHeader& header, std::uint64_t expected) {
  if (!take_request(header)) return;
  Answer answer;
  answer.request = header.operation;
  answer.atomic = true;
  answer.code = execute(header, expected, answer.old_value);
  answers_.push_back(std::move(answer));
}

Code SoftEndpoint::execute(const FrameHeader& header, std::uint64_t expected, std::uint64_t& old_value) {
  Code why = Code::kOk;
  const std::shared_ptr<RegionRecord> record = port_->device->regions.find(
      Handle::unpack(header.region), header.key, Rights::kReadWrite, header.offset, kAtomicBytes, why);
  if (record == nullptr) return why;
  std::byte* const address = record->data + header.offset;
  if (reinterpret_cast<std::uintptr_t>(address) % kAtomicBytes != 0) return Code::kInvalidArgument;
  const Pin pin = Pin::for_peer(*record);
  if (!pin) return Code::kNotFound;
  const Number number(*reinterpret_cast<std::uint64_t*>(address));
  if (header.type == FrameType::kFetchAdd) {
    old_value = number.fetch_add(header.value);
  } else {
    old_value = expected;
    number.compare_exchange_strong(old_value, header.value);
  }
  return Code::kOk;
}

void SoftEndpoint::on_atomic_reply(const FrameHeader& header) {
  if (asked_.empty() || asked_.front().request != header.operation || asked_.front().copy != nullptr)
    return corrupt("the answer to an atomic that it was not asked for");
  const Handle handle = asked_.pop_front().operation;
  OneSided* operation = operations_.find(handle);
  SLIME_CHECK(operation != nullptr);  // it stays until it is answered
  note_progress();
  if (header.code != 0) {
    operation->failure = error_code_from_wire(header.code);
    complete_one_sided(handle, refused_by_peer(*operation));
    return;
  }
  const Copy& number = *operation->number;
  {
    const Pin pin = Pin::for_own(record_of(number));
    if (!pin)
      return break_now(Status(Code::kUnavailable, "a local region was closed while a remote atomic used it"));
    std::memcpy(number.local->data() + number.local_offset, &header.value, kAtomicBytes);
  }
  complete_one_sided(handle, {});
}

}  // namespace slime::transport::soft
