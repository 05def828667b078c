#pragma once

// Private to rpc/server/: the implementation of rpc/server.h.

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/str.h"
#include "rpc/interceptor.h"
#include "rpc/reflection.h"
#include "rpc/server.h"
#include "rpc/server/budget.h"
#include "rpc/server/job_queue.h"

namespace slime::rpc {

// The implementation of Server. Lives as long as any request, because an answer after stop() still
// updates the counters. mutex_ guards all members that are not atomic. Handlers, answers and
// destructors of user code run without the lock.
class Server::Impl final : public Request::Tracker,
                           public Directory,
                           public BudgetListener,
                           public std::enable_shared_from_this<Server::Impl> {
 public:
  using Methods = std::map<std::string, std::shared_ptr<Service::Method>, std::less<>>;
  // Tracks a request of a method that has a limit: counts the request as ended when it is answered.
  class Slot final : public Request::Tracker {
   public:
    Slot(std::shared_ptr<Impl> impl, std::shared_ptr<Service::Method> method)
        : impl_(std::move(impl)), method_(std::move(method)) {}
    void answered() noexcept override {
      impl_->leave(*method_);
      impl_->answered();
    }

   private:
    const std::shared_ptr<Impl> impl_;
    const std::shared_ptr<Service::Method> method_;
  };

  Impl(ServerOptions options, const Clock& clock) : options_(options), clock_(clock) {
    SLIME_CHECK(options_.workers > 0);
    // The handlers of both services refer to *this, which lives as long as any handler runs.
    const Service reflection = reflection_service(*this);
    const Service health = health_service(*this);
    for (const auto& [name, method] : health.methods()) method->while_draining = true;
    services_.emplace(reflection.name(), reflection.methods());
    services_.emplace(health.name(), health.methods());
  }

  Status add(const std::string& name, const Methods& methods) {
    const MutexLock lock(mutex_);
    if (!services_.emplace(name, methods).second)
      return Status(Code::kAlreadyExists, str("a service '", name, "' is served already"));
    ++version_;
    return {};
  }
  Status remove(std::string_view name) {
    Methods gone;
    const MutexLock lock(mutex_);
    const auto it = services_.find(name);
    if (it == services_.end()) return no_service(name);
    gone = std::move(it->second);
    services_.erase(it);
    ++version_;
    return {};
  }
  bool serves(std::string_view service, std::string_view method) const {
    const MutexLock lock(mutex_);
    return look_up(service, method) != nullptr;
  }
  Status check_signature(std::string_view service, std::string_view method, std::uint64_t signature) const;
  std::vector<ServiceInfo> services() const override;
  Result<ServiceInfo> service(std::string_view name) const override;
  bool serves(std::string_view service) const override {
    const MutexLock lock(mutex_);
    return services_.find(service) != services_.end();
  }
  bool draining() const override { return (unusual_.load() & kDraining) != 0; }
  void add_interceptor(std::shared_ptr<ServerInterceptor> interceptor);
  Result<std::shared_ptr<Service::Method>> admit(Request& request, Found& found, bool has_place);
  void run(Request&& request, Service::Method& method) noexcept;
  void run_limited(Request&& request, const std::shared_ptr<Service::Method>& method) noexcept;
  void enqueue(Request&& request, std::shared_ptr<Service::Method> method) noexcept;
  Status prepare_to_wait(const Service::Method& method) SLIME_REQUIRES(mutex_);
  Status drain(Nanos bound);
  void stop();
  [[nodiscard]] bool on_worker() const { return worker_of_ == this; }
  ServerCounters counters() const;
  void answered() noexcept override {
    unanswered_.fetch_sub(1);
    tell_if_quiet();
  }
  // server_places.cc
  std::shared_ptr<Place> reserve(const CallInfo& info, Found& found, std::shared_ptr<Account> account,
                                 std::uint64_t bytes, Task granted);
  void on_budget_freed() noexcept override;
  static std::shared_ptr<Place> place_of(const Request& request);
  void arrived(Place& place);
  bool make_ready(Request& request, const std::shared_ptr<Service::Method>& method);

 private:
  friend class Place;
  Result<std::shared_ptr<Service::Method>> find(const CallInfo& info, Found& found) const;
  // Returns the method, or null if no such method is served.
  [[nodiscard]] const Service::Method* look_up(std::string_view service, std::string_view method) const
      SLIME_REQUIRES(mutex_) {
    const auto it = services_.find(service);
    if (it == services_.end()) return nullptr;
    const auto found = it->second.find(method);
    return found == it->second.end() ? nullptr : found->second.get();
  }
  static void track(Request& request, std::shared_ptr<Request::Tracker> tracker) {
    request.tracker_ = std::move(tracker);
  }
  static Status no_service(std::string_view name) {
    return Status(Code::kNotFound, str("no service '", name, "'"));
  }
  [[nodiscard]] bool quiet() const { return unanswered_.load() == 0 && executing_.load() == 0; }
  void tell_if_quiet() noexcept {
    if (!draining() || !quiet()) return;
    const MutexLock lock(mutex_);
    quiet_.notify_all();
  }
  // Returns whether the queue is full. Does not count requests that idle workers are about to take.
  [[nodiscard]] bool full() const SLIME_REQUIRES(mutex_) {
    return queue_.size() + places_.size() >=
           options_.queue_limit + (idle_workers_ > reserved_ ? idle_workers_ - reserved_ : 0);
  }
  bool start_worker() SLIME_REQUIRES(mutex_);
  [[nodiscard]] bool below_limit(const Service::Method& method) const SLIME_REQUIRES(mutex_) {
    if (method.max_running == 0) return true;
    const auto load = loads_.find(&method);
    return load == loads_.end() || load->second.running < method.max_running;
  }
  void count_waiting(const Service::Method& method, int more) SLIME_REQUIRES(mutex_);
  // Returns whether waiting requests of this method fill half of the queue. The other half is kept
  // for other methods.
  [[nodiscard]] bool waits_enough(const Service::Method& method) const SLIME_REQUIRES(mutex_) {
    const auto load = loads_.find(&method);
    return load != loads_.end() && load->second.waiting >= std::max<std::size_t>(1, options_.queue_limit / 2);
  }
  void intercept(Request& request);
  void enter(Request& request, const std::shared_ptr<Service::Method>& method) SLIME_REQUIRES(mutex_);
  void leave(const Service::Method& method) noexcept;
  void worker() noexcept;
  // server_places.cc
  [[nodiscard]] bool worker_free() const SLIME_REQUIRES(mutex_) {
    return workers_.size() - idle_workers_ + reserved_ < options_.workers;
  }
  Task grant(Place& place) SLIME_REQUIRES(mutex_);
  [[nodiscard]] bool fits(Place& place) SLIME_REQUIRES(mutex_);
  Task next_granted(int lowest) SLIME_REQUIRES(mutex_);
  void give_up_worker(Place& place) SLIME_REQUIRES(mutex_);
  std::list<Job>::iterator find_ready() SLIME_REQUIRES(mutex_);
  Job take_ready(std::list<Job>::iterator at) SLIME_REQUIRES(mutex_);
  std::vector<Task> refuse_places() SLIME_REQUIRES(mutex_);

  static inline constinit thread_local const Impl* worker_of_ = nullptr;
  const ServerOptions options_;
  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar work_;
  CondVar quiet_;
  std::map<std::string, Methods, std::less<>> services_ SLIME_GUARDED_BY(mutex_);
  JobQueue queue_ SLIME_GUARDED_BY(mutex_);
  // requests whose body has been read and that have a reserved worker
  std::list<Job> ready_ SLIME_GUARDED_BY(mutex_);
  std::list<Place*> places_ SLIME_GUARDED_BY(mutex_);  // waiting places, in order of arrival
  // number of workers that are reserved for granted places whose requests do not run yet
  std::size_t reserved_ SLIME_GUARDED_BY(mutex_) = 0;
  // true: at equal priority a place is served next, because a small request was served last
  bool places_first_ SLIME_GUARDED_BY(mutex_) = false;
  bool listens_ SLIME_GUARDED_BY(mutex_) = false;  // registered for on_budget_freed()
  struct Load {
    std::size_t running = 0;
    std::size_t waiting = 0;
    std::size_t reserved = 0;  // granted places of the method whose requests do not run yet
    [[nodiscard]] bool none() const { return running == 0 && waiting == 0 && reserved == 0; }
  };
  // loads of the methods that have a limit; a method without an entry has no load
  std::map<const Service::Method*, Load> loads_ SLIME_GUARDED_BY(mutex_);
  ServerCounters counters_ SLIME_GUARDED_BY(mutex_);
  // The counters are atomic, so that a request of a known method takes no lock. drain() sets
  // kDraining and then reads the counts. Requests and answers change the counts first and then read
  // kDraining. So drain() cannot miss the last answer.
  std::atomic<std::uint64_t> version_{1};  // number of changes of services_; written under the lock
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::size_t> unanswered_{0};  // admitted requests without an answer
  std::atomic<std::size_t> executing_{0};   // running handlers
  static constexpr unsigned kDraining = 1;
  static constexpr unsigned kIntercepts = 2;
  std::atomic<unsigned> unusual_{0};  // kDraining, kIntercepts
  std::shared_ptr<const ServerInterceptors> interceptors_ SLIME_GUARDED_BY(mutex_) =
      std::make_shared<ServerInterceptors>();
  std::size_t idle_workers_ SLIME_GUARDED_BY(mutex_) = 0;
  bool stopping_ SLIME_GUARDED_BY(mutex_) = false;
  // last: the threads use all members above
  std::vector<std::thread> workers_ SLIME_GUARDED_BY(mutex_);
};

class Server::Place {
 public:
  enum class State : std::uint8_t { kWaiting, kGranted, kRefused };
  Place(std::shared_ptr<Impl> impl, std::shared_ptr<Service::Method> method, std::shared_ptr<Account> account,
        std::uint64_t bytes)
      : impl_(std::move(impl)),
        method_(std::move(method)),
        account_(std::move(account)),
        bytes_(bytes),
        pooled_(method_ != nullptr && method_->run == Run::kPool) {}
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] State state() const;
  // The reason, if the state is kRefused.
  [[nodiscard]] const Status& refusal() const { return refusal_; }
  // Takes `bytes` more for the request. Returns false if they exceed the budget.
  [[nodiscard]] bool grow(std::uint64_t bytes) { return held_.grow(bytes); }

 private:
  friend class Impl;
  const std::shared_ptr<Impl> impl_;
  const std::shared_ptr<Service::Method> method_;  // null: refused
  const std::shared_ptr<Account> account_;
  const std::uint64_t bytes_;
  const bool pooled_;
  // Guarded by the server's mutex_.
  State state_ = State::kWaiting;
  bool has_worker_ = false;
  bool counted_ = false;  // drain() waits for this place
  std::list<Place*>::iterator self_;
  Task granted_;
  // Reason of a refusal. Written before granted_ is called; granted_ tells the loop to read it.
  Status refusal_;
  Account::Held held_;
};

}  // namespace slime::rpc
