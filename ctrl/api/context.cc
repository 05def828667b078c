#include "ctrl/api/context.h"

#include <utility>

namespace slime::ctrl {

Context::Context(ApiOptions options, std::unique_ptr<Engine> engine, const Clock& clock)
    : options_(std::move(options)), clock_(clock), started_at_(clock.now()), engine_(std::move(engine)) {
  engine_->on_event([this](const ScopedEvent& event) {
    const EventKind kind = event.event.kind;
    metrics_.count_event(event_kind_name(kind));
    if (kind == EventKind::kDeregistered || kind == EventKind::kExpired)
      reports_.forget(event.scope, event.event.name);
    if (options_.on_event) options_.on_event(event);
  });
  engine_->on_reset([this] {
    reports_.clear();
    if (options_.on_reset) options_.on_reset();
  });
}

Outcome Context::submit(const Command& command) {
  const TimePoint begin = steady_clock().now();
  ++submitted_;
  Outcome out = engine_->submit(command);
  --submitted_;
  metrics_.observe_store(steady_clock().now() - begin);
  return out;
}

}  // namespace slime::ctrl
