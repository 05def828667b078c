#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/peer_agent.h"
#include "base/bytes.h"
#include "base/result.h"

namespace slime::kv {

// A whole tensor: dense, in row-major order.
struct Tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint32_t item_bytes = 0;

  bool operator==(const Tensor&) const = default;
  [[nodiscard]] Status validate() const;  // kInvalidArgument; the other functions require OK
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::string to_string() const;  // "w1 of 8 x 4 items of 2 bytes"
};

// A part of a tensor: the indices [first, first + count) of one dimension, and all of the others.
// Dense, in row-major order. dim 0 has whole rows, a later one columns.
struct Shard {
  Tensor tensor;
  std::uint32_t dim = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;

  // Returns the shard of `rank` of `degree` equal ones. kInvalidArgument if they cannot be equal.
  static Result<Shard> of_rank(Tensor tensor, std::uint32_t dim, std::uint32_t rank, std::uint32_t degree);

  bool operator==(const Shard&) const = default;
  [[nodiscard]] Status validate() const;  // kInvalidArgument; the other functions require OK
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] bool whole() const { return count == tensor.shape[dim]; }
  // The shard is outer() runs of run_bytes() each; in the whole tensor one begins every
  // stride_bytes(), the first at offset_bytes().
  [[nodiscard]] std::uint64_t outer() const;
  [[nodiscard]] std::uint64_t run_bytes() const;
  [[nodiscard]] std::uint64_t stride_bytes() const;
  [[nodiscard]] std::uint64_t offset_bytes() const;
};

// The wire format is described in kv/README.md. decode_shards() returns valid shards only, with
// distinct names, else kInvalidArgument.
ByteVector encode_shards(std::span<const Shard> shards);
Result<std::vector<Shard>> decode_shards(Bytes bytes);
// Checks a list of shards as decode_shards() does.
Status check_shards(std::span<const Shard> shards);

struct ShardsOptions {
  // Names the shards among those of its agent: 1 to 64 letters, digits, '_' and '-'.
  std::string name = "shards";
};

// The shards of this process, which peers collect (kv/gather.h). Movable. Thread: any.
class Shards {
 public:
  // Offers memory of the caller: memory[i] has the bytes of shards[i]. The caller keeps it alive
  // until the shards are closed, and unchanged while peers read. `agent` must outlive this. An
  // agent offers shards of a name once, ever. Errors: kInvalidArgument; kAlreadyExists.
  static Result<Shards> over(PeerAgent& agent, std::span<const Shard> shards,
                             std::span<const MutableBytes> memory, const ShardsOptions& options = {});
  Shards() = default;
  ~Shards();  // close(), within 2 s
  Shards(Shards&&) noexcept = default;
  Shards& operator=(Shards&& other) noexcept;

  // Closes the regions: after it no peer reads the memory. Idempotent. Errors: as
  // MemoryRegion::close().
  Status close(Nanos timeout = slime::limits::kCloseBound);

  struct State;

 private:
  explicit Shards(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

namespace limits {

// Bounds of shards, which a peer may have made. They keep every product of the fields inside 64
// bits.
inline constexpr std::size_t kShards = 16384;
inline constexpr std::size_t kDimensions = 16;
inline constexpr std::uint32_t kItemBytes = 4096;
inline constexpr std::uint64_t kTensorBytes = std::uint64_t{1} << 56;
inline constexpr std::size_t kShardsBytes = 8 << 20;  // encoded

}  // namespace limits
}  // namespace slime::kv
