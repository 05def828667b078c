#include "transport/soft/port.h"

#include <algorithm>

#include "base/str.h"
#include "transport/soft/endpoint.h"

namespace slime::transport::soft {
namespace {

class SoftPending final : public PendingEndpoint {
 public:
  SoftPending(std::shared_ptr<PortState> state, std::unique_ptr<PendingWire> wire,
              std::shared_ptr<CreditAccount> account)
      : state_(std::move(state)), wire_(std::move(wire)), account_(std::move(account)) {}
  ~SoftPending() override {
    if (account_ != nullptr) state_->pool->close(*account_);
  }

  [[nodiscard]] ByteVector parameters() const override {
    const PortOptions& options = state_->pool->options();
    ByteVector out =
        Parameters{.slot_bytes = options.slot_bytes, .initial_credits = options.base_credits}.encode();
    ByteWriter(out).append(wire_->parameters());
    return out;
  }

  Result<std::unique_ptr<Endpoint>> finish(Bytes peer_parameters, UniqueFd socket,
                                           Introduction who) override {
    if (account_ == nullptr) return Status(Code::kInvalidArgument, "this endpoint was made already");
    const std::size_t engine_bytes = std::min(peer_parameters.size(), Parameters::kBytes);
    Result<Parameters> peer = Parameters::decode(peer_parameters.first(engine_bytes));
    if (!peer) return std::move(peer).error();
    if (state_->loop() == nullptr) return Status(Code::kCancelled, "the port was closed");
    Result<std::unique_ptr<Wire>> wire =
        wire_->finish(peer_parameters.subspan(engine_bytes), std::move(socket), who);
    if (!wire) return std::move(wire).error();
    return std::unique_ptr<Endpoint>(
        std::make_unique<SoftEndpoint>(state_, std::move(account_), *peer, std::move(*wire), std::move(who)));
  }

 private:
  const std::shared_ptr<PortState> state_;
  const std::unique_ptr<PendingWire> wire_;
  std::shared_ptr<CreditAccount> account_;
};

}  // namespace

PortState::PortState(std::shared_ptr<Loop> loop, std::shared_ptr<DeviceState> owner,
                     const PortOptions& options)
    : device(std::move(owner)), pool(std::make_shared<SoftPool>(loop, options)), loop_(std::move(loop)) {}

std::shared_ptr<Loop> PortState::loop() const {
  const MutexLock lock(mutex_);
  return loop_;
}

void PortState::reset_users(std::shared_ptr<RegionRecord> record) {
  const std::shared_ptr<Loop> current = loop();
  if (current == nullptr) return;
  current->dispatch([self = shared_from_this(), record = std::move(record)] {
    for (SoftEndpoint* endpoint : self->endpoints_) endpoint->reset_if_using(*record);
  });
}

PortCounters PortState::counters() const {
  PortCounters out;
  out.endpoints = gone_;
  for (const SoftEndpoint* endpoint : endpoints_) out.endpoints += endpoint->counters();
  return out;
}

void PortState::remove(SoftEndpoint& endpoint) {
  gone_ += endpoint.counters();
  std::erase(endpoints_, &endpoint);
  std::replace(scheduled_.begin(), scheduled_.end(), &endpoint, static_cast<SoftEndpoint*>(nullptr));
  std::replace(running_.begin(), running_.end(), &endpoint, static_cast<SoftEndpoint*>(nullptr));
}

void PortState::schedule(SoftEndpoint& endpoint) {
  scheduled_.push_back(&endpoint);
  if (scheduled_.size() == 1 && loop_ != nullptr) loop_->defer_lazily(*this);
}

void PortState::run_deferred() noexcept {
  const std::shared_ptr<PortState> self = shared_from_this();  // a callback may drop the port
  running_.swap(scheduled_);
  // Iterates by index: a callback may destroy an endpoint, whose entry remove() then sets to null.
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (running_[i] != nullptr) running_[i]->run();
  }
  running_.clear();
}

void PortState::shut() {
  SLIME_CHECK(endpoints_.empty());  // the port outlives its endpoints
  pool->shut();
  if (loop_ != nullptr) loop_->drop_deferred(*this);
  const MutexLock lock(mutex_);
  loop_.reset();
}

Result<std::unique_ptr<PendingEndpoint>> SoftPort::prepare() {
  auto account = std::make_shared<CreditAccount>();
  if (!state_->pool->open(*account)) {
    const PortOptions& options = state_->pool->options();
    return Status(
        Code::kResourceExhausted,
        str("the receive pool of ", options.pool_slots, " slots has ", free_slots(),
            " free, another peer needs ", options.base_credits, "; raise pool_slots or close connections"));
  }
  Result<std::unique_ptr<PendingWire>> wire = factory_();
  if (!wire) {
    state_->pool->close(*account);
    return std::move(wire).error();
  }
  return std::unique_ptr<PendingEndpoint>(
      std::make_unique<SoftPending>(state_, std::move(*wire), std::move(account)));
}

}  // namespace slime::transport::soft
