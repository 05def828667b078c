#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/py_future.h"
#include "python/py_rpc.h"
#include "rpc/metadata.h"

namespace slime::python {

// Metadata entries: key, value, and whether the call may be made without the entry.
using PyMetadata = std::vector<std::tuple<std::string, std::string, bool>>;

// Returns a Peer or ServiceProxy whose calls carry `metadata` and write their timing to `timing`.
// If `timing` is null, calls are not timed.
template <class Callee>
Callee carrying(Callee callee, const std::optional<PyMetadata>& metadata,
                const std::shared_ptr<rpc::CallTiming>& timing) {
  if (timing) callee = callee.with_timing(timing);
  if (!metadata) return callee;
  for (const auto& [key, value, optional] : *metadata)
    callee = callee.with_metadata(key, value, optional ? rpc::Need::kOptional : rpc::Need::kRequired);
  return callee;
}

inline std::shared_ptr<rpc::CallTiming> times_if(bool wanted) {
  return wanted ? std::make_shared<rpc::CallTiming>() : nullptr;
}

// Returns a function that converts a Payload to a PyPayload. The function may be called again for
// the same payload.
inline auto kept_payload() {
  return [kept = std::shared_ptr<Payload>()](Payload& payload) mutable -> nb::object {
    if (!kept) kept = std::make_shared<Payload>(std::move(payload));
    return nb::cast(PyPayload(kept));
  };
}

// Returns the future of a call. The future's value is decode(payload), or the payload if `decode`
// is None.
inline nb::object make_call_future(Future<Payload> future, nb::object agent, nb::handle decode,
                                   std::shared_ptr<rpc::CallTiming> timing) {
  return make_future(std::move(future), std::move(agent), kept_payload(),
                     decode.is_none() ? nb::object() : nb::borrow(decode), std::move(timing),
                     OnInterrupt::kCancel);
}

// Returns the future of a call's value; None for an empty future.
nb::object value_future(Future<Payload> future, nb::object agent);
// Waits for a call, and returns its value or raises its error; NotImplemented for an empty future.
// Ctrl-C cancels the call. Makes no Python object beside the value.
nb::object value_now(Future<Payload> future);

}  // namespace slime::python
