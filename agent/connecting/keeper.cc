#include "agent/connecting/keeper.h"

#include <set>
#include <utility>

#include "agent/limits.h"
#include "base/log.h"

namespace slime::agent {

// An operation that only waits until the peer is connected, through failed attempts and their
// backoff. May outlive its Keeper.
class Keeper::Attempt final : public PeerOperation {
 public:
  Attempt(Keeper& keeper, std::string peer) : keeper_(&keeper), peer_(std::move(peer)) {
    wait_for_ready = true;
  }
  void forget() { keeper_ = nullptr; }
  void start(Session&) override {
    if (Keeper* const keeper = std::exchange(keeper_, nullptr)) keeper->connected(peer_);
  }
  void fail(Status reason) override {
    if (Keeper* const keeper = std::exchange(keeper_, nullptr)) keeper->failed(peer_, reason);
  }
  [[nodiscard]] std::string describe() const override { return "keep connected"; }

 private:
  void retire() noexcept override { delete this; }

  Keeper* keeper_;
  const std::string peer_;
};

void Keeper::want(std::vector<std::string> peers) {
  const std::set<std::string> now(peers.begin(), peers.end());
  for (auto it = wanted_.begin(); it != wanted_.end();) {
    if (now.contains(it->first)) {
      ++it;
      continue;
    }
    loop_.cancel_timer(it->second.retry);
    const OperationPtr<PeerOperation> attempt = std::move(it->second.attempt);
    it = wanted_.erase(it);
    if (attempt) {
      static_cast<Attempt&>(*attempt).forget();
      attempt->cancel();
    }
  }
  for (const std::string& peer : now) {
    if (wanted_.try_emplace(peer).second && started_) connect(peer);
  }
}

void Keeper::start() {
  started_ = true;
  std::vector<std::string> peers;
  for (const auto& [peer, wanted] : wanted_) peers.push_back(peer);
  for (const std::string& peer : peers) connect(peer);
}

void Keeper::lost(const std::string& peer) {
  const auto it = wanted_.find(peer);
  if (it != wanted_.end() && !it->second.attempt && started_) connect(peer);
}

void Keeper::close() {
  started_ = false;
  want({});
}

void Keeper::connect(const std::string& peer) {
  const auto it = wanted_.find(peer);
  if (it == wanted_.end() || it->second.attempt) return;
  loop_.cancel_timer(it->second.retry);
  OperationPtr<Attempt> attempt(new Attempt(*this, peer));
  it->second.attempt = attempt;
  submit_(peer, std::move(attempt));
}

void Keeper::connected(const std::string& peer) {
  const auto it = wanted_.find(peer);
  if (it != wanted_.end()) it->second.attempt = nullptr;
}

// Connects again after limits::kKeepRetry. Called only for failures that waiting for readiness does
// not mend: a wrong token, or too many waiting operations.
void Keeper::failed(const std::string& peer, const Status& reason) {
  const auto it = wanted_.find(peer);
  if (it == wanted_.end()) return;
  it->second.attempt = nullptr;
  if (!started_) return;
  SLIME_LOG(LogLevel::kWarning, "agent", "the wanted link to ", peer, ": ", reason.to_string());
  it->second.retry = loop_.add_timer(deadline_after(loop_.now(), limits::kKeepRetry), [this, peer] {
    if (const auto again = wanted_.find(peer); again != wanted_.end()) again->second.retry = {};
    connect(peer);
  });
}

}  // namespace slime::agent
