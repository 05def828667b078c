#include "agent/prepared_batch.h"

#include <limits>
#include <string>

#include "agent/agent_impl.h"
#include "base/mutex.h"
#include "base/str.h"

namespace slime {

// Holds the current binding. A post in flight keeps the binding with which it was posted.
struct PreparedBatch::State {
  State(std::shared_ptr<PeerAgentImpl> its_agent, std::shared_ptr<agent::NamedPeer> its_peer,
        Transfer its_transfer, Nanos its_timeout, bool waits, std::shared_ptr<agent::BoundCopies> copies)
      : agent(std::move(its_agent)),
        peer(std::move(its_peer)),
        transfer(its_transfer),
        timeout(its_timeout),
        wait_for_ready(waits),
        bound(std::move(copies)) {}

  const std::shared_ptr<PeerAgentImpl> agent;
  const std::shared_ptr<agent::NamedPeer> peer;
  const Transfer transfer;
  const Nanos timeout;
  const bool wait_for_ready;

  Mutex mutex;
  std::shared_ptr<agent::BoundCopies> bound SLIME_GUARDED_BY(mutex);

  std::shared_ptr<agent::BoundCopies> now() {
    const MutexLock lock(mutex);
    return bound;
  }
  Future<None> post(agent::OneSided kind, std::span<const std::uint32_t> blocks, std::uint32_t imm,
                    PostOptions options) {
    if (options.timeout == Nanos::zero()) options.timeout = timeout;
    auto copies = now();
    if (blocks.empty() && kind != agent::OneSided::kWriteWithImm &&
        agent->starter().done_now(*peer, transfer, *copies))
      return Future<None>::ready(None{});
    return agent->starter().post(peer, kind, std::move(copies), blocks, imm, options, wait_for_ready);
  }
  Future<None> post_some(agent::OneSided kind, std::span<const std::uint32_t> blocks, std::uint32_t imm,
                         PostOptions options) {
    if (blocks.empty()) return Future<None>::ready(Status(Code::kInvalidArgument, "no blocks of the batch"));
    const std::size_t size = now()->size();
    for (const std::uint32_t block : blocks) {
      if (block >= size)
        return Future<None>::ready(
            Status(Code::kInvalidArgument, str("block ", block, " of a batch of ", size)));
    }
    return post(kind, blocks, imm, options);
  }
};

namespace {

Status no_batch() { return Status(Code::kInvalidArgument, "an empty batch: get one from Peer::prepare()"); }
Status no_imm() {
  return Status(Code::kInvalidArgument,
                "a batch that reads has no immediate: prepare it with Transfer::kWrite");
}

agent::OneSided kind_of(Transfer transfer) {
  return transfer == Transfer::kRead ? agent::OneSided::kRead : agent::OneSided::kWrite;
}

Status too_many(std::uint64_t blocks) {
  return Status(Code::kInvalidArgument,
                str("a batch of ", blocks, " blocks; at most ", agent::limits::kBatchBlocks));
}

}  // namespace

// --------------------------------------------------------------------------------------- preparing

Result<PreparedBatch> Peer::prepare(Transfer transfer, std::span<const Copy> copies) const {
  if (!agent_) return Status(Code::kInvalidArgument, "an empty peer: get one from PeerAgent::peer()");
  auto bound = agent_->starter().bind(name(), transfer, copies);
  if (!bound) return std::move(bound).error();
  return PreparedBatch(std::make_shared<PreparedBatch::State>(agent_, peer_, transfer, timeout_,
                                                              wait_for_ready_, *std::move(bound)));
}

Result<PreparedBatch> Peer::prepare(Transfer transfer, const BlockOffsets& blocks) const {
  const std::size_t count = blocks.local_offsets.size();
  if (count != blocks.remote_offsets.size())
    return Status(Code::kInvalidArgument,
                  str(count, " local offsets, and ", blocks.remote_offsets.size(), " remote ones"));
  if (count > agent::limits::kBatchBlocks) return too_many(count);
  std::vector<Copy> copies;
  copies.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    copies.push_back({blocks.local, blocks.local_offsets[i], blocks.remote, blocks.remote_offsets[i],
                      blocks.length_bytes});
  return prepare(transfer, copies);
}

Result<PreparedBatch> Peer::prepare(Transfer transfer, const BlockStrides& blocks) const {
  if (blocks.count > agent::limits::kBatchBlocks) return too_many(blocks.count);
  // An offset that overflows becomes the largest number, which is outside of every region.
  const auto offset_of = [](std::uint64_t offset, std::uint64_t stride, std::uint64_t i) {
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
    return i > 0 && stride > (kMax - offset) / i ? kMax : offset + i * stride;
  };
  std::vector<Copy> copies;
  copies.reserve(static_cast<std::size_t>(blocks.count));
  for (std::uint64_t i = 0; i < blocks.count; ++i)
    copies.push_back({blocks.local, offset_of(blocks.local_offset, blocks.local_stride, i), blocks.remote,
                      offset_of(blocks.remote_offset, blocks.remote_stride, i), blocks.length_bytes});
  return prepare(transfer, copies);
}

// ----------------------------------------------------------------------------------------- posting

Future<None> PreparedBatch::post(PostOptions options) const {
  if (!state_) return Future<None>::ready(no_batch());
  return state_->post(kind_of(state_->transfer), {}, 0, options);
}

bool PreparedBatch::done_now() const {
  return state_ && state_->agent->starter().done_now(*state_->peer, state_->transfer, *state_->now());
}

Future<None> PreparedBatch::post(std::span<const std::uint32_t> blocks, PostOptions options) const {
  if (!state_) return Future<None>::ready(no_batch());
  return state_->post_some(kind_of(state_->transfer), blocks, 0, options);
}

Future<None> PreparedBatch::post_with_imm(std::uint32_t imm, PostOptions options) const {
  if (!state_) return Future<None>::ready(no_batch());
  if (state_->transfer == Transfer::kRead) return Future<None>::ready(no_imm());
  return state_->post(agent::OneSided::kWriteWithImm, {}, imm, options);
}

Future<None> PreparedBatch::post_with_imm(std::uint32_t imm, std::span<const std::uint32_t> blocks,
                                          PostOptions options) const {
  if (!state_) return Future<None>::ready(no_batch());
  if (state_->transfer == Transfer::kRead) return Future<None>::ready(no_imm());
  return state_->post_some(agent::OneSided::kWriteWithImm, blocks, imm, options);
}

Status PreparedBatch::rebind(std::span<const RemoteRegion> remotes) const {
  if (!state_) return no_batch();
  const auto before = state_->now();
  if (remotes.size() != before->remotes().size())
    return Status(Code::kInvalidArgument,
                  str(remotes.size(), " remote regions, and the batch names ", before->remotes().size()));
  auto after = before->with(remotes);
  SLIME_TRY(after->check_remotes(agent::rights_for(state_->transfer), state_->peer->name));
  const MutexLock lock(state_->mutex);
  state_->bound = std::move(after);
  return {};
}

std::vector<RemoteRegion> PreparedBatch::remotes() const {
  if (!state_) return {};
  const auto bound = state_->now();
  return {bound->remotes().begin(), bound->remotes().end()};
}

std::size_t PreparedBatch::size() const { return state_ ? state_->now()->size() : 0; }
std::uint64_t PreparedBatch::length_bytes() const { return state_ ? state_->now()->length_bytes() : 0; }

}  // namespace slime
