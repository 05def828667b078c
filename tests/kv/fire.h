#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/peer_agent.h"
#include "kv/cache.h"
#include "kv/remote.h"

// Shared by test_fire.cc and kv_fire_peer.cc, the two ends of a transfer.
namespace slime::kv::fire {

inline constexpr std::uint64_t kBlockBytes = 4096;
inline constexpr std::uint64_t kRequest = 7;  // of writes that tell the peer
using Ids = std::vector<std::uint64_t>;

// One transfer. Both processes compute the same lists from the seed.
struct Plan {
  std::uint64_t seed = 0;
  std::uint64_t blocks = 0;  // of the lists
  std::uint32_t layers = 0;
  bool child_begins = false;  // the child makes the call; else the test
  bool write = false;         // else a read
  bool kv = false;            // kv::Remote; else Peer
  bool told = false;          // a write of kv::Remote tells the peer of each layer
  bool allocated = false;     // memory of Slime; else of the caller
  std::uint64_t timeout_ms = 0;

  [[nodiscard]] std::vector<std::string> arguments() const;
  // Returns the plan of a program with these arguments.
  static Plan of(char** arguments);

  [[nodiscard]] std::uint64_t pool() const { return blocks + blocks / 16 + 2; }  // blocks of a cache
  [[nodiscard]] std::uint64_t layer_bytes() const { return pool() * kBlockBytes; }
  [[nodiscard]] std::uint64_t source_seed() const { return 2 * seed; }
  [[nodiscard]] std::uint64_t target_seed() const { return 2 * seed + 1; }
  [[nodiscard]] bool child_is_source() const { return child_begins == write; }
  [[nodiscard]] Nanos timeout() const { return std::chrono::milliseconds(timeout_ms); }
  [[nodiscard]] std::string to_string() const;
};

// Lists without order. The i-th source goes to the i-th target; a target is there once, a source
// may be there several times. Some ids follow each other.
struct Lists {
  explicit Lists(const Plan& plan);
  Ids sources;
  Ids targets;
};

// Memory of all layers: the first byte of each.
using Layers = std::vector<std::byte*>;

// Fills a block, or all blocks, with bytes that belong to seed, layer and block.
void fill_block(const Plan& plan, std::byte* at, std::uint64_t seed, std::uint32_t layer,
                std::uint64_t block);
void fill(const Plan& plan, const Layers& layers, std::uint64_t seed);

// Memory of a memfd: the layers, between pages that no call may change. It is mapped twice: Slime
// has base(), and the test fills and checks its own view(), since what orders the two may be the
// other process, of which ThreadSanitizer knows nothing.
class Arena {
 public:
  Arena() = default;
  static Result<Arena> make(const Plan& plan);
  Arena(Arena&& other) noexcept { *this = std::move(other); }
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();
  static std::uint64_t size_of(const Plan& plan);
  static Layers layers_at(const Plan& plan, std::byte* base);
  static bool margins_are_whole(const Plan& plan, std::byte* base);

  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::byte* view() const { return view_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* view_ = nullptr;
  std::uint64_t size_ = 0;
  int fd_ = -1;
};

// The state of an end: its agent, its memory and the cache over it.
struct Side {
  std::unique_ptr<PeerAgent> agent;
  Arena arena;
  Cache cache;
  Layers layers;  // as the test sees them
  static Result<std::unique_ptr<Side>> start(const Plan& plan);
};

// The way to the other end's cache.
struct Route {
  Remote remote;
  Peer peer;
  std::vector<RemoteRegion> regions;  // by layer; for Peer
};
Result<Route> connect(Side& side, const Plan& plan, std::string_view address, Nanos timeout);

// Makes calls with lists that are wrong. Returns an error if a call was not refused.
Status make_wrong_calls(Side& side, Route& route, const Plan& plan);

// How a transfer ended, by layer.
struct Outcome {
  std::vector<Code> codes;
  std::string text;  // of the first error
  Nanos took{};

  [[nodiscard]] bool ok(std::uint32_t layer) const { return codes[layer] == Code::kOk; }
  [[nodiscard]] std::uint32_t succeeded() const;
  [[nodiscard]] std::string encode() const;  // one line
  static Outcome decode(std::string_view line);
  static Outcome unknown(const Plan& plan, Code code);
};
Outcome transfer(Side& side, Route& route, const Plan& plan, const Lists& lists);

// Destroys the route, the cache and the agent, but not the arena. Returns the longest time that one
// destructor took.
Nanos destroy(Side& side, Route route);

}  // namespace slime::kv::fire
