#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/limits.h"

namespace slime::transport::soft {

// Types of the frames of the software engine; transport/README.md has all bytes. Append only: a
// number never changes its meaning.
enum class FrameType : std::uint8_t {
  kMessage = 1,       // payload: the message
  kCredit = 2,        // value: how many messages the peer may have sent since the beginning
  kCreditReturn = 3,  // value: credits that the sender will not use
  kWrite = 4,         // payload: bytes for (region, key, offset)
  kImm = 5,           // value: the notification that ends a write
  kAck = 6,           // code: how write `operation` ended; value: as in kFetched, 0: nothing new
  // value: how many bytes are wanted from (region, key, offset); operation: number of the request
  kReadRequest = 7,
  // payload: bytes of the answer to a kReadRequest; offset: their place in the answer
  kReadData = 8,
  kReadDone = 9,  // code: how the request ended
  kGoodbye = 10,  // nothing follows: the sender closed
  // value: number to add at (region, key, offset); operation: number of the request, as in
  // kReadRequest
  kFetchAdd = 11,
  // value: number to store; payload: expected number; other fields as in kFetchAdd
  kCompareSwap = 12,
  kAtomicReply = 13,  // code: how the atomic ended; value: the number before it
  // payload: FetchBlocks, which the receiver reads from the sender's memory into (region, key)
  kFetch = 14,
  kFetched = 15,  // value: how many bytes that kFetch frames named were handled since the beginning
  // value: a number of blocks; payload: so many ListedBlocks, then their bytes for (region, key)
  kWriteBlocks = 16,
};

// in kWrite, kWriteBlocks and kFetch: the last frame of a write; an ack follows
inline constexpr std::uint8_t kFlagLast = 1;
inline constexpr std::uint8_t kFlagStarved = 2;  // kMessage, kImm: the sender waited for credits
// kWrite and kWriteBlocks, together with kFlagLast: the ack may wait for the ack of a later write
inline constexpr std::uint8_t kFlagPatient = 4;

struct FrameHeader {
  FrameType type{};
  std::uint8_t code = 0;
  std::uint8_t flags = 0;
  std::uint8_t reserved = 0;
  std::uint32_t payload_bytes = 0;
  std::uint64_t operation = 0;
  std::uint64_t region = 0;
  std::uint64_t key = 0;
  std::uint64_t offset = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(FrameHeader) == 48);
static_assert(std::is_trivially_copyable_v<FrameHeader> &&
              std::has_unique_object_representations_v<FrameHeader>);

inline constexpr std::size_t kHeaderBytes = sizeof(FrameHeader);
inline constexpr std::uint32_t kAtomicBytes = sizeof(std::uint64_t);

// One block of a kFetch.
struct FetchBlock {
  std::uint64_t source = 0;  // an address of its sender
  std::uint64_t offset = 0;  // in the region
  std::uint64_t length = 0;
};
static_assert(sizeof(FetchBlock) == 24);

// One block of a kWriteBlocks.
struct ListedBlock {
  std::uint64_t offset = 0;  // in the region
  std::uint64_t length = 0;
};
static_assert(sizeof(ListedBlock) == 16);

// Parses a header, which `bytes` must be (kHeaderBytes). Returns kCorrupt, with the fault, unless
// the header is valid by itself: known type, payload size within the limits of the type, unused
// fields zero.
// `message_bytes`: the largest message.
Result<FrameHeader> decode_header(Bytes bytes, std::uint32_t message_bytes);

// Returns how many receive slots of `slot_bytes`, and so how many credits, a message takes.
constexpr std::uint32_t slots_of(std::uint32_t message_bytes, std::uint32_t slot_bytes) {
  if (message_bytes <= slot_bytes) return 1;
  const std::uint32_t slots = (message_bytes - 1) / slot_bytes + 1;
  if (slots <= limits::kLongFewSlots) return slots;
  return (slots + limits::kLongSlotStep - 1) / limits::kLongSlotStep * limits::kLongSlotStep;
}

// Data that the engines of the two sides send each other in the handshake.
struct Parameters {
  std::uint32_t version = kVersion;
  std::uint32_t slot_bytes = 0;  // the largest message that takes one credit
  // credits that the peer may use before it gets the first kCredit
  std::uint32_t initial_credits = 0;

  static constexpr std::size_t kBytes = 12;
  // Version history: 2 added atomics; 3 grants in messages; 4 fetches; 5 acks that may wait;
  // 6 writes of many blocks in one frame.
  static constexpr std::uint32_t kVersion = 6;
  [[nodiscard]] ByteVector encode() const;
  static Result<Parameters> decode(Bytes bytes);
};

}  // namespace slime::transport::soft
