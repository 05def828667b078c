#pragma once

#include <string>
#include <string_view>

#include "transport/counters.h"
#include "transport/verbs/functions.h"

namespace slime::transport::verbs {

// The cause of an error completion.
enum class Blame {
  kVictim,  // flushed, because the queue pair had failed before: the first error has the cause
  kLocal,   // this side: a bug, or memory that is no longer registered
  kRemote,  // the peer's device refused: key, rights, bounds, or a closed region
  kPath,    // no proper answer: dead peer, wrong GID, MTU, partition, cable
  kPeer,    // the peer's device answered, but had no receive posted, or has a fault
  kDevice,  // our adapter or driver
};
Blame blame_for(ibv_wc_status status);
std::string_view blame_name(Blame blame);
// Counts an error completion by its cause.
void count_error(EndpointCounters& counters, ibv_wc_status status);

// The work that failed, for the text.
struct FailedWork {
  std::string_view operation;  // "read", "write", "message", "fetch-add", ...
  std::string_view peer;       // its name
  std::string path;            // device, port, both GIDs, MTU, SL, traffic class, timeout, retries
};
// Returns the status with which the failed operation ends. Its code follows the Blame: kRemote
// gives kPermissionDenied; kPath, kPeer and kVictim give kUnavailable; kLocal and kDevice give
// kInternal. The text has the operation, the peer, name and number of the verbs status, vendor_err,
// the path, the probable cause and what to check.
Status completion_error(const Functions& functions, const ibv_wc& completion, const FailedWork& work);
// Returns the error of a call that failed with `error`, an errno value. `what` names the call and
// its size. `pins_memory`: ENOMEM becomes kResourceExhausted with advice on `ulimit -l`.
Status call_error(std::string_view what, int error, bool pins_memory = false);
// "device fatal", "port error", ...
std::string_view event_name(ibv_event_type type);

}  // namespace slime::transport::verbs
