#include "rpc/channel/completions.h"

namespace slime::rpc {

void Completions::run_first() {
  Done done = queue_.pop_front();
  Outcome& outcome = done.outcome;
  if (auto* const on_call = std::get_if<CallHandler>(&done.handler)) {
    if (outcome.status.ok()) {
      (*on_call)(std::move(outcome.payload));
    } else {
      (*on_call)(std::move(outcome.status));
    }
  } else if (auto* const on_delivery = std::get_if<DeliveryHandler>(&done.handler)) {
    if (outcome.status.ok()) {
      (*on_delivery)(Delivery(source_, outcome.tag, outcome.number, std::move(outcome.payload)));
    } else {
      (*on_delivery)(std::move(outcome.status));
    }
  } else if (auto* const on_region = std::get_if<RegionHandler>(&done.handler)) {
    if (outcome.status.ok()) {
      (*on_region)(std::move(*outcome.region));
    } else {
      (*on_region)(std::move(outcome.status));
    }
  } else if (auto* const task = std::get_if<Task>(&done.handler)) {
    (*task)();
  } else {
    std::get<DoneHandler>(done.handler)(std::move(outcome.status));
  }
}

}  // namespace slime::rpc
