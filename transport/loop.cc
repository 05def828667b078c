#include "transport/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"

namespace slime::transport {
namespace {

constexpr std::uint64_t kWakeToken = ~std::uint64_t{0};

std::uint64_t watch_token(int fd, std::uint32_t generation) {
  return (std::uint64_t{generation} << 32) | static_cast<std::uint32_t>(fd);
}

}  // namespace

Result<std::shared_ptr<Loop>> Loop::create(LoopOptions options) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return from_errno("epoll_create1", errno);
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return from_errno("eventfd", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeToken;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return from_errno("epoll_ctl", errno);
  UniqueFd bed(epoll_create1(EPOLL_CLOEXEC));
  if (!bed.valid()) return from_errno("epoll_create1", errno);
  if (epoll_ctl(bed.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return from_errno("epoll_ctl", errno);
  event.events = 0;
  if (epoll_ctl(bed.get(), EPOLL_CTL_ADD, epoll.get(), &event) != 0) return from_errno("epoll_ctl", errno);
  return std::shared_ptr<Loop>(new Loop(options, std::move(epoll), std::move(wake), std::move(bed)));
}

Loop::Loop(LoopOptions options, UniqueFd epoll, UniqueFd wake, UniqueFd bed)
    : options_(options),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      bed_(std::move(bed)),
      manual_clock_(dynamic_cast<const ManualClock*>(options.clock) != nullptr),
      steady_(options.clock == &steady_clock()),
      help_spin_(options.spin),
      spin_(options.spin) {}

Loop::~Loop() {
  stop();
  while (run_posted() || run_deferred()) {
  }
}

// --------------------------------------------------------------------------------------------------- driving

bool Loop::nobody_else_drives() const {
  const std::thread::id driver = driver_.load(std::memory_order_acquire);
  return driver == std::this_thread::get_id() || (driver == std::thread::id{} && !has_thread());
}

bool Loop::try_drive() {
  std::thread::id nobody{};
  if (!driver_.compare_exchange_strong(nobody, std::this_thread::get_id(), std::memory_order_acq_rel))
    return false;
  outer_ = std::exchange(driven_, this);
  now_.reset();
  return true;
}

void Loop::release_drive() {
  driven_ = std::exchange(outer_, nullptr);
  driver_.store(std::thread::id{}, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(mutex_);
  drive_free_.notify_all();
}

TimePoint Loop::now() const {
  if (manual_clock_ || !drives()) return options_.clock->now();
  if (!now_) now_ = options_.clock->now();
  return *now_;
}

// The time that passes by itself, whatever the loop's clock says. For the driver.
TimePoint Loop::steady_now() const { return steady_ ? now() : steady_clock().now(); }

void Loop::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
    has_posted_.store(true, std::memory_order_seq_cst);
  }
  if (!blocked_.load(std::memory_order_seq_cst)) return;
  // Whoever drives instead of the thread looks here before it leaves.
  if (has_thread() && driver_.load(std::memory_order_seq_cst) != std::thread::id{}) return;
  wake();
}

void Loop::dispatch(Task task) {
  if (driver_.load(std::memory_order_acquire) == std::this_thread::get_id()) {
    task();
    return;
  }
  if (!has_thread() && try_drive()) {
    run_posted();  // keeps the order with what this thread posted before
    task();
    release_drive();
    return;
  }
  post(std::move(task));
}

bool Loop::poll(Nanos budget) {
  const bool nested = driver_.load(std::memory_order_acquire) == std::this_thread::get_id();
  SLIME_CHECK(!nested);  // poll() inside a callback would run callbacks inside callbacks
  if (!try_drive()) return false;
  bool ran = false;
  if (budget <= Nanos::zero()) {
    ran = turn(TimePoint{});
  } else {
    const TimePoint until = deadline_after(steady_now(), budget);
    do {
      ran = turn(until);
    } while (!ran && !manual_clock_ && steady_now() < until);
  }
  release_drive();
  return ran;
}

void Loop::wait_until(UniqueFunction<bool()> done, TimePoint deadline) {
  SLIME_CHECK(driver_.load(std::memory_order_acquire) != std::this_thread::get_id());
  for (;;) {
    if (done()) return;
    const bool threaded = has_thread();
    const bool drives = !threaded && try_drive();
    if (drives && look()) {
      release_drive();
      continue;
    }
    const TimePoint now = drives ? steady_now() : steady_clock().now();
    if (now < deadline) {
      // Short turns: others that wait get their chance to see that they are done.
      const TimePoint until = std::min(deadline, now + limits::kLoopWaitTurn);
      if (drives)
        turn(until);
      else
        wait_for_drive(until, threaded);
    }
    if (drives) release_drive();
    if (now >= deadline) return;
  }
}

// What is there already needs no clock, no timer and no descriptor; for a few times in a row, so that these
// have their turns.
bool Loop::look() {
  if (manual_clock_ || pollers_.empty() || !deferred_.empty() || ++looks_ % limits::kLoopLooks == 0)
    return false;
  const bool ran = run_pollers();
  if (!ran) return false;
  now_.reset();
  progressed_ = true;
  return true;
}

// Until the driver leaves. Bounded, because somebody else may drive by then. With a thread it is the time
// alone: nobody says when what one waits for has happened.
void Loop::wait_for_drive(TimePoint until, bool threaded) {
  std::unique_lock lock(mutex_);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  if (threaded || driver_.load(std::memory_order_seq_cst) != std::thread::id{})
    drive_free_.wait_until(lock, until);
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

void Loop::start_thread() {
  if (has_thread_.exchange(true, std::memory_order_acq_rel)) return;
  stopping_.store(false, std::memory_order_release);
  thread_ = std::thread([this] { thread_main(); });
}

void Loop::thread_main() {
  // A caller may still be inside its last turn.
  while (!try_drive()) wait_for_drive(steady_clock().now() + limits::kLoopWaitTurn, false);
  by_thread_ = true;
  while (!stopping_.load(std::memory_order_acquire)) turn(kNever);
  while (run_posted() || run_deferred()) {
  }
  by_thread_ = false;
  release_drive();
}

void Loop::stop() {
  if (!has_thread()) return;
  SLIME_CHECK(thread_.get_id() != std::this_thread::get_id());
  stopping_.store(true, std::memory_order_seq_cst);
  wake();
  if (thread_.joinable()) thread_.join();
  has_thread_.store(false, std::memory_order_release);
}

void Loop::wake() {
  const std::uint64_t one = 1;
  // Full (EAGAIN) means that a wake-up is pending, which is all we want.
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof one);
}

// ---------------------------------------------------------------------------------------------------- a turn

// Runs what is due. With nothing to do it waits until `block_until` (a steady time; zero: not at all).
bool Loop::turn(TimePoint block_until) {
  bool ran = run_posted();
  ran = run_deferred() || ran;
  if (ran) now_.reset();
  if (run_timers()) {
    now_.reset();
    ran = true;
  }
  ran = run_pollers() || ran;
  if (!pollers_.empty()) {
    // A poller costs far less than a look at the descriptors, which is a system call.
    const bool may_wait = !manual_clock_ && block_until != TimePoint{};
    for (int i = 0; may_wait && !ran && i < limits::kLoopPolls &&
                    !has_posted_.load(std::memory_order_acquire) && !lends();
         ++i)
      ran = run_pollers();
    if (ran) {
      const TimePoint now = manual_clock_ ? TimePoint{} : steady_now();
      if (++turns_without_fds_ < limits::kLoopTurnsWithoutFds && now - fds_seen_ < fds_every(now)) {
        now_.reset();
        progressed_ = true;
        return true;
      }
      fds_seen_ = now;
    } else if (may_wait) {
      // Nor does it pay to look at them at each of these while nothing comes.
      now_.reset();
      const TimePoint now = steady_now();
      note_progress(now);
      if (now - last_progress_ >= limits::kLoopYieldAfter) {
        std::this_thread::yield();
        now_.reset();  // others may have run for long
      }
      if (now - last_progress_ < spin_ && now - fds_seen_ < fds_every(now) && !lends()) return false;
    }
    turns_without_fds_ = 0;
  }
  if (ran) now_.reset();
  ran = wait_fds(ran ? TimePoint{} : block_until) || ran;
  now_.reset();
  progressed_ = progressed_ || ran;
  return ran;
}

// Descriptors that had something a moment ago may be what is waited for.
Nanos Loop::fds_every(TimePoint now) const {
  return now - fds_had_ < limits::kLoopFdsRecent ? limits::kLoopFdsOften : limits::kLoopFdsEvery;
}

// Work that comes within the longest spin after the work before it is worth spinning for.
void Loop::note_progress(TimePoint now) {
  if (!std::exchange(progressed_, false)) return;
  const Nanos gap = now - std::exchange(last_progress_, now);
  spin_ = gap <= options_.max_spin ? std::clamp(2 * gap, options_.spin, options_.max_spin) : options_.spin;
}

bool Loop::run_posted() {
  if (!has_posted_.load(std::memory_order_acquire)) return false;
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
    has_posted_.store(false, std::memory_order_relaxed);
  }
  for (Task& task : tasks) {
    task();
    task = Task();  // what it captured goes before the next one runs
  }
  return !tasks.empty();
}

bool Loop::run_deferred() {
  urgent_ = false;
  if (deferred_.empty()) return false;
  running_.swap(deferred_);
  for (std::size_t i = 0; i < running_.size(); ++i) {
    if (Deferred* const next = std::exchange(running_[i], nullptr)) next->run_deferred();
  }
  running_.clear();
  return true;
}

bool Loop::run_timers() {
  if (timers_.empty()) return false;
  const TimePoint now = this->now();
  if (timers_.begin()->first.first > now) return false;
  bool ran = false;
  // In order, but only those that were there at the start: a timer that re-arms itself in the past must not
  // starve the rest. A task may add and cancel timers, so the place is kept as a key.
  const std::uint64_t newest = timer_sequence_;
  std::pair<TimePoint, std::uint64_t> last{TimePoint::min(), 0};
  for (;;) {
    auto next = timers_.upper_bound(last);
    while (next != timers_.end() && next->first.second > newest) ++next;
    if (next == timers_.end() || next->first.first > now) return ran;
    last = next->first;
    Task task = std::move(next->second);
    timers_.erase(next);
    task();
    ran = true;
  }
}

bool Loop::run_pollers() {
  bool ran = false;
  for (std::size_t i = 0; i < pollers_.size(); ++i) {
    if (pollers_[i] != nullptr) ran = pollers_[i]->poll_once() || ran;
  }
  if (std::exchange(pollers_removed_, false)) std::erase(pollers_, nullptr);
  return ran;
}

bool Loop::arm_pollers() {
  return std::all_of(pollers_.begin(), pollers_.end(),
                     [](Poller* poller) { return poller == nullptr || poller->arm(); });
}

bool Loop::wait_fds(TimePoint block_until) {
  int timeout_ms = 0;
  bool may_block = false;
  TimePoint until{};
  if (!manual_clock_ && block_until != TimePoint{}) {
    const TimePoint now = steady_now();
    fds_seen_ = now;
    note_progress(now);
    until = std::min(block_until, next_timer());
    if (by_thread_) until = std::min(until, now + limits::kLoopLongestSleep);
    const bool rests = (now - last_progress_ >= spin_ || lends()) && !helping_;
    if (rests && until > now && deferred_.empty() && arm_pollers() && deferred_.empty()) {
      may_block = true;
      const auto wait =
          std::chrono::ceil<std::chrono::milliseconds>(until == kNever ? Nanos::max() : until - now);
      timeout_ms = until == kNever ? -1 : static_cast<int>(std::min<std::int64_t>(wait.count(), 60'000));
    }
  }
  const bool lent = may_block && by_thread_;
  if (may_block) {
    blocked_.store(true, std::memory_order_seq_cst);
    if (lent) lend(until);
    if (has_posted_.load(std::memory_order_seq_cst) || stopping_.load(std::memory_order_seq_cst))
      timeout_ms = 0;
  }
  std::array<epoll_event, limits::kLoopEventsPerTurn> events;
  if (lent) {
    sleep_lent(timeout_ms);
    timeout_ms = 0;
  }
  const int n = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  if (may_block) {
    blocked_.store(false, std::memory_order_seq_cst);
    now_.reset();
  }
  if (n > 0) {
    fds_told_ = true;
    fds_had_ = steady_now();
    hears_fds_.store(false, std::memory_order_relaxed);  // the first of these was what it would hear
  }
  bool ran = false;
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWakeToken) {
      std::uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
      continue;
    }
    const auto it = watches_.find(static_cast<int>(event.data.u64 & 0xffffffffU));
    // An earlier handler of this turn may have closed the descriptor, and the number may be in use again.
    if (it == watches_.end() || it->second.generation != static_cast<std::uint32_t>(event.data.u64 >> 32))
      continue;
    it->second.handler->on_fd_events(event.events);
    ran = true;
  }
  return ran;
}

// --------------------------------------------------------------------------------------- timers, descriptors

TimerId Loop::add_timer(TimePoint when, Task task) {
  SLIME_CHECK(in_loop());
  const TimerId id{when, ++timer_sequence_};
  timers_.emplace(std::pair(when, id.sequence), std::move(task));
  return id;
}

void Loop::cancel_timer(TimerId& id) {
  SLIME_CHECK(in_loop());
  if (id) timers_.erase(std::pair(id.when, id.sequence));
  id = TimerId{};
}

TimePoint Loop::next_timer() const { return timers_.empty() ? kNever : timers_.begin()->first.first; }

Status Loop::watch(int fd, std::uint32_t events, FdHandler& handler) {
  SLIME_CHECK(in_loop());
  const Watch watch{&handler, ++watch_generation_};
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch_token(fd, watch.generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return from_errno("epoll_ctl add", errno);
  watches_[fd] = watch;
  return {};
}

Status Loop::change_watch(int fd, std::uint32_t events) {
  SLIME_CHECK(in_loop());
  const auto it = watches_.find(fd);
  SLIME_CHECK(it != watches_.end());
  epoll_event event{};
  event.events = events;
  event.data.u64 = watch_token(fd, it->second.generation);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) return from_errno("epoll_ctl mod", errno);
  return {};
}

void Loop::unwatch(int fd) {
  SLIME_CHECK(in_loop());
  if (watches_.erase(fd) == 0) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void Loop::defer(Deferred& deferred) {
  defer_lazily(deferred);
  urgent_ = true;
}

void Loop::defer_lazily(Deferred& deferred) {
  SLIME_CHECK(in_loop());
  deferred_.push_back(&deferred);
}

void Loop::drop_deferred(Deferred& deferred) {
  SLIME_CHECK(in_loop());
  for (auto* list : {&deferred_, &running_})
    std::replace(list->begin(), list->end(), &deferred, static_cast<Deferred*>(nullptr));
}

void Loop::add_poller(Poller& poller) {
  SLIME_CHECK(in_loop());
  pollers_.push_back(&poller);
}

void Loop::remove_poller(Poller& poller) {
  SLIME_CHECK(in_loop());
  // Not erased here: run_pollers() may be walking the list.
  std::replace(pollers_.begin(), pollers_.end(), &poller, static_cast<Poller*>(nullptr));
  pollers_removed_ = true;
}

}  // namespace slime::transport
