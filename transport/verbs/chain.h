#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/limits.h"
#include "transport/operation.h"
#include "transport/verbs/queue_pair.h"

namespace slime::transport::verbs {

// Work requests that go to the device with one doorbell. A chain is large, so a port has only one:
// each endpoint fills and posts it before another endpoint uses it. Thread: the loop.
struct Chain {
  std::array<ibv_send_wr, limits::kChainRequests> requests;
  std::array<std::array<ibv_sge, limits::kGatherParts>, limits::kChainRequests> parts;
  std::array<QueuePair::Owner, limits::kChainRequests> owners;
  std::uint32_t count = 0;
  std::uint32_t owner_count = 0;

  // In a chain of messages, the operation and the send buffer of one request.
  struct Sender {
    Operation* operation = nullptr;
    std::uint32_t buffer = 0;
  };
  std::array<Sender, limits::kChainRequests> senders;

  void clear() { count = owner_count = 0; }
  ibv_send_wr& add(ibv_wr_opcode opcode) {
    ibv_send_wr& request = requests[count];
    request.opcode = opcode;
    request.send_flags = 0;
    request.imm_data = 0;
    // The device reads no further field for an RC queue pair, except wr_id and next, which
    // SendQueues::post_chain() sets.
    request.wr = {};
    request.sg_list = parts[count].data();
    request.num_sge = 0;
    ++count;
    return request;
  }
  void drop_last() { --count; }
  void own(Handle operation) {
    if (owner_count > 0 && owners[owner_count - 1].operation == operation)
      ++owners[owner_count - 1].work_requests;
    else
      owners[owner_count++] = {operation, 1, QueuePair::Owner::kNone};
  }
  // Calls fn(operation, count) for each operation with work requests that the device did not take,
  // `count` in number. The device took the first `accepted` work requests of the chain.
  template <class F>
  void for_refused(std::uint32_t accepted, F&& fn) const {
    std::uint32_t left = accepted;
    for (std::uint32_t i = 0; i < owner_count; ++i) {
      const std::uint32_t taken = std::min(owners[i].work_requests, left);
      left -= taken;
      if (taken < owners[i].work_requests) fn(owners[i].operation, owners[i].work_requests - taken);
    }
  }
};

}  // namespace slime::transport::verbs
