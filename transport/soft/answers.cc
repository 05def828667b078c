#include "transport/soft/answers.h"

#include <algorithm>
#include <atomic>

namespace slime::transport::soft {
namespace {

// The type by which endpoints change numbers that they share. It takes no lock that a peer could
// hold.
using Number = std::atomic_ref<std::uint64_t>;
static_assert(Number::is_always_lock_free);

}  // namespace

bool Answers::take_request(const FrameHeader& header) {
  if (header.operation != last_request_ + 1) {
    link_.corrupt("a request with a wrong number");
    return false;
  }
  if (answers_.size() >= limits::kReadWindow) {
    link_.corrupt("more requests than allowed");
    return false;
  }
  last_request_ = header.operation;
  return true;
}

void Answers::on_read_request(const FrameHeader& header) {
  if (!take_request(header)) return;
  Answer answer;
  answer.request = header.operation;
  answer.offset = header.offset;
  answer.length = header.value;
  answer.record =
      link_.port->device->regions.find(Handle::unpack(header.region), header.key, Rights::kRemoteRead,
                                       header.offset, header.value, answer.code);
  answers_.push_back(std::move(answer));
}

void Answers::on_atomic_request(const FrameHeader& header, std::uint64_t expected) {
  if (!take_request(header)) return;
  Answer answer;
  answer.request = header.operation;
  answer.atomic = true;
  answer.code = execute(header, expected, answer.old_value);
  answers_.push_back(std::move(answer));
}

Code Answers::execute(const FrameHeader& header, std::uint64_t expected, std::uint64_t& old_value) {
  Code why = Code::kOk;
  const std::shared_ptr<RegionRecord> record = link_.port->device->regions.find(
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

bool Answers::stage() {
  if (answers_.empty()) return false;
  Answer& answer = answers_.front();
  FrameHeader header;
  header.operation = answer.request;
  if (answer.atomic) {
    header.type = FrameType::kAtomicReply;
    header.code = static_cast<std::uint8_t>(answer.code);
    header.value = answer.old_value;
    frames_.push(header);
    answers_.pop_front();
    return true;
  }
  if (answer.code != Code::kOk || answer.staged == answer.length) {
    header.type = FrameType::kReadDone;
    header.code = static_cast<std::uint8_t>(answer.code);
    frames_.push(header);
    answers_.pop_front();
    return true;
  }
  const auto part = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(answer.length - answer.staged, link_.port->pace.chunk_bytes()));
  header.type = FrameType::kReadData;
  header.payload_bytes = part;
  header.offset = answer.staged;
  frames_.push_bulk(header, answer.record->data + answer.offset + answer.staged, answer.record);
  answer.staged += part;
  return true;
}

}  // namespace slime::transport::soft
