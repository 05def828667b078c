// How an endpoint hands one-sided work to the device.
#include <algorithm>

#include "transport/verbs/chain.h"
#include "transport/verbs/endpoint.h"

namespace slime::transport::verbs {
namespace {

// The peer's key for the byte at `offset`, and how many bytes from there it covers.
struct RemoteKey {
  std::uint32_t rkey;
  std::uint64_t bytes;
};
RemoteKey remote_key(const RemoteRegion& region, std::uint64_t offset) {
  const RemoteAccess& access = region.access();
  if (!access.keys) return {static_cast<std::uint32_t>(access.key), region.length_bytes() - offset};
  const std::uint64_t part = part_bytes(region.length_bytes(), access.keys->size());
  return {static_cast<std::uint32_t>((*access.keys)[offset / part]), part - offset % part};
}

}  // namespace

void VerbsEndpoint::post_data() {
  bool again = true;
  while (again && working()) {
    again = false;
    for (std::uint32_t i = 0; i < lanes_.size() && working(); ++i) {
      if (!lanes_[i].backlog.empty()) again = post_lane(i) || again;
    }
  }
}

// The shortest way of one block to the device. False: it takes more than one work request, or its turn.
bool VerbsEndpoint::post_single(OneSided& operation, std::uint32_t number) {
  QueuePair& pair = *lanes_[number].pair;
  if (operation.batch.size() != 1 || operation.flush_read || !lanes_[number].backlog.empty() ||
      pair.room() == 0)
    return false;
  const Copy& copy = operation.batch.front();
  const RemoteRegion& remote = *copy.remote;
  const std::uint64_t bytes = copy.length_bytes;
  if (bytes == 0 || bytes > limits::kWorkRequestBytes) return false;
  const RemoteKey key = remote_key(remote, copy.remote_offset);
  const VerbsRegion::LocalKey local = region_of(copy).local_key(copy.local_offset);
  if (bytes > key.bytes || bytes > local.bytes || port_->may_post(*this, work_in_flight_, 1) == 0)
    return false;
  const bool is_read = operation.kind == Kind::kRead;
  ibv_sge part{address_of(copy.local->data()) + copy.local_offset, static_cast<std::uint32_t>(bytes),
               local.lkey};
  ibv_send_wr request{};
  request.wr_id = WorkId{place_.index, place_.generation, number + 1, pair.next_place()}.pack();
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  if (!is_read && bytes <= pair.max_inline() && copy.local->kind() == MemoryKind::kHost)
    request.send_flags |= IBV_SEND_INLINE;
  request.wr.rdma.remote_addr = remote.access().base + copy.remote_offset;
  request.wr.rdma.rkey = key.rkey;
  if (operation.has_imm) {
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htobe32(operation.imm);
    operation.has_imm_posted = true;
    ++notifications_sent_;
  }
  std::uint32_t accepted = 0;
  Status posted = pair.post(&request, 1, 1, accepted);
  ++counters_.doorbells;
  account(pair, QueuePair::Owner{operation.self, accepted, QueuePair::Owner::kNone});
  (is_read ? counters_.bytes_received : counters_.bytes_sent) += bytes;
  operation.next_copy = 1;
  operation.in_flight = accepted;
  operation.moved = operation.started = operation.posted = true;
  if (posted.ok()) return true;
  operation.failure = unavailable(posted);
  break_now(operation.failure);
  return true;
}

// One chain; true when there may be more.
bool VerbsEndpoint::post_lane(std::uint32_t number) {
  Lane& lane = lanes_[number];
  if (lane.pair->room() == 0) return false;
  const std::uint32_t most =
      port_->may_post(*this, work_in_flight_, std::min(limits::kChainRequests, lane.pair->room()));
  if (most == 0) return false;
  Chain& chain = port_->empty_chain();
  fill_chain(lane, chain, most);
  if (chain.count == 0) return !lane.backlog.empty();
  return post_chain(*lane.pair, number + 1, chain) == chain.count && !lane.backlog.empty();
}

std::uint32_t VerbsEndpoint::fill_chain(Lane& lane, Chain& chain, std::uint32_t most) {
  const std::uint32_t interval = std::min(limits::kSignalInterval, std::max(lane.pair->depth() / 4, 1U));
  std::uint32_t since_signal = lane.pair->unsignaled();
  while (chain.count < most && !lane.backlog.empty()) {
    const Handle handle = lane.backlog.front();
    OneSided* operation = operations_.find(handle);
    if (operation == nullptr || operation->posted) {
      lane.backlog.pop_front();
      continue;
    }
    const std::uint32_t before = chain.count;
    // A striped one takes turns with the other lanes.
    const std::uint32_t until = operation->striped ? std::min(most, before + 2) : most;
    bool more = true;
    while (chain.count < until && more) more = next_request(*operation, chain);
    for (std::uint32_t i = before; i < chain.count; ++i) {
      chain.own(handle);
      ++operation->in_flight;
      ++since_signal;
      const bool last = i + 1 == chain.count && !more;
      const bool large = (chain.requests[i].send_flags & IBV_SEND_SIGNALED) != 0;
      if (large || last || operation->striped || since_signal >= interval) {
        chain.requests[i].send_flags |= IBV_SEND_SIGNALED;
        since_signal = 0;
      }
    }
    if (chain.count > before) operation->started = true;
    if (more) return chain.count;  // the chain is full, or it is the turn of another lane
    operation->posted = true;
    lane.backlog.pop_front();
    if (operation->in_flight == 0) without_work_.push_back(handle);  // a batch without a byte
  }
  return chain.count;
}

// Adds the next work request of `operation`; false when that was the last.
bool VerbsEndpoint::next_request(OneSided& operation, Chain& chain) {
  const std::span<const Copy> copies = operation.copies();
  while (operation.next_copy < copies.size() && copies[operation.next_copy].length_bytes == 0)
    ++operation.next_copy;
  if (operation.next_copy == copies.size()) return next_tail(operation, chain);
  if (operation.atomic) {
    add_atomic(operation, chain);
    return false;
  }
  const bool is_read = operation.kind == Kind::kRead;
  ibv_send_wr& request = chain.add(is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);
  const std::uint64_t most = operation.striped ? limits::kWorkRequestBytes / 2 : limits::kWorkRequestBytes;
  const std::uint64_t total = gather(operation, request, most);
  operation.moved = true;
  if (total >= limits::kSignalBytes) request.send_flags |= IBV_SEND_SIGNALED;
  (is_read ? counters_.bytes_received : counters_.bytes_sent) += total;
  while (operation.next_copy < copies.size() && copies[operation.next_copy].length_bytes == 0)
    ++operation.next_copy;
  if (operation.next_copy < copies.size()) return true;
  if (operation.flush_read) return true;
  if (operation.has_imm) {
    operation.has_imm_posted = true;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htobe32(operation.imm);
    ++notifications_sent_;
  }
  return false;
}

// Joins blocks that lie one behind the other at the peer into one work request; here they may lie anywhere,
// as long as the device takes the pieces.
std::uint64_t VerbsEndpoint::gather(OneSided& operation, ibv_send_wr& request, std::uint64_t most) {
  const std::span<const Copy> copies = operation.copies();
  const std::uint32_t most_parts = operation.kind == Kind::kRead ? port_->max_scatter() : port_->max_gather();
  std::uint64_t total = 0;
  std::uint64_t remote_end = 0;
  while (operation.next_copy < copies.size() && total < most) {
    const Copy& copy = copies[operation.next_copy];
    if (copy.length_bytes == 0) {
      ++operation.next_copy;
      continue;
    }
    const RemoteRegion& remote = *copy.remote;
    const std::uint64_t remote_offset = copy.remote_offset + operation.copy_offset;
    const RemoteKey key = remote_key(remote, remote_offset);
    const std::uint64_t remote_address = remote.access().base + remote_offset;
    if (total > 0 && (key.rkey != request.wr.rdma.rkey || remote_address != remote_end)) break;
    const std::uint64_t local_offset = copy.local_offset + operation.copy_offset;
    const VerbsRegion::LocalKey local = region_of(copy).local_key(local_offset);
    const std::uint64_t bytes =
        std::min({copy.length_bytes - operation.copy_offset, most - total, key.bytes, local.bytes});
    const std::uint64_t local_address = address_of(copy.local->data()) + local_offset;
    ibv_sge* const last = request.num_sge > 0 ? &request.sg_list[request.num_sge - 1] : nullptr;
    if (last != nullptr && last->lkey == local.lkey && last->addr + last->length == local_address) {
      last->length += static_cast<std::uint32_t>(bytes);
    } else {
      if (static_cast<std::uint32_t>(request.num_sge) == most_parts) break;
      request.sg_list[request.num_sge++] = {local_address, static_cast<std::uint32_t>(bytes), local.lkey};
    }
    if (total == 0) {
      request.wr.rdma.remote_addr = remote_address;
      request.wr.rdma.rkey = key.rkey;
    } else if (operation.copy_offset == 0) {
      ++counters_.coalesced;
    }
    total += bytes;
    remote_end = remote_address + bytes;
    operation.copy_offset += bytes;
    if (operation.copy_offset == copy.length_bytes) {
      ++operation.next_copy;
      operation.copy_offset = 0;
    }
  }
  return total;
}

void VerbsEndpoint::add_atomic(OneSided& operation, Chain& chain) {
  const Copy& copy = operation.atomic->copy;
  const bool is_add = operation.kind == Kind::kFetchAdd;
  ibv_send_wr& request = chain.add(is_add ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP);
  const RemoteRegion& remote = *copy.remote;
  request.wr.atomic.remote_addr = remote.access().base + copy.remote_offset;
  request.wr.atomic.rkey = remote_key(remote, copy.remote_offset).rkey;
  request.wr.atomic.compare_add = operation.atomic->compare_add;
  request.wr.atomic.swap = operation.atomic->swap;
  request.sg_list[0] = {address_of(copy.local->data()) + copy.local_offset, sizeof(std::uint64_t),
                        region_of(copy).local_key(copy.local_offset).lkey};
  request.num_sge = 1;
  operation.next_copy = 1;
}

// What follows the data of a batch: the read that flushes it, a notification of its own. False: nothing more.
bool VerbsEndpoint::next_tail(OneSided& operation, Chain& chain) {
  if (operation.flush_read && operation.moved) {
    operation.flush_read = false;
    const Copy& copy = operation.copies().back();
    ibv_send_wr& request = chain.add(IBV_WR_RDMA_READ);
    const RemoteRegion& remote = *copy.remote;
    const std::uint64_t offset = copy.remote_offset - (copy.remote_offset == remote.length_bytes() ? 1 : 0);
    request.wr.rdma.remote_addr = remote.access().base + offset;
    request.wr.rdma.rkey = remote_key(remote, offset).rkey;
    request.sg_list[0] = port_->words().scratch();
    request.num_sge = 1;
    return operation.has_imm;
  }
  if (operation.has_imm && !operation.has_imm_posted) {
    operation.has_imm_posted = true;
    ibv_send_wr& request = chain.add(IBV_WR_RDMA_WRITE_WITH_IMM);
    request.imm_data = htobe32(operation.imm);
    // Behind the answer of a flushing read, if there was one.
    if (port_->context()->options.flush_read) request.send_flags |= IBV_SEND_FENCE;
    ++notifications_sent_;
  }
  return false;
}

}  // namespace slime::transport::verbs
