#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"
#include "transport/verbs/functions.h"

namespace slime::transport::verbs {

// Most queue pairs of an endpoint: the message queue pair, which comes first, and 8 for data.
inline constexpr std::size_t kMaxQueuePairs = 9;

struct QueuePairAddress {
  std::uint32_t number = 0;  // 24 bits
  std::uint32_t psn = 0;     // 24 bits: packet sequence number of the first packet of this side
};

// Data that each side sends to the other in the handshake: addresses of its queue pairs, and
// limits.
struct Parameters {
  std::uint32_t slot_bytes = 0;       // the largest message that this side takes
  std::uint32_t initial_credits = 0;  // messages that the peer may send before the first grant
  ibv_gid gid{};
  std::uint16_t lid = 0;
  std::uint8_t link_layer = 0;  // IBV_LINK_LAYER_*: both have the same
  std::uint8_t mtu = 0;         // ibv_mtu; the pair uses the smaller
  // most reads and atomics of the peer that one queue pair answers at once
  std::uint8_t read_responses = 0;
  // reads and atomics of this side that one queue pair wants in flight
  std::uint8_t read_requests = 0;
  std::uint8_t atomics = 0;  // 1: the device of this side supports atomics
  std::uint8_t queue_pair_count = 0;
  std::array<QueuePairAddress, kMaxQueuePairs> queue_pairs{};
  std::uint64_t credit_word = 0;  // address of the 8 bytes into which the peer writes its grants
  std::uint32_t credit_key = 0;

  static constexpr std::uint32_t kVersion = 1;
  [[nodiscard]] ByteVector encode() const;
  // Decodes the bytes that a peer sent. Returns kCorrupt if a value is out of range.
  static Result<Parameters> decode(Bytes bytes);
};

// Data that an initiator sends with its offer to use verbs: state and address of its port, in 20
// bytes.
struct Hint {
  std::uint8_t active = 0;
  std::uint8_t link_layer = 0;  // IBV_LINK_LAYER_*
  std::uint8_t gid_type = 0;    // ibv_gid_type
  std::uint8_t reserved = 0;
  ibv_gid gid{};

  [[nodiscard]] ByteVector encode() const;
};

// Compares the hints of two ports. Returns OK, or why the ports cannot reach each other, as far as
// their addresses show. `theirs` may be any bytes.
Status check_hints(Bytes ours, std::string_view self_name, Bytes theirs, std::string_view peer_name);

// The immediate data of a message: the sender's current grant, and flags. So each message brings
// credits, and can be a wake-up.
struct MessageNote {
  // Low 24 bits of the number of messages that the receiver of this note may send, counted from the
  // beginning.
  std::uint32_t granted = 0;
  bool control = false;  // a control message, without bytes: a hello or a wake-up
  bool starved = false;  // the sender has used its last credit, and must be woken
  bool woken = false;    // this message answers `starved`, too

  [[nodiscard]] std::uint32_t encode() const;
  // Returns nothing if a bit without a meaning is set.
  static std::optional<MessageNote> decode(std::uint32_t immediate);
  // Returns how far `granted` is ahead of `known`, a full 64-bit count; negative if `granted` is
  // older.
  [[nodiscard]] std::int32_t ahead_of(std::uint64_t known) const;
  static constexpr std::uint32_t kMask = (1U << 24) - 1;

 private:
  static constexpr std::uint32_t kControlBit = 1U << 31;
  static constexpr std::uint32_t kStarvedBit = 1U << 30;
  static constexpr std::uint32_t kWokenBit = 1U << 29;
};

inline std::uint32_t MessageNote::encode() const {
  return (granted & kMask) | (control ? kControlBit : 0) | (starved ? kStarvedBit : 0) |
         (woken ? kWokenBit : 0);
}

inline std::optional<MessageNote> MessageNote::decode(std::uint32_t immediate) {
  if ((immediate & ~(kMask | kControlBit | kStarvedBit | kWokenBit)) != 0) return std::nullopt;
  return MessageNote{immediate & kMask, (immediate & kControlBit) != 0, (immediate & kStarvedBit) != 0,
                     (immediate & kWokenBit) != 0};
}

inline std::int32_t MessageNote::ahead_of(std::uint64_t known) const {
  const std::uint32_t difference = (granted - static_cast<std::uint32_t>(known)) & kMask;
  constexpr std::uint32_t kHalf = (kMask + 1) / 2;
  return difference < kHalf ? static_cast<std::int32_t>(difference)
                            : static_cast<std::int32_t>(difference) - static_cast<std::int32_t>(kMask + 1);
}

}  // namespace slime::transport::verbs
