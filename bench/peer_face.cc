// A client that is an agent: the public face of Peer.
#include <optional>
#include <vector>

#include "base/str.h"
#include "bench/load.h"
#include "bench/shared.h"

namespace slime::bench {
namespace {

class PeerFace final : public Face {
 public:
  PeerFace(std::unique_ptr<PeerAgent> agent, Peer peer, const Options& options)
      : options_(options),
        agent_(std::move(agent)),
        peer_(std::move(peer)),
        calls_(options.inflight),
        moves_(options.inflight) {}

  [[nodiscard]] std::string provider() const override { return peer_.info().provider; }

  Status call(std::uint32_t slot, const ByteVector& payload) override {
    calls_[slot] = peer_.call<ByteVector>("bench", "echo", payload);
    return {};
  }
  Status move(std::uint32_t slot, std::size_t first, std::size_t count, bool write) override {
    const auto copies = std::span<const Copy>(copies_).subspan(first, count);
    moves_[slot] = write ? peer_.write(copies) : peer_.read(copies);
    return {};
  }
  Status finish(std::uint32_t slot) override {
    if (options_.moves_blocks()) return moves_[slot].wait().status();
    return reply_.emplace(calls_[slot].wait()).status();
  }
  bool brought_back(std::uint32_t, const ByteVector& payload) override {
    const bool same = same_bytes(**reply_, payload);
    reply_.reset();
    return same;
  }

  Status use_blocks(std::span<const Block> blocks, std::uint64_t base) override {
    auto local = make_region(*agent_, options_, region_bytes(options_), Rights::kLocal, foreign_);
    if (!local) return std::move(local).error();
    local_ = std::move(*local);
    auto remote = peer_.region("bulk");
    if (!remote) return std::move(remote).error();
    remote_ = *remote;
    for (const Block& block : blocks)
      copies_.push_back({local_, block.local, remote_, base + block.remote, options_.size});
    return {};
  }
  [[nodiscard]] MutableBytes memory() const override { return local_.bytes(); }

 private:
  const Options options_;
  const std::unique_ptr<PeerAgent> agent_;
  Peer peer_;
  std::vector<Future<ByteVector>> calls_;
  std::vector<Future<None>> moves_;
  std::optional<Result<ByteVector>> reply_;  // of the call that ended last
  Pages foreign_;                            // outlives the region over it
  MemoryRegion local_;
  RemoteRegion remote_;
  std::vector<Copy> copies_;  // one for each block
};

}  // namespace

Result<std::unique_ptr<Face>> make_peer_face(const Options& options, const std::string& address,
                                             std::uint32_t index) {
  auto agent = PeerAgent::start(agent_options(options, str("bench-client-", index)));
  if (!agent) return std::move(agent).error();
  Peer peer = (*agent)->peer(address);
  if (auto connected = peer.connect().wait(); !connected) return std::move(connected).error();
  return std::unique_ptr<Face>(new PeerFace(std::move(*agent), std::move(peer), options));
}

}  // namespace slime::bench
