#pragma once

#include <string>
#include <string_view>

#include "transport/counters.h"
#include "transport/verbs/functions.h"

namespace slime::transport::verbs {

// The cause of an error completion.
enum class Blame {
  kVictim,  // flushed, because the queue pair had failed before: look for the first error
  kLocal,   // a bug of this side, or memory of this side that is gone
  kRemote,  // the peer refused: key, rights, bounds, or a region that is gone
  kPath,    // no proper answer: dead peer, wrong GID, MTU, partition, cable
  kPeer,    // the peer answered, but had no receive posted, or a fault of its adapter
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
// Returns the status that the operation ends with. The code follows the cause: kRemote:
// kPermissionDenied; kPath, kPeer, kVictim: kUnavailable; kLocal, kDevice: kInternal. The text has
// the operation, the peer, the verbs status by name and number, vendor_err, the path, the probable
// cause and what to check.
Status completion_error(const Functions& functions, const ibv_wc& completion, const FailedWork& work);
// Returns the error of a call that returned `error` (an errno value). If `pins_memory`, ENOMEM
// becomes kResourceExhausted with the advice on `ulimit -l`; all else goes by errno. `what` names
// the call and its size.
Status call_error(std::string_view what, int error, bool pins_memory = false);
// "device fatal", "port error", ...
std::string_view event_name(ibv_event_type type);

}  // namespace slime::transport::verbs
