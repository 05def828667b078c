#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "transport/limits.h"

namespace slime::transport::verbs {

// Divides the entries of a completion queue that are for work requests among endpoints, so that the
// queue never overflows. Each endpoint reserves some entries; its further posts use entries that
// all endpoints share. Only counts. Thread: the loop.
class WorkBudget {
 public:
  explicit WorkBudget(std::uint32_t entries) : free_(entries) {}

  // Returns the number of entries that are neither reserved nor taken.
  [[nodiscard]] std::uint32_t free() const { return free_; }

  // Takes the reserve of one endpoint. Returns false if too few entries are free.
  bool reserve() {
    if (free_ < limits::kReservedWorkRequests) return false;
    free_ -= limits::kReservedWorkRequests;
    return true;
  }
  // Gives back the reserve of an endpoint that has nothing in flight.
  void unreserve() { free_ += limits::kReservedWorkRequests; }

  // Returns how many of `wanted` work requests may be posted by an endpoint that has `in_flight`.
  [[nodiscard]] std::uint32_t may_post(std::uint32_t in_flight, std::uint32_t wanted) const {
    const std::uint32_t own =
        limits::kReservedWorkRequests - std::min(in_flight, limits::kReservedWorkRequests);
    return std::min(wanted, own + free_);
  }
  // took() notes that an endpoint has posted; gave_back() notes that completions of its work
  // requests were polled.
  void took(std::uint32_t in_flight_before, std::uint32_t count) {
    const std::uint32_t shared = beyond(in_flight_before + count) - beyond(in_flight_before);
    SLIME_CHECK(shared <= free_);
    free_ -= shared;
  }
  void gave_back(std::uint32_t in_flight_before, std::uint32_t count) {
    free_ += beyond(in_flight_before) - beyond(in_flight_before - count);
  }

  // Gives back the reserve of an endpoint that has ended, except for the `in_flight` work requests
  // that it still has. Their entries stay taken until release_retired(), which is called when the
  // queue can hold no completion of them.
  void retire(std::uint32_t in_flight) {
    retired_ += in_flight;
    free_ += limits::kReservedWorkRequests - std::min(in_flight, limits::kReservedWorkRequests);
  }
  [[nodiscard]] std::uint32_t retired() const { return retired_; }
  void release_retired() { free_ += std::exchange(retired_, 0); }

 private:
  // Returns how many of `in_flight` work requests are beyond the endpoint's reserve.
  [[nodiscard]] static std::uint32_t beyond(std::uint32_t in_flight) {
    return in_flight - std::min(in_flight, limits::kReservedWorkRequests);
  }

  std::uint32_t free_;
  std::uint32_t retired_ = 0;
};

}  // namespace slime::transport::verbs
