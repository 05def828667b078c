#pragma once

// Private to rpc: metadata and times of calls.

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/function.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/codec/frame.h"
#include "rpc/metadata.h"

namespace slime::rpc {

// Holds the contexts of calls that wait for an answer. The times are in a call's context before the
// call's handler is called. Thread: the loop.
class CallContexts {
 public:
  explicit CallContexts(const Clock& clock) : clock_(clock) {}

  // Wraps the handler of a new call in a handler that first computes the times of the call's
  // context.
  template <class Ended>
  void watch(const std::shared_ptr<CallContext>& context, UniqueFunction<void(Ended)>& handler) {
    begin(*context);
    handler = [this, context, inner = std::move(handler)](Ended ended) mutable {
      end(*context);
      inner(std::move(ended));
    };
  }
  // Keeps the context of this call until the call ends.
  void keep(Handle call, const std::shared_ptr<CallContext>& context);
  // Returns whether the call has metadata entries that are required.
  [[nodiscard]] bool requires_metadata(Handle call) const;
  // Stores the times that a reply with kFlagTiming carries. kCorrupt if the call did not ask for
  // times.
  Status take_times(const wire::Frame& reply);

 private:
  void begin(CallContext& context) const;
  void end(CallContext& context);

  const Clock& clock_;
  std::unordered_map<std::uint64_t, std::shared_ptr<CallContext>> contexts_;  // by ticket
};

}  // namespace slime::rpc
