// The port that users hold. It lives on when its device fails for good and is opened again.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"
#include "base/reaper.h"
#include "transport/verbs/port.h"

namespace slime::transport::verbs {
namespace {

// Destroys the port's state on another thread, because an adapter needs time to give back its
// objects.
void end_off_loop(std::shared_ptr<PortState> state) {
  Task end = [state = std::move(state)]() mutable { state.reset(); };
  if (!try_reap(end)) end();
}

// Holds the state of a port, and makes a new state after the device was lost. Thread: the loop.
class Lasting final : public std::enable_shared_from_this<Lasting> {
 public:
  Lasting(std::shared_ptr<DeviceState> device, std::shared_ptr<Loop> loop, const PortOptions& options)
      : device_(std::move(device)), options_(options), loop_(std::move(loop)) {}

  Status take(std::shared_ptr<PortState> state) {
    SLIME_TRY(state->attach([weak = weak_from_this()] {
      if (const std::shared_ptr<Lasting> self = weak.lock()) self->on_lost();
    }));
    state_ = std::move(state);
    return {};
  }

  void close() {
    loop_->cancel_timer(timer_);
    std::optional<Made> made;
    std::shared_ptr<Loop> loop;  // may be the last reference to the loop: dropped after the lock
    {
      const MutexLock lock(mutex_);
      made = std::exchange(made_, std::nullopt);
      loop = std::exchange(loop_, nullptr);
    }
    if (made && *made) end_off_loop(std::move(**made));
    if (state_ == nullptr) return;
    state_->shut();
    end_off_loop(std::move(state_));
  }

  [[nodiscard]] const std::shared_ptr<PortState>& state() const { return state_; }
  [[nodiscard]] const DeviceState& device() const { return *device_; }
  [[nodiscard]] PortCounters counters() const {
    PortCounters out = gone_;
    if (state_ != nullptr) out += state_->counters();
    return out;
  }

 private:
  using Made = Result<std::shared_ptr<PortState>>;

  void on_lost() {
    if (loop_ == nullptr || timer_ || trying_) return;
    pause_ = limits::kReopenFirst;
    arm();
  }

  void arm() {
    timer_ = loop_->add_timer(deadline_after(loop_->now(), pause_), [this] {
      timer_ = TimerId{};
      attempt();
    });
  }

  // Destroys the lost state and opens the device on another thread. While the lost state has
  // endpoints, tries again later.
  void attempt() {
    if (state_ != nullptr) {
      if (!state_->idle()) return arm();
      gone_ += state_->counters();
      state_->shut();
      end_off_loop(std::exchange(state_, nullptr));
    }
    trying_ = true;
    Task work = [self = shared_from_this(), loop = loop_] { self->reopen(loop); };
    if (!try_reap(work)) work();
  }

  // Opens the device again and makes a new state for the port. Thread: not the loop.
  void reopen(const std::shared_ptr<Loop>& loop) {
    const Status opened = device_->reopen();
    Made made = opened.ok() ? PortState::make(device_, loop, options_) : Made(opened);
    const MutexLock lock(mutex_);
    if (loop_ == nullptr) return;  // closed meanwhile
    made_ = std::move(made);
    loop->post([weak = weak_from_this()] {
      if (const std::shared_ptr<Lasting> self = weak.lock()) self->on_tried();
    });
  }

  void on_tried() {
    std::optional<Made> made;
    {
      const MutexLock lock(mutex_);
      made = std::exchange(made_, std::nullopt);
    }
    if (!made) return;  // closed
    trying_ = false;
    const Status status = *made ? take(std::move(**made)) : made->error();
    if (status.ok()) return device_->found();
    pause_ = std::min(2 * pause_, limits::kReopenLongest);
    SLIME_LOG(LogLevel::kInfo, "verbs", "a lost device cannot be opened yet: ", status.text());
    arm();
  }

  const std::shared_ptr<DeviceState> device_;
  const PortOptions options_;
  // held by the loop when it changes loop_, and by other threads when they read loop_
  Mutex mutex_;
  std::shared_ptr<Loop> loop_;                         // null once closed
  std::optional<Made> made_ SLIME_GUARDED_BY(mutex_);  // set by reopen() on the other thread
  std::shared_ptr<PortState> state_;                   // null while the device is being opened
  PortCounters gone_;                                  // of earlier states
  TimerId timer_;
  Nanos pause_ = limits::kReopenFirst;
  bool trying_ = false;
};

class VerbsPort final : public Port {
 public:
  explicit VerbsPort(std::shared_ptr<Lasting> lasting) : lasting_(std::move(lasting)) {}
  ~VerbsPort() override { lasting_->close(); }

  Result<std::unique_ptr<PendingEndpoint>> prepare() override {
    SLIME_TRY(lasting_->device().usable());
    const std::shared_ptr<PortState>& state = lasting_->state();
    if (state == nullptr) return Status(Code::kUnavailable, "the device is being opened again");
    return state->prepare(state);
  }
  [[nodiscard]] std::size_t endpoints() const override {
    return lasting_->state() == nullptr ? 0 : lasting_->state()->endpoints();
  }
  [[nodiscard]] std::uint32_t free_slots() const override {
    return lasting_->state() == nullptr ? 0 : lasting_->state()->pool().unreserved();
  }
  [[nodiscard]] PortCounters counters() const override { return lasting_->counters(); }

 private:
  const std::shared_ptr<Lasting> lasting_;
};

}  // namespace

Result<std::unique_ptr<Port>> open_verbs_port(std::shared_ptr<DeviceState> device, Loop& loop,
                                              PortOptions options) {
  auto lasting = std::make_shared<Lasting>(device, loop.shared_from_this(), options);
  auto state = PortState::make(std::move(device), loop.shared_from_this(), options);
  if (!state) return std::move(state).error();
  Status taken = loop.run([&] { return lasting->take(std::move(*state)); });
  if (!taken.ok()) return taken;
  return std::unique_ptr<Port>(std::make_unique<VerbsPort>(std::move(lasting)));
}

}  // namespace slime::transport::verbs
