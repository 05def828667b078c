#pragma once

// Private to the server*.cc files: what is behind rpc/server.h.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/str.h"
#include "rpc/budget.h"
#include "rpc/interceptor.h"
#include "rpc/job_queue.h"
#include "rpc/reflection.h"
#include "rpc/server.h"

namespace slime::rpc {

// Lives on while anybody holds a request, so that a late answer still finds its counters. What is no atomic
// is guarded by mutex_; handlers, answers and destructors of user code run outside it.
class Server::Impl final : public Request::Tracker,
                           public Directory,
                           public BudgetListener,
                           public std::enable_shared_from_this<Server::Impl> {
 public:
  using Methods = std::map<std::string, std::shared_ptr<Service::Method>, std::less<>>;
  // Ends what one request of a limited method holds of that limit.
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
    // Their handlers refer to this object, which is there as long as it runs one.
    const Service reflection = reflection_service(*this);
    const Service health = health_service(*this);
    for (const auto& [name, method] : health.methods()) method->while_draining = true;
    services_.emplace(reflection.name(), reflection.methods());
    services_.emplace(health.name(), health.methods());
  }

  Status add(const std::string& name, const Methods& methods) {
    const std::lock_guard lock(mutex_);
    if (!services_.emplace(name, methods).second)
      return Status(Code::kAlreadyExists, str("a service '", name, "' is served already"));
    ++version_;
    return {};
  }
  Status remove(std::string_view name) {
    Methods gone;
    const std::lock_guard lock(mutex_);
    const auto it = services_.find(name);
    if (it == services_.end()) return no_service(name);
    gone = std::move(it->second);
    services_.erase(it);
    ++version_;
    return {};
  }
  bool serves(std::string_view service, std::string_view method) const {
    const std::lock_guard lock(mutex_);
    return look_up(service, method) != nullptr;
  }
  Status check_signature(std::string_view service, std::string_view method, std::uint64_t signature) const;
  std::vector<ServiceInfo> services() const override;
  Result<ServiceInfo> service(std::string_view name) const override;
  bool serves(std::string_view service) const override {
    const std::lock_guard lock(mutex_);
    return services_.find(service) != services_.end();
  }
  bool draining() const override { return (unusual_.load() & kDraining) != 0; }
  void add_interceptor(std::shared_ptr<ServerInterceptor> interceptor);
  Result<std::shared_ptr<Service::Method>> admit(Request& request, Found& found, bool has_place);
  void run(Request&& request, Service::Method& method) noexcept;
  void run_limited(Request&& request, const std::shared_ptr<Service::Method>& method) noexcept;
  void enqueue(Request&& request, std::shared_ptr<Service::Method> method) noexcept;
  Status prepare_to_wait(const Service::Method& method);
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
  // Null: there is none. Under the lock.
  [[nodiscard]] const Service::Method* look_up(std::string_view service, std::string_view method) const {
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
    const std::lock_guard lock(mutex_);
    quiet_.notify_all();
  }
  // Those that an idle worker is about to take do not wait.
  [[nodiscard]] bool full() const {
    return queue_.size() + places_.size() >=
           options_.queue_limit + (idle_workers_ > reserved_ ? idle_workers_ - reserved_ : 0);
  }
  bool start_worker();
  [[nodiscard]] bool below_limit(const Service::Method& method) const {
    if (method.max_running == 0) return true;
    const auto load = loads_.find(&method);
    return load == loads_.end() || load->second.running < method.max_running;
  }
  void count_waiting(const Service::Method& method, int more);
  // A method that is at its limit leaves half of the queue to others.
  [[nodiscard]] bool waits_enough(const Service::Method& method) const {
    const auto load = loads_.find(&method);
    return load != loads_.end() && load->second.waiting >= std::max<std::size_t>(1, options_.queue_limit / 2);
  }
  void intercept(Request& request);
  void enter(Request& request, const std::shared_ptr<Service::Method>& method);
  void leave(const Service::Method& method) noexcept;
  void worker() noexcept;
  // server_places.cc; all under the lock.
  [[nodiscard]] bool worker_free() const {
    return workers_.size() - idle_workers_ + reserved_ < options_.workers;
  }
  Task grant(Place& place);
  [[nodiscard]] bool fits(Place& place);
  Task next_granted(int lowest);
  void give_up_worker(Place& place);
  std::list<Job>::iterator find_ready();
  Job take_ready(std::list<Job>::iterator at);
  std::vector<Task> refuse_places();

  static inline constinit thread_local const Impl* worker_of_ = nullptr;
  const ServerOptions options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable quiet_;
  std::map<std::string, Methods, std::less<>> services_;
  JobQueue queue_;
  std::list<Job> ready_;       // requests that have a worker, and were read
  std::list<Place*> places_;   // that wait, in order of arrival
  std::size_t reserved_ = 0;   // workers of places that are granted and not running
  bool places_first_ = false;  // of equal priority: the last that went on was none of them
  bool listens_ = false;       // on_budget_freed() is to come
  struct Load {
    std::size_t running = 0;
    std::size_t waiting = 0;
    std::size_t reserved = 0;  // places that are granted and not running
    [[nodiscard]] bool none() const { return running == 0 && waiting == 0 && reserved == 0; }
  };
  std::map<const Service::Method*, Load> loads_;  // of methods with a limit that have any
  ServerCounters counters_;
  // These without the lock, so that a request of a method that is known takes none: who ends the last request
  // looks whether somebody drains, who begins one looks after counting it, who drains looks at the counts
  // after saying so.
  std::atomic<std::uint64_t> version_{1};  // of services_; changed under the lock
  std::atomic<std::uint64_t> requests_{0};
  std::atomic<std::uint64_t> refused_{0};
  std::atomic<std::size_t> unanswered_{0};  // admitted and not answered
  std::atomic<std::size_t> executing_{0};   // inside a handler
  static constexpr unsigned kDraining = 1;
  static constexpr unsigned kIntercepts = 2;
  std::atomic<unsigned> unusual_{0};  // what requests have to look out for
  std::shared_ptr<const ServerInterceptors> interceptors_ = std::make_shared<ServerInterceptors>();
  std::size_t idle_workers_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> workers_;  // last: they touch everything above
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
  // Why it is refused.
  [[nodiscard]] const Status& refusal() const { return refusal_; }
  // More bytes of the request are known; false: they are beyond the budget.
  [[nodiscard]] bool grow(std::uint64_t bytes) { return held_.grow(bytes); }

 private:
  friend class Impl;
  const std::shared_ptr<Impl> impl_;
  const std::shared_ptr<Service::Method> method_;  // null: refused
  const std::shared_ptr<Account> account_;
  const std::uint64_t bytes_;
  const bool pooled_;
  // Under the lock of the server.
  State state_ = State::kWaiting;
  bool has_worker_ = false;
  bool counted_ = false;  // among the requests that drain() waits for
  std::list<Place*>::iterator self_;
  Task granted_;
  // Written before granted_ is called.
  Status refusal_;
  Account::Held held_;
};

}  // namespace slime::rpc
