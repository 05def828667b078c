#include "kv/arrivals.h"

#include <algorithm>

#include "base/str.h"
#include "kv/cache.h"
#include "kv/outcome.h"

namespace slime::kv {
namespace {

Status closed_cache() { return Status(Code::kUnavailable, "the KV cache is closed"); }

}  // namespace

Status Arrivals::check_layer(std::uint32_t layer) const {
  if (layer >= geometry_.first_layer && layer - geometry_.first_layer < geometry_.layers) return {};
  return Status(Code::kInvalidArgument, str("there is no layer ", layer, " in: ", geometry_.to_string()));
}

Result<Arrivals::Layer*> Arrivals::layer_of(std::uint64_t request, std::uint32_t layer) {
  if (closed_) return closed_cache();
  auto found = requests_.find(request);
  if (found == requests_.end()) {
    if (requests_.size() >= limits::kRequests)
      return Status(Code::kResourceExhausted, str("the KV cache remembers ", requests_.size(),
                                                  " requests: forget() those that are done"));
    found = requests_.try_emplace(request, geometry_.layers).first;
  }
  return &found->second[layer - geometry_.first_layer];
}

Status Arrivals::arrived(std::uint64_t request, std::uint32_t layer, Heads heads) {
  SLIME_TRY(check_layer(layer));
  if (heads.count == 0 || heads.first < heads_.first || heads.first - heads_.first > heads_.count ||
      heads.count > heads_.count - (heads.first - heads_.first))
    return Status(Code::kInvalidArgument, str(heads.count, " heads from ", heads.first,
                                              " on are not all in: ", geometry_.to_string()));
  std::shared_ptr<Promise<None>> waited;
  {
    const MutexLock lock(mutex_);
    const auto found = layer_of(request, layer);
    if (!found) return found.status();
    Layer& entry = **found;
    if (entry.complete) return {};
    entry.heads.resize(heads_.count);
    const auto first = entry.heads.begin() + (heads.first - heads_.first);
    std::fill(first, first + heads.count, true);
    if (std::find(entry.heads.begin(), entry.heads.end(), false) != entry.heads.end()) return {};
    entry.complete = true;
    entry.heads = {};
    waited = std::move(entry.waited);
  }
  if (waited) waited->complete(outcome_of({}));
  const MutexLock lock(calling_);
  if (handler_) handler_(layer, request);
  return {};
}

Status Arrivals::wait(std::uint64_t request, std::uint32_t layer, Nanos timeout) {
  SLIME_TRY(check_layer(layer));
  Future<None> done;
  {
    const MutexLock lock(mutex_);
    const auto found = layer_of(request, layer);
    if (!found) return found.status();
    Layer& entry = **found;
    if (entry.complete) return {};
    if (!entry.waited) {
      entry.waited = std::make_shared<Promise<None>>(driver_);
      entry.done = entry.waited->future();
    }
    done = entry.done;
  }
  // Several threads may wait for one layer, so the outcome is not taken.
  if (!done.wait_done(timeout))
    return Status(Code::kDeadlineExceeded, str("layer ", layer, " of request ", request, " has not arrived"));
  const MutexLock lock(mutex_);
  if (closed_) return closed_cache();
  const auto found = requests_.find(request);
  if (found != requests_.end() && found->second[layer - geometry_.first_layer].complete) return {};
  return Status(Code::kCancelled, str("request ", request, " was forgotten"));
}

void Arrivals::on_layer(Handler handler) {
  const MutexLock lock(calling_);
  handler_.swap(handler);
}

void Arrivals::forget(std::uint64_t request) {
  Request gone;
  {
    const MutexLock lock(mutex_);
    const auto found = requests_.find(request);
    if (found == requests_.end()) return;
    gone = std::move(found->second);
    requests_.erase(found);
  }
  for (const Layer& layer : gone)
    if (layer.waited) layer.waited->complete(outcome_of({}));  // wait() finds that the request is gone
}

void Arrivals::close() {
  std::unordered_map<std::uint64_t, Request> gone;
  {
    const MutexLock lock(mutex_);
    closed_ = true;
    gone.swap(requests_);
  }
  on_layer(nullptr);
  for (const auto& [request, layers] : gone)
    for (const Layer& layer : layers)
      if (layer.waited) layer.waited->complete(outcome_of({}));  // wait() finds that the cache is closed
}

Status Arrivals::check_open() {
  const MutexLock lock(mutex_);
  return closed_ ? closed_cache() : Status();
}

}  // namespace slime::kv
