#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/bytes.h"
#include "base/result.h"

namespace slime::transport::soft {

// The stream of the software engine, byte by byte in transport/README.md. Append only: a number
// keeps its meaning for ever.
enum class FrameType : std::uint8_t {
  kMessage = 1,       // payload: the message
  kCredit = 2,        // value: messages that the peer may have sent since the beginning
  kCreditReturn = 3,  // value: credits that the sender will not use
  kWrite = 4,         // payload: bytes for (region, key, offset)
  kImm = 5,           // value: the notification that ends a write
  kAck = 6,           // code: how the write `operation` ended; value: as kFetched, 0: nothing new
  kReadRequest = 7,   // value: bytes wanted of (region, key, offset); operation: the request's number
  kReadData = 8,      // payload: the request's bytes at `offset`, counted from its start
  kReadDone = 9,      // code: how the request ended
  kGoodbye = 10,      // nothing follows: the sender closed
  kFetchAdd = 11,     // value: what to add at (region, key, offset); operation: numbers requests with reads
  kCompareSwap = 12,  // value: the new value, payload: the expected one; else as kFetchAdd
  kAtomicReply = 13,  // code: how the request ended; value: what was there before
  kFetch = 14,        // payload: FetchBlocks of the sender's memory, to be read for (region, key)
  kFetched = 15,      // value: bytes of fetches handled since the beginning
};

inline constexpr std::uint8_t kFlagLast = 1;     // kWrite, kFetch: the last part; an ack follows
inline constexpr std::uint8_t kFlagStarved = 2;  // kMessage, kImm: the sender waited for credits
inline constexpr std::uint8_t kFlagPatient =
    4;  // kWrite, with kFlagLast: its ack may wait for the next one's

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

// Returns kCorrupt, with the fault, unless the frame is valid in itself: known type, payload within
// its limit, each unused field zero. `bytes` has kHeaderBytes.
Result<FrameHeader> decode_header(Bytes bytes, std::uint32_t slot_bytes);

// The data that the two engines send each other in the handshake.
struct Parameters {
  std::uint32_t version = kVersion;
  std::uint32_t slot_bytes = 0;       // the largest message that this side takes
  std::uint32_t initial_credits = 0;  // credits that the peer may use before the first kCredit

  static constexpr std::size_t kBytes = 12;
  // 2: with atomics; 3: messages carry grants; 4: fetches; 5: acks that wait
  static constexpr std::uint32_t kVersion = 5;
  [[nodiscard]] ByteVector encode() const;
  static Result<Parameters> decode(Bytes bytes);
};

}  // namespace slime::transport::soft
