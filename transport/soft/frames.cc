#include "transport/soft/frames.h"

#include <cstring>

#include "base/status.h"
#include "base/str.h"
#include "transport/limits.h"

namespace slime::transport::soft {
namespace {

// The fields that a frame of one type may use. All other fields must be zero.
struct Shape {
  std::uint32_t payload_least = 0;
  std::uint32_t payload_most = 0;
  std::uint8_t flags = 0;
  bool code = false;
  bool operation = false;
  bool region = false;  // and key
  bool offset = false;
  bool value = false;
};

std::optional<Shape> shape_of(FrameType type, std::uint32_t message_bytes) {
  switch (type) {
    case FrameType::kMessage:
      return Shape{.payload_most = message_bytes, .flags = kFlagStarved, .value = true};
    case FrameType::kCredit:
    case FrameType::kCreditReturn:
      return Shape{.value = true};
    case FrameType::kWrite:
      return Shape{.payload_least = 1,
                   .payload_most = limits::kChunkBytes,
                   .flags = kFlagLast | kFlagPatient,
                   .operation = true,
                   .region = true,
                   .offset = true};
    case FrameType::kImm:
      return Shape{.flags = kFlagStarved, .operation = true, .value = true};
    case FrameType::kAck:
      return Shape{.code = true, .operation = true, .value = true};
    case FrameType::kReadDone:
      return Shape{.code = true, .operation = true};
    case FrameType::kReadRequest:
      return Shape{.operation = true, .region = true, .offset = true, .value = true};
    case FrameType::kReadData:
      return Shape{
          .payload_least = 1, .payload_most = limits::kChunkBytes, .operation = true, .offset = true};
    case FrameType::kGoodbye:
      return Shape{};
    case FrameType::kFetchAdd:
      return Shape{.operation = true, .region = true, .offset = true, .value = true};
    case FrameType::kCompareSwap:
      return Shape{.payload_least = kAtomicBytes,
                   .payload_most = kAtomicBytes,
                   .operation = true,
                   .region = true,
                   .offset = true,
                   .value = true};
    case FrameType::kAtomicReply:
      return Shape{.code = true, .operation = true, .value = true};
    case FrameType::kFetch:
      return Shape{.payload_least = sizeof(FetchBlock),
                   .payload_most = limits::kFetchBlocks * sizeof(FetchBlock),
                   .flags = kFlagLast,
                   .operation = true,
                   .region = true};
    case FrameType::kFetched:
      return Shape{.value = true};
    case FrameType::kWriteBlocks:
      return Shape{.payload_least = sizeof(ListedBlock) + 1,
                   .payload_most = limits::kListedBytes,
                   .flags = kFlagLast | kFlagPatient,
                   .operation = true,
                   .region = true,
                   .value = true};
  }
  return std::nullopt;
}

// Returns true for a valid message without a flag other than starved. Most frames are such
// messages, and need no further check.
bool is_plain_message(const FrameHeader& header, std::uint32_t message_bytes) {
  return header.type == FrameType::kMessage && header.payload_bytes <= message_bytes &&
         (header.flags & ~kFlagStarved) == 0 && (header.code | header.reserved) == 0 &&
         (header.operation | header.region | header.key | header.offset) == 0;
}

// Returns whether the payload of a kWriteBlocks has room for its table, and bytes behind it.
bool is_list(const FrameHeader& header) {
  return header.value >= 1 && header.value <= limits::kListedBlocks &&
         header.payload_bytes > header.value * sizeof(ListedBlock);
}

Status corrupt(const FrameHeader& header, std::string_view what) {
  return Status(Code::kCorrupt, str("a frame of type ", static_cast<int>(header.type), " has ", what));
}

}  // namespace

Result<FrameHeader> decode_header(Bytes bytes, std::uint32_t message_bytes) {
  SLIME_CHECK(bytes.size() == kHeaderBytes);
  FrameHeader header;
  std::memcpy(&header, bytes.data(), kHeaderBytes);
  if (is_plain_message(header, message_bytes)) return header;
  const std::optional<Shape> shape = shape_of(header.type, message_bytes);
  if (!shape) return corrupt(header, "an unknown type");
  if (header.payload_bytes < shape->payload_least || header.payload_bytes > shape->payload_most)
    return corrupt(header, str("a payload of ", header.payload_bytes, " bytes"));
  if (header.reserved != 0 || (header.flags & ~shape->flags) != 0) return corrupt(header, "unknown flags");
  if (header.flags == kFlagPatient) return corrupt(header, "no ack that could wait");
  if (header.code >= kCodeCount || (!shape->code && header.code != 0))
    return corrupt(header, "an unexpected code");
  if ((header.operation != 0) != shape->operation) return corrupt(header, "a wrong operation");
  if (!shape->region && (header.region != 0 || header.key != 0))
    return corrupt(header, "an unexpected region");
  if (!shape->offset && header.offset != 0) return corrupt(header, "an unexpected offset");
  if (!shape->value && header.value != 0) return corrupt(header, "an unexpected value");
  if (header.type == FrameType::kImm && header.value > UINT32_MAX)
    return corrupt(header, "a notification of more than 32 bits");
  if (header.type == FrameType::kReadRequest && header.value == 0) return corrupt(header, "no length");
  if (header.type == FrameType::kFetch && header.payload_bytes % sizeof(FetchBlock) != 0)
    return corrupt(header, "a part of a block");
  if (header.type == FrameType::kWriteBlocks && !is_list(header)) return corrupt(header, "no list of blocks");
  if (header.type == FrameType::kAtomicReply && header.code != 0 && header.value != 0)
    return corrupt(header, "a value without success");
  return header;
}

ByteVector Parameters::encode() const {
  ByteVector out;
  ByteWriter writer(out);
  writer.write(version);
  writer.write(slot_bytes);
  writer.write(initial_credits);
  return out;
}

Result<Parameters> Parameters::decode(Bytes bytes) {
  ByteReader reader(bytes);
  Parameters out;
  out.version = reader.read<std::uint32_t>();
  out.slot_bytes = reader.read<std::uint32_t>();
  out.initial_credits = reader.read<std::uint32_t>();
  if (!reader.complete()) return Status(Code::kCorrupt, "the peer's engine parameters have a wrong size");
  if (out.version != kVersion)
    return Status(Code::kCorrupt,
                  str("the peer's engine speaks version ", out.version, ", this one ", kVersion));
  if (out.slot_bytes < limits::kMinSlotBytes || out.slot_bytes > limits::kMaxSlotBytes)
    return Status(Code::kCorrupt, str("the peer announces slots of ", out.slot_bytes, " bytes"));
  if (out.initial_credits < 1 || out.initial_credits > limits::kMaxPoolSlots)
    return Status(Code::kCorrupt, str("the peer announces ", out.initial_credits, " credits"));
  return out;
}

}  // namespace slime::transport::soft
