#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "transport/limits.h"

namespace slime::transport::verbs {

// Divides the entries of a completion queue that are for work requests, so that it never overflows.
// Each endpoint reserves some; what it posts beyond them comes out of the entries that all share.
// Counts only. Thread: the loop.
class WorkBudget {
 public:
  explicit WorkBudget(std::uint32_t entries) : free_(entries) {}

  // Entries that are neither reserved nor taken.
  [[nodiscard]] std::uint32_t free() const { return free_; }

  // Takes the reserve of one endpoint. False: there is not so much.
  bool reserve() {
    if (free_ < limits::kReservedWorkRequests) return false;
    free_ -= limits::kReservedWorkRequests;
    return true;
  }
  // Gives back the reserve of an endpoint that has nothing in flight.
  void unreserve() { free_ += limits::kReservedWorkRequests; }

  // Returns how many of `wanted` work requests an endpoint may post that has so many in flight.
  [[nodiscard]] std::uint32_t may_post(std::uint32_t in_flight, std::uint32_t wanted) const {
    const std::uint32_t own =
        limits::kReservedWorkRequests - std::min(in_flight, limits::kReservedWorkRequests);
    return std::min(wanted, own + free_);
  }
  // Note that an endpoint posted, and that completions of its work requests were polled.
  void took(std::uint32_t in_flight_before, std::uint32_t count) {
    const std::uint32_t shared = beyond(in_flight_before + count) - beyond(in_flight_before);
    SLIME_CHECK(shared <= free_);
    free_ -= shared;
  }
  void gave_back(std::uint32_t in_flight_before, std::uint32_t count) {
    free_ += beyond(in_flight_before) - beyond(in_flight_before - count);
  }

  // Gives back the reserve of an endpoint that is gone, without what it still has in flight: that
  // counts as taken until no completion of it can be in the queue, when release_retired() is
  // called.
  void retire(std::uint32_t in_flight) {
    retired_ += in_flight;
    free_ += limits::kReservedWorkRequests - std::min(in_flight, limits::kReservedWorkRequests);
  }
  [[nodiscard]] std::uint32_t retired() const { return retired_; }
  void release_retired() { free_ += std::exchange(retired_, 0); }

 private:
  // Returns how many of these work requests are beyond the reserve.
  [[nodiscard]] static std::uint32_t beyond(std::uint32_t in_flight) {
    return in_flight - std::min(in_flight, limits::kReservedWorkRequests);
  }

  std::uint32_t free_;
  std::uint32_t retired_ = 0;
};

}  // namespace slime::transport::verbs
