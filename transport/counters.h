#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace slime::transport {

struct EndpointCounters {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;      // all sent bytes, framing included
  std::uint64_t bytes_received = 0;  // all received bytes
  std::uint64_t reads = 0;           // operations, not blocks
  std::uint64_t writes = 0;
  std::uint64_t atomics = 0;
  std::uint64_t notifications_received = 0;
  // reads and writes whose bytes this side copied itself, without the wire
  std::uint64_t direct_copies = 0;
  std::uint64_t direct_bytes = 0;  // their bytes; counted nowhere else
  // Reads of this side, and writes of the peer, whose bytes the kernel read from the peer's memory
  // for this side.
  std::uint64_t fetched_copies = 0;
  std::uint64_t fetched_bytes = 0;  // their bytes; counted nowhere else
  std::uint64_t credit_stalls = 0;  // sends refused because there was no credit
  std::uint64_t failed_operations = 0;
  // Work requests posted to the device. This counter and all below are zero for providers without a
  // device.
  std::uint64_t work_requests = 0;
  // posts to the device; each posts one work request or a chain of them
  std::uint64_t doorbells = 0;
  std::uint64_t completions = 0;  // of our work requests
  std::uint64_t coalesced = 0;    // blocks that share the work request of the block before them
  // Completions that report an error; below, they are split by the side that caused the error
  // (transport/verbs/errors.h).
  std::uint64_t error_completions = 0;
  std::uint64_t errors_local = 0;
  std::uint64_t errors_remote = 0;
  std::uint64_t errors_path = 0;
  std::uint64_t errors_peer = 0;
  std::uint64_t errors_device = 0;
  std::uint64_t errors_victim = 0;
  // the part of errors_peer where the peer had no receive posted during all retries
  std::uint64_t receiver_not_ready = 0;
};

// Name and member of one counter. kEndpointCounters lists all counters, for adding up and printing.
struct EndpointCounter {
  const char* name;
  std::uint64_t EndpointCounters::*value;
};
inline constexpr std::array kEndpointCounters{
    EndpointCounter{"messages_sent", &EndpointCounters::messages_sent},
    EndpointCounter{"messages_received", &EndpointCounters::messages_received},
    EndpointCounter{"bytes_sent", &EndpointCounters::bytes_sent},
    EndpointCounter{"bytes_received", &EndpointCounters::bytes_received},
    EndpointCounter{"reads", &EndpointCounters::reads},
    EndpointCounter{"writes", &EndpointCounters::writes},
    EndpointCounter{"atomics", &EndpointCounters::atomics},
    EndpointCounter{"notifications_received", &EndpointCounters::notifications_received},
    EndpointCounter{"direct_copies", &EndpointCounters::direct_copies},
    EndpointCounter{"direct_bytes", &EndpointCounters::direct_bytes},
    EndpointCounter{"fetched_copies", &EndpointCounters::fetched_copies},
    EndpointCounter{"fetched_bytes", &EndpointCounters::fetched_bytes},
    EndpointCounter{"credit_stalls", &EndpointCounters::credit_stalls},
    EndpointCounter{"failed_operations", &EndpointCounters::failed_operations},
    EndpointCounter{"work_requests", &EndpointCounters::work_requests},
    EndpointCounter{"doorbells", &EndpointCounters::doorbells},
    EndpointCounter{"completions", &EndpointCounters::completions},
    EndpointCounter{"coalesced", &EndpointCounters::coalesced},
    EndpointCounter{"error_completions", &EndpointCounters::error_completions},
    EndpointCounter{"errors_local", &EndpointCounters::errors_local},
    EndpointCounter{"errors_remote", &EndpointCounters::errors_remote},
    EndpointCounter{"errors_path", &EndpointCounters::errors_path},
    EndpointCounter{"errors_peer", &EndpointCounters::errors_peer},
    EndpointCounter{"errors_device", &EndpointCounters::errors_device},
    EndpointCounter{"errors_victim", &EndpointCounters::errors_victim},
    EndpointCounter{"receiver_not_ready", &EndpointCounters::receiver_not_ready},
};
static_assert(sizeof(EndpointCounters) == kEndpointCounters.size() * sizeof(std::uint64_t));

inline EndpointCounters& operator+=(EndpointCounters& sum, const EndpointCounters& more) {
  for (const EndpointCounter& counter : kEndpointCounters) sum.*counter.value += more.*counter.value;
  return sum;
}

// Counters of a port since it was opened.
struct PortCounters {
  EndpointCounters endpoints;  // of all endpoints together, including ended ones
  // Completions of all endpoints, including receives and completions without a known endpoint. This
  // counter and all below are zero for providers whose endpoints share no completion queue.
  std::uint64_t completions = 0;
  std::uint64_t stale_completions = 0;  // of ended endpoints; dropped
  std::uint64_t receives_posted = 0;
  std::uint64_t wakeups = 0;            // completion events
  std::uint64_t refused_endpoints = 0;  // because the completion queue had no room
};

inline PortCounters& operator+=(PortCounters& sum, const PortCounters& more) {
  sum.endpoints += more.endpoints;
  sum.completions += more.completions;
  sum.stale_completions += more.stale_completions;
  sum.receives_posted += more.receives_posted;
  sum.wakeups += more.wakeups;
  sum.refused_endpoints += more.refused_endpoints;
  return sum;
}

// A counter that an adapter keeps for all users of its port, with the name that the driver gives
// it.
struct DeviceCounter {
  std::string name;
  std::uint64_t value = 0;
};

}  // namespace slime::transport
