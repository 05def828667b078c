#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace slime::kv {

// A named region of a broadcast.
struct Part {
  std::string name;
  std::uint64_t bytes = 0;
  bool operator==(const Part&) const = default;
};

// One version of a broadcast, as its owner offers it. All regions together, one after another, are
// cut into chunks of chunk_bytes; the last chunk may be shorter.
struct Offer {
  std::uint64_t source = 0;   // random: names the Broadcast
  std::uint64_t version = 0;  // from 1
  std::uint64_t chunk_bytes = 0;
  Nanos patience{};  // a reader that is silent for so long loses its place; whole milliseconds
  std::vector<Part> parts;

  bool operator==(const Offer&) const = default;

  // Every other function requires that validate() has returned OK.
  [[nodiscard]] Status validate() const;
  [[nodiscard]] std::uint64_t total_bytes() const;
  [[nodiscard]] std::uint64_t chunks() const;

  // The wire format is described in kv/README.md. decode() returns valid offers only, else
  // kInvalidArgument.
  [[nodiscard]] ByteVector encode() const;
  static Result<Offer> decode(Bytes bytes);
};

// Checks names and sizes of regions: kInvalidArgument.
Status check_parts(const std::vector<Part>& parts);
// Compares the regions of an offer with those of a reader. The text of kInvalidArgument has the
// first difference.
Status check_same_parts(const std::vector<Part>& here, const std::vector<Part>& offered);

// Bytes of one region.
struct PartRange {
  std::size_t part = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const PartRange&) const = default;
};

// Finds the bytes of a chunk. Thread: any.
class ChunkMap {
 public:
  explicit ChunkMap(const Offer& offer);
  [[nodiscard]] std::uint64_t chunks() const { return chunks_; }
  [[nodiscard]] std::uint64_t chunk_bytes(std::uint64_t chunk) const;
  // Returns the ranges of a chunk, which must be below chunks().
  [[nodiscard]] std::vector<PartRange> ranges(std::uint64_t chunk) const;

 private:
  std::uint64_t each_ = 0;
  std::uint64_t chunks_ = 0;
  std::vector<std::uint64_t> starts_;  // of the parts, and the end of the last one
};

// Names the parent that a reader reads from. The owner has ticket 0 and an empty address.
struct Place {
  std::uint64_t ticket = 0;  // of the reader
  std::uint64_t parent = 0;  // ticket of the parent
  std::string address;       // of the parent

  bool operator==(const Place&) const = default;
  [[nodiscard]] ByteVector encode() const;
  // Returns kInvalidArgument for a ticket of 0, a parent that is the reader itself, an address of
  // the owner, or a text that is no address.
  static Result<Place> decode(Bytes bytes);
};

// Returns whether a text can be the name of a region or tensor: printable, without spaces, of
// bounded length.
bool may_be_part_name(std::string_view name);
// Returns whether a text can be the address of a peer: printable, of bounded length.
bool may_be_address(std::string_view address);

namespace limits {

// Bounds of an offer, which a peer may have made. They keep every sum of its fields inside 64 bits,
// and the state of a reader within some megabytes.
inline constexpr std::size_t kParts = 16384;
inline constexpr std::size_t kPartName = 256;
inline constexpr std::uint64_t kBroadcastBytes = std::uint64_t{1} << 56;
inline constexpr std::uint64_t kChunkMin = 4096;
inline constexpr std::uint64_t kChunkMax = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kChunks = 4 << 20;
inline constexpr Nanos kPatienceMin = std::chrono::milliseconds(50);
inline constexpr Nanos kPatienceMax = std::chrono::hours(1);
inline constexpr std::size_t kOfferBytes = 8 << 20;  // encoded
inline constexpr std::size_t kPlaceBytes = 1024;     // encoded

}  // namespace limits
}  // namespace slime::kv
