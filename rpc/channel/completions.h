#pragma once

// Private to rpc: the queue of handlers to call, with the outcomes that they get.

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "base/function.h"
#include "rpc/channel.h"
#include "rpc/delivery.h"
#include "transport/memory.h"
#include "transport/queue.h"

namespace slime::rpc {

// Queues the handlers of ended requests. The channel calls them when none of its functions is on
// the stack. Thread: the loop.
class Completions {
 public:
  using Handler = std::variant<CallHandler, DoneHandler, RegionHandler, DeliveryHandler, Task>;

  // How a request ended. Each kind of handler uses only some of the members.
  struct Outcome {
    Status status;
    Payload payload;
    std::unique_ptr<transport::RemoteRegion> region;
    std::uint64_t tag = 0;  // tag and number of a received message
    std::uint64_t number = 0;
  };

  // `source` gets back the messages that receives do not take.
  explicit Completions(std::shared_ptr<DeliverySource> source) : source_(std::move(source)) {}

  void add(Handler&& handler) { add(std::move(handler), Outcome()); }
  void add(Handler&& handler, Outcome&& outcome) {
    queue_.push_back({std::move(handler), std::move(outcome)});
  }
  void add_all(std::vector<Task>&& tasks) {
    for (Task& task : tasks) add(Handler(std::move(task)));
  }
  [[nodiscard]] bool empty() const { return queue_.empty(); }
  // Calls the first handler of the queue. The handler may add more handlers.
  void run_first();

 private:
  struct Done {
    Handler handler;
    Outcome outcome;
  };

  const std::shared_ptr<DeliverySource> source_;
  transport::Queue<Done> queue_;
};

}  // namespace slime::rpc
