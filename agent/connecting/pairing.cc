#include "agent/connecting/pairing.h"

#include <algorithm>
#include <utility>

#include "agent/limits.h"

namespace slime::agent {

Pairing::Id Pairing::probe_if_needed() {
  if (held_.empty() || !ready_ || probing_) return 0;
  probing_ = true;
  return current_;
}

Pairing::Arrival Pairing::arrived(Id id, bool ours) {
  Arrival out;
  if (!arbiter_) {
    // A ready connection is the one on which the arbiter has its channel. So a connection that this
    // side opened is a second one to the same peer: drops it.
    if (ours && current_ != 0) {
      out.verdict = Verdict::kDrop;
      return out;
    }
    opening_.push_back(id);
    return out;
  }
  if (current_ == 0) {
    current_ = id;
    return out;
  }
  if (ours) {
    out.verdict = Verdict::kDrop;
    return out;
  }
  out.verdict = Verdict::kHold;
  held_.push_back(id);
  if (held_.size() > limits::kHeldConnections) {
    out.changes.drop.push_back(held_.front());
    held_.erase(held_.begin());
  }
  out.changes.probe = probe_if_needed();
  return out;
}

Pairing::Changes Pairing::ready(Id id) {
  Changes out;
  if (arbiter_) {
    if (id != current_) return out;
    ready_ = true;
    out.probe = probe_if_needed();
    return out;
  }
  if (std::erase(opening_, id) == 0) return out;
  out.retire = std::exchange(current_, id);
  ready_ = true;
  return out;
}

Pairing::Changes Pairing::probed_alive(Id id) {
  Changes out;
  if (id != current_ || !probing_) return out;
  probing_ = false;
  out.drop = std::exchange(held_, {});
  return out;
}

Pairing::Changes Pairing::closed(Id id) {
  Changes out;
  std::erase(opening_, id);
  std::erase(held_, id);
  if (id != current_) return out;
  current_ = 0;
  ready_ = false;
  probing_ = false;
  if (held_.empty()) return out;
  current_ = out.open = held_.back();
  held_.pop_back();
  out.drop = std::exchange(held_, {});
  return out;
}

}  // namespace slime::agent
