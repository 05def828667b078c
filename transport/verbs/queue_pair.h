#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/result.h"
#include "transport/outage.h"
#include "transport/queue.h"
#include "transport/verbs/context.h"
#include "transport/verbs/parameters.h"

namespace slime::transport::verbs {

struct QueuePairShape {
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  std::uint32_t depth = 0;       // work requests
  std::uint32_t max_sge = 1;     // of one work request
  std::uint32_t max_inline = 0;  // asked for
};

// How one queue pair reaches its peer.
struct QueuePairRoute {
  ibv_gid local_gid{};
  int local_gid_index = 0;
  ibv_mtu mtu{};
  std::uint8_t read_requests = 0;  // most reads and atomics of this side in flight
  // most reads and atomics of the peer that this side answers at once
  std::uint8_t read_responses = 0;
  QueuePairAddress remote;
  ibv_gid remote_gid{};
  std::uint16_t remote_lid = 0;
  bool ethernet = true;
  RetryPolicy retries;
};

// Returns the address of `data` as a number, as work requests need it.
inline std::uint64_t address_of(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data); }

// One reliable connected queue pair, which counts the entries of its send queue. A work request
// takes an entry from its post until its completion, or that of a later request, is polled; the
// device counts in this way, too. Thread: the loop; create(), connect(), fail() and the destructor,
// which may take milliseconds: any thread, one at a time.
class QueuePair {
 public:
  // Makes a queue pair in the state INIT, with a random PSN. Holds a reference to `queues`, the
  // owner of the queues in `shape`. If the device ran out of something: kResourceExhausted, and the
  // text names it.
  static Result<std::shared_ptr<QueuePair>> create(std::shared_ptr<Context> context,
                                                   std::shared_ptr<const void> queues,
                                                   const QueuePairShape& shape);
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  ~QueuePair();  // afterwards the device accesses no memory of this pair's work requests

  [[nodiscard]] QueuePairAddress address() const { return {qp_->qp_num, psn_}; }
  [[nodiscard]] std::uint32_t max_inline() const { return max_inline_; }
  // Goes from INIT through RTR to RTS.
  Status connect(const QueuePairRoute& route);
  // Moves the queue pair to the state ERR: the device flushes each posted work request, with a
  // completion.
  void fail();
  // Returns whether the queue pair may have taken receives out of the shared receive queue.
  [[nodiscard]] bool receives() const { return receives_; }

  [[nodiscard]] std::uint32_t room() const { return depth_ - in_flight(); }
  [[nodiscard]] std::uint32_t in_flight() const { return posted_ - reaped_; }
  [[nodiscard]] std::uint32_t depth() const { return depth_; }
  // Returns the place of the next work request: the number of work requests before it, modulo 2^24.
  [[nodiscard]] std::uint32_t next_place() const { return posted_; }
  // Returns the number of work requests that were posted after the last one that asks for a
  // completion.
  [[nodiscard]] std::uint32_t unsignaled() const { return posted_ - signaled_; }

  // The operation or the send buffer to which consecutive work requests belong.
  struct Owner {
    Handle operation;  // of one-sided work; zero: none
    std::uint32_t work_requests = 0;
    // send buffer that is free again when the work requests have ended
    std::uint32_t buffer = kNone;
    static constexpr std::uint32_t kNone = UINT32_MAX;
  };
  // Posts a chain that fits into room(). `signaled_end`: number of requests up to and including the
  // last one that asks for a completion; 0: none does. Sets `accepted` to the number of requests
  // that the device took: all of them, unless the status says why not.
  Status post(ibv_send_wr* first, std::uint32_t count, std::uint32_t signaled_end, std::uint32_t& accepted);
  void own(const Owner& owner) { owners_.push_back(owner); }

  // Removes the work requests up to and including `place`, which a completion has ended. Calls
  // fn(const Owner&, in_part) for each owner; `in_part`: other work requests of the owner are still
  // in flight. Returns the number of removed work requests.
  template <class F>
  std::uint32_t reap(std::uint32_t place, F&& fn);
  // A faster reap() for the usual case. If the first owner has only one work request, at `place`,
  // removes it and returns true. Otherwise returns false: call reap().
  [[nodiscard]] bool reap_one(std::uint32_t place, Owner& owner) {
    if (place != (reaped_ & MessageNote::kMask) || owners_.front().work_requests != 1) return false;
    owner = owners_.pop_front();
    ++reaped_;
    return true;
  }
  // Calls fn(Owner) for the owners of all work requests in flight, and forgets them. Call before
  // the queue pair is destroyed.
  template <class F>
  void abandon(F&& fn) {
    while (!owners_.empty()) fn(owners_.pop_front());
  }
  // Returns whether the work request at `place` is in flight.
  [[nodiscard]] bool in_window(std::uint32_t place) const {
    return ((place - reaped_) & MessageNote::kMask) < in_flight();
  }

 private:
  QueuePair(std::shared_ptr<Context> context, std::shared_ptr<const void> queues, ibv_qp* qp,
            const QueuePairShape& shape, std::uint32_t max_inline);

  const std::shared_ptr<Context> context_;
  const std::shared_ptr<const void> queues_;
  ibv_qp* const qp_;
  const std::uint32_t depth_;
  const std::uint32_t max_inline_;
  const std::uint32_t psn_;
  std::uint32_t posted_ = 0;
  std::uint32_t reaped_ = 0;
  std::uint32_t signaled_ = 0;  // the place behind the newest signaled one
  bool failed_ = false;
  bool receives_ = false;
  Queue<Owner> owners_;
};

template <class F>
std::uint32_t QueuePair::reap(std::uint32_t place, F&& fn) {
  const std::uint32_t count = ((place - reaped_) & MessageNote::kMask) + 1;
  std::uint32_t left = count;
  while (left > 0) {
    Owner& front = owners_.front();
    if (front.work_requests > left) {
      front.work_requests -= left;
      fn(Owner{front.operation, left, Owner::kNone}, true);
      left = 0;
    } else {
      left -= front.work_requests;
      const Owner whole = owners_.pop_front();
      fn(whole, false);
    }
  }
  reaped_ += count;
  return count;
}

}  // namespace slime::transport::verbs
