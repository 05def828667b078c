#include "transport/verbs/request_builder.h"

#include <algorithm>

#include "transport/limits.h"
#include "transport/verbs/regions.h"

namespace slime::transport::verbs {
namespace {

// The peer's key for a byte of its region, and the number of bytes from there that the key covers.
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

void RequestBuilder::notify_with(OneSided& operation, ibv_send_wr& request) {
  operation.has_imm_posted = true;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htobe32(operation.imm);
  ++notifications_;
}

bool RequestBuilder::single(OneSided& operation, std::uint32_t max_inline, ibv_send_wr& request,
                            ibv_sge& part) {
  const CopyBlock& copy = operation.batch.front();
  const RemoteRegion& remote = *copy.remote;
  const std::uint64_t bytes = copy.length_bytes;
  if (bytes == 0 || bytes > limits::kWorkRequestBytes) return false;
  const RemoteKey key = remote_key(remote, copy.remote_offset);
  const VerbsRegion::LocalKey local = region_of(copy).local_key(copy.local_offset);
  if (bytes > key.bytes || bytes > local.bytes) return false;
  const bool is_read = operation.kind == Kind::kRead;
  part = {address_of(copy.local->data()) + copy.local_offset, static_cast<std::uint32_t>(bytes), local.lkey};
  request.sg_list = &part;
  request.num_sge = 1;
  request.opcode = is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
  if (!is_read && bytes <= max_inline && copy.local->kind() == MemoryKind::kHost)
    request.send_flags = IBV_SEND_INLINE;
  request.wr.rdma.remote_addr = remote.access().base + copy.remote_offset;
  request.wr.rdma.rkey = key.rkey;
  if (operation.has_imm) notify_with(operation, request);
  (is_read ? counters_.bytes_received : counters_.bytes_sent) += bytes;
  operation.next_copy = 1;
  operation.moved = operation.started = operation.posted = true;
  return true;
}

bool RequestBuilder::next(OneSided& operation, Chain& chain) {
  if (operation.skip_empty()) return next_tail(operation, chain);
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
  if (!operation.skip_empty() || operation.flush_read) return true;
  if (operation.has_imm) notify_with(operation, request);
  return false;
}

// Fills `request` with the operation's next blocks, up to `most` bytes. Joins blocks that are
// adjacent at the peer; on this side they may lie anywhere, up to the number of pieces that the
// device takes. Returns the number of bytes.
std::uint64_t RequestBuilder::gather(OneSided& operation, ibv_send_wr& request, std::uint64_t most) {
  const std::span<const CopyBlock> copies = operation.copies();
  const std::uint32_t most_parts = operation.kind == Kind::kRead ? device_.max_scatter : device_.max_gather;
  std::uint64_t total = 0;
  std::uint64_t remote_end = 0;
  while (operation.next_copy < copies.size() && total < most) {
    const CopyBlock& copy = copies[operation.next_copy];
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

void RequestBuilder::add_atomic(OneSided& operation, Chain& chain) const {
  const CopyBlock& copy = operation.atomic->copy;
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

// Adds one request that follows the data of a batch: first the flushing read, then the
// notification. Returns false if no other request follows.
bool RequestBuilder::next_tail(OneSided& operation, Chain& chain) {
  if (operation.flush_read && operation.moved) {
    operation.flush_read = false;
    const CopyBlock& copy = operation.copies().back();
    ibv_send_wr& request = chain.add(IBV_WR_RDMA_READ);
    const RemoteRegion& remote = *copy.remote;
    const std::uint64_t offset = copy.remote_offset - (copy.remote_offset == remote.length_bytes() ? 1 : 0);
    request.wr.rdma.remote_addr = remote.access().base + offset;
    request.wr.rdma.rkey = remote_key(remote, offset).rkey;
    request.sg_list[0] = device_.scratch;
    request.num_sge = 1;
    return operation.has_imm;
  }
  if (operation.has_imm && !operation.has_imm_posted) {
    notify_with(operation, chain.add(IBV_WR_RDMA_WRITE_WITH_IMM));
    // The fence holds the notification back until an earlier flushing read has its answer.
    if (device_.flush_read) chain.requests[chain.count - 1].send_flags |= IBV_SEND_FENCE;
  }
  return false;
}

}  // namespace slime::transport::verbs
