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
  PeerFace(const Options& options, const Connection& connection)
      : options_(options),
        moves_blocks_(options.moves_blocks()),
        prepared_(options.face == "prepared"),
        numbers_(options.face == "numbers"),
        naive_(options.face == "naive"),
        agent_(connection.agent),
        peer_(connection.peer),
        calls_(options.inflight),
        moves_(options.inflight) {}

  [[nodiscard]] std::string provider() const override { return peer_.info().provider; }

  Status call(std::uint32_t slot, const ByteVector& payload) override {
    calls_[slot] = peer_.call<ByteVector>("bench", "echo", payload);
    return {};
  }
  Status move(std::uint32_t slot, std::size_t first, std::size_t count, bool write) override {
    if (prepared_) {
      moves_[slot] = (write ? writes_ : reads_)[first / count].post();
    } else if (numbers_) {
      const BlockIds blocks = numbers(first, count);
      moves_[slot] = write ? peer_.write_blocks(blocks) : peer_.read_blocks(blocks);
    } else if (naive_) {
      return move_one_by_one(slot, std::span<const Copy>(copies_).subspan(first, count), write);
    } else {
      const auto copies = std::span<const Copy>(copies_).subspan(first, count);
      moves_[slot] = write ? peer_.write(copies) : peer_.read(copies);
    }
    return {};
  }
  Status finish(std::uint32_t slot) override {
    if (moves_blocks_) return moves_[slot].wait().status();
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
    if (prepared_) return prepare();
    for (const Block& block : blocks) {
      local_ids_.push_back(block.local / options_.size);
      remote_ids_.push_back((base + block.remote) / options_.size);
    }
    return {};
  }
  [[nodiscard]] MutableBytes memory() const override { return local_.bytes(); }

 private:
  [[nodiscard]] BlockIds numbers(std::size_t first, std::size_t count) const {
    return {.local = local_,
            .remote = remote_,
            .local_ids = std::span(local_ids_).subspan(first, count),
            .remote_ids = std::span(remote_ids_).subspan(first, count),
            .block_bytes = options_.size};
  }
  // Waits for each block but the last, which finish() waits for.
  Status move_one_by_one(std::uint32_t slot, std::span<const Copy> copies, bool write) {
    for (const Copy& copy : copies) {
      moves_[slot] = write ? peer_.write({&copy, 1}) : peer_.read({&copy, 1});
      if (&copy != &copies.back()) SLIME_TRY(moves_[slot].wait().status());
    }
    return {};
  }
  // Prepares a batch for each operation, in both directions.
  Status prepare() {
    for (std::size_t first = 0; first < copies_.size(); first += options_.count) {
      const auto copies = std::span<const Copy>(copies_).subspan(first, options_.count);
      for (const Transfer transfer : {Transfer::kWrite, Transfer::kRead}) {
        auto batch = peer_.prepare(transfer, copies);
        if (!batch) return std::move(batch).error();
        (transfer == Transfer::kWrite ? writes_ : reads_).push_back(std::move(*batch));
      }
    }
    return {};
  }

  const Options options_;
  const bool moves_blocks_;  // of options_, without comparing texts in each operation
  const bool prepared_;
  const bool numbers_;
  const bool naive_;
  const std::shared_ptr<PeerAgent> agent_;
  Peer peer_;
  std::vector<Future<ByteVector>> calls_;
  std::vector<Future<None>> moves_;
  std::optional<Result<ByteVector>> reply_;  // of the call that ended last
  Pages foreign_;                            // outlives the region over it
  MemoryRegion local_;
  RemoteRegion remote_;
  std::vector<Copy> copies_;              // one for each block
  std::vector<std::uint64_t> local_ids_;  // of each block, in units of its size
  std::vector<std::uint64_t> remote_ids_;
  std::vector<PreparedBatch> writes_;  // one for each operation
  std::vector<PreparedBatch> reads_;
};

}  // namespace

Result<Connection> connect_agent(const Options& options, const std::string& address, std::uint32_t index) {
  auto agent = PeerAgent::start(agent_options(options, str("bench-client-", index)));
  if (!agent) return std::move(agent).error();
  Peer peer = (*agent)->peer(address);
  if (auto connected = peer.connect().wait(); !connected) return std::move(connected).error();
  return Connection{std::move(*agent), std::move(peer)};
}

std::unique_ptr<Face> make_peer_face(const Options& options, const Connection& connection) {
  return std::make_unique<PeerFace>(options, connection);
}

}  // namespace slime::bench
