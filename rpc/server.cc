#include "rpc/server.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/reaper.h"
#include "base/str.h"
#include "rpc/interceptor.h"
#include "rpc/job_queue.h"
#include "rpc/reflection.h"
#include "rpc/signature.h"

namespace slime::rpc {

// Lives on while anybody holds a request, so that a late answer still finds its counters. What is no atomic
// is guarded by mutex_; handlers, answers and destructors of user code run outside it.
class Server::Impl final : public Request::Tracker,
                           public Directory,
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
  Result<std::shared_ptr<Service::Method>> admit(Request& request, Found& found);
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

 private:
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
  [[nodiscard]] bool full() const { return queue_.size() >= options_.queue_limit + idle_workers_; }
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

  static inline constinit thread_local const Impl* worker_of_ = nullptr;
  const ServerOptions options_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable quiet_;
  std::map<std::string, Methods, std::less<>> services_;
  JobQueue queue_;
  struct Load {
    std::size_t running = 0;
    std::size_t waiting = 0;
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

namespace {

Status expired_status(const CallInfo& info) {
  return Status(Code::kDeadlineExceeded, str("the deadline of ", info.service, ".", info.method,
                                             " passed before a handler thread was free"));
}

ServiceInfo describe(const std::string& name,
                     const std::map<std::string, std::shared_ptr<Service::Method>, std::less<>>& methods) {
  ServiceInfo out{.name = name};
  out.methods.reserve(methods.size());
  for (const auto& [method_name, method] : methods) out.methods.push_back(method->info);
  return out;
}

}  // namespace

std::vector<ServiceInfo> Server::Impl::services() const {
  const std::lock_guard lock(mutex_);
  std::vector<ServiceInfo> out;
  out.reserve(services_.size());
  for (const auto& [name, methods] : services_) out.push_back(describe(name, methods));
  return out;
}

Result<ServiceInfo> Server::Impl::service(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = services_.find(name);
  if (it == services_.end()) return no_service(name);
  return describe(it->first, it->second);
}

Status Server::Impl::check_signature(std::string_view service, std::string_view method,
                                     std::uint64_t signature) const {
  const std::lock_guard lock(mutex_);
  const Service::Method* const found = look_up(service, method);
  if (found == nullptr) return {};
  return Signature(found->info).check(service, method, signature);
}

Result<std::shared_ptr<Service::Method>> Server::Impl::find(const CallInfo& info, Found& found) const {
  const std::lock_guard lock(mutex_);
  const auto service = services_.find(info.service);
  if (service == services_.end()) return no_service(info.service);
  const auto method = service->second.find(info.method);
  if (method == service->second.end()) {
    return Status(Code::kNotFound, str("service '", info.service, "' has no method '", info.method, "'"));
  }
  found = {method->second, version_.load()};
  return method->second;
}

namespace {

// The bytes of one kind would be garbage to the other.
Status called_wrongly(const CallInfo& info) {
  return Status(Code::kUnimplemented,
                str(info.service, ".", info.method,
                    info.raw ? " takes arguments: call() it, with those" : " takes bytes: call_bytes() it"));
}

// What is borrowed may begin anywhere in a frame.
bool aligned(Bytes bytes) {
  return reinterpret_cast<std::uintptr_t>(bytes.data()) % Service::kBytesAlignment == 0;
}

}  // namespace

Result<std::shared_ptr<Service::Method>> Server::Impl::admit(Request& request, Found& found) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  std::shared_ptr<Service::Method> method;
  if (found.version == version_.load()) method = found.method.lock();
  if (method == nullptr) {
    auto searched = find(request.info(), found);
    if (!searched) return searched;
    method = std::move(*searched);
  }
  if (request.info().raw != method->raw) [[unlikely]]
    return called_wrongly(request.info());
  unanswered_.fetch_add(1);
  const unsigned unusual = unusual_.load();
  if (unusual == 0) return method;
  if ((unusual & kDraining) == 0 || method->while_draining) {
    if ((unusual & kIntercepts) != 0) intercept(request);
    return method;
  }
  refused_.fetch_add(1, std::memory_order_relaxed);
  answered();
  return Status(Code::kUnavailable, "the server is draining: it takes no new requests");
}

void Server::Impl::add_interceptor(std::shared_ptr<ServerInterceptor> interceptor) {
  const std::lock_guard lock(mutex_);
  auto more = std::make_shared<ServerInterceptors>(*interceptors_);
  more->push_back(std::move(interceptor));
  interceptors_ = std::move(more);
  unusual_.fetch_or(kIntercepts);
}

void Server::Impl::intercept(Request& request) {
  std::shared_ptr<const ServerInterceptors> interceptors;
  {
    const std::lock_guard lock(mutex_);
    interceptors = interceptors_;
  }
  Interception::add(request, std::move(interceptors), clock_);
}

void Server::Impl::run(Request&& request, Service::Method& method) noexcept {
  executing_.fetch_add(1);
  // Typed handlers catch what user code throws and answer with its text. A raw one owns its request: when it
  // throws, the request is dropped on the way, which answers kInternal.
  try {
    if (request.info().names->extras == nullptr) [[likely]] {
      method.handler(std::move(request));
    } else {
      Interception::run(std::move(request), method.handler, clock_);
    }
  } catch (...) {
  }
  executing_.fetch_sub(1);
  tell_if_quiet();
}

void Server::Impl::enqueue(Request&& request, std::shared_ptr<Service::Method> method) noexcept {
  std::vector<Job> expired;
  std::unique_lock lock(mutex_);
  // What nobody waits for any more must not keep others out.
  if (full()) queue_.take_expired(clock_.now(), expired);
  counters_.expired += expired.size();
  for (const Job& job : expired) count_waiting(*job.method, -1);
  Status refusal = prepare_to_wait(*method);
  if (refusal.ok()) {
    count_waiting(*method, 1);
    queue_.push(Job{std::move(request), std::move(method)});
    work_.notify_one();
    lock.unlock();
  } else {
    refused_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    request.refuse(std::move(refusal));
  }
  for (Job& job : expired) job.request.refuse(expired_status(job.request.info()));
}

// Sees that there is a worker who will come. Under the lock.
Status Server::Impl::prepare_to_wait(const Service::Method& method) {
  if (stopping_) return Status(Code::kUnavailable, "the server has stopped");
  if (idle_workers_ <= queue_.size() && !start_worker())
    return Status(Code::kResourceExhausted, "no handler thread could be started");
  if (full()) {
    return Status(Code::kResourceExhausted,
                  str(options_.queue_limit, " requests wait for a handler thread already"));
  }
  if (waits_enough(method)) {
    return Status(Code::kResourceExhausted, "too many requests of this method wait for its limit already");
  }
  return {};
}

// False when there is no worker at all.
bool Server::Impl::start_worker() {
  if (workers_.size() >= options_.workers) return true;
  try {
    workers_.emplace_back([this] { worker(); });
  } catch (const std::system_error&) {
    return !workers_.empty();
  }
  ++idle_workers_;  // before it runs, so that requests that come meanwhile see it
  return true;
}

// The request counts among those of its method until it is answered.
void Server::Impl::enter(Request& request, const std::shared_ptr<Service::Method>& method) {
  if (method->max_running == 0) return;
  ++loads_[method.get()].running;
  track(request, std::make_shared<Slot>(shared_from_this(), method));
}

void Server::Impl::count_waiting(const Service::Method& method, int more) {
  if (method.max_running == 0) return;
  Load& load = loads_[&method];
  load.waiting += static_cast<std::size_t>(more);
  if (load.waiting == 0 && load.running == 0) loads_.erase(&method);
}

void Server::Impl::leave(const Service::Method& method) noexcept {
  const std::lock_guard lock(mutex_);
  const auto load = loads_.find(&method);
  if (--load->second.running == 0 && load->second.waiting == 0) loads_.erase(load);
  if (queue_.size() > 0) work_.notify_one();
}

void Server::Impl::run_limited(Request&& request, const std::shared_ptr<Service::Method>& method) noexcept {
  bool entered = false;
  {
    const std::lock_guard lock(mutex_);
    entered = below_limit(*method);
    if (entered) enter(request, method);
  }
  if (entered) return run(std::move(request), *method);
  refused_.fetch_add(1, std::memory_order_relaxed);
  const CallInfo& info = request.info();
  request.refuse(
      Status(Code::kResourceExhausted, str(info.service, ".", info.method, " has ", method->max_running,
                                           " requests already, which is its limit")));
}

void Server::Impl::worker() noexcept {
  worker_of_ = this;
  const auto may_run = [this](const Service::Method& method) { return below_limit(method); };
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return stopping_ || queue_.any(may_run); });
    --idle_workers_;
    if (stopping_) return;
    Job job = queue_.take(may_run);
    count_waiting(*job.method, -1);
    const bool expired = job.request.info().deadline <= clock_.now();
    if (expired) ++counters_.expired;
    const bool cancelled = !expired && job.request.cancelled();
    if (cancelled) ++counters_.cancelled;
    if (!expired && !cancelled) enter(job.request, job.method);
    lock.unlock();
    if (cancelled) {
      job.request.refuse(Status(Code::kCancelled, "cancelled before a handler thread was free"));
    } else if (expired) {
      job.request.refuse(expired_status(job.request.info()));
    } else {
      run(std::move(job.request), *job.method);
    }
    job.method.reset();  // may be the last of a removed service: user code, outside the lock
    lock.lock();
    ++idle_workers_;
  }
}

Status Server::Impl::drain(Nanos bound) {
  std::unique_lock lock(mutex_);
  unusual_.fetch_or(kDraining);
  const auto done = [this] { return quiet(); };
  const TimePoint deadline = deadline_after(steady_clock().now(), bound);
  if (deadline == kNever) {
    quiet_.wait(lock, done);
  } else if (!quiet_.wait_until(lock, deadline, done)) {
    return Status(Code::kDeadlineExceeded, str(unanswered_.load(), " requests were not answered in time"));
  }
  return {};
}

void Server::Impl::stop() {
  std::vector<Job> left;
  std::map<std::string, Methods, std::less<>> services;
  std::vector<std::thread> workers;
  {
    const std::lock_guard lock(mutex_);
    unusual_.fetch_or(kDraining);
    stopping_ = true;
    left = queue_.take_all();
    services.swap(services_);
    ++version_;
    workers.swap(workers_);
  }
  work_.notify_all();
  for (Job& job : left) job.request.refuse(Status(Code::kUnavailable, "the server has stopped"));
  const auto join = [](std::vector<std::thread>& threads) {
    for (std::thread& thread : threads) thread.join();
  };
  if (!on_worker()) return join(workers);
  // A handler has dropped the last reference: this thread is one of those to be joined, and needs *this until
  // then.
  reap([self = shared_from_this(), workers = std::move(workers), join]() mutable { join(workers); });
}

ServerCounters Server::Impl::counters() const {
  const std::lock_guard lock(mutex_);
  ServerCounters out = counters_;
  out.requests = requests_.load();
  out.refused = refused_.load();
  out.queued = queue_.size();
  out.running = unanswered_ - queue_.size();
  return out;
}

namespace {

Status check_not_reserved(std::string_view service) {
  if (!service.starts_with(kReservedPrefix)) return {};
  return Status(Code::kInvalidArgument,
                str("service '", service, "': names that begin with '", kReservedPrefix, "' are reserved"));
}

}  // namespace

Server::Server(ServerOptions options, const Clock& clock) : impl_(std::make_shared<Impl>(options, clock)) {}

Server::~Server() { stop(); }

void Server::stop() { impl_->stop(); }
bool Server::on_worker() const { return impl_->on_worker(); }

Status Server::add(Service& service) {
  SLIME_TRY(validate_name("service", service.name()));
  SLIME_TRY(check_not_reserved(service.name()));
  if (service.methods().empty())
    return Status(Code::kInvalidArgument, str("service '", service.name(), "' has no methods"));
  SLIME_TRY(impl_->add(service.name(), service.methods()));
  service.served_ = true;
  return {};
}

Status Server::remove(std::string_view service) {
  SLIME_TRY(check_not_reserved(service));
  return impl_->remove(service);
}
bool Server::serves(std::string_view service, std::string_view method) const {
  return impl_->serves(service, method);
}
Status Server::check_signature(std::string_view service, std::string_view method,
                               std::uint64_t signature) const {
  return impl_->check_signature(service, method, signature);
}
Status Server::drain(Nanos bound) { return impl_->drain(bound); }
void Server::add_interceptor(std::shared_ptr<ServerInterceptor> interceptor) {
  impl_->add_interceptor(std::move(interceptor));
}
ServerCounters Server::counters() const { return impl_->counters(); }

void Server::handle(Request&& request, Found& found) noexcept {
  auto admitted = impl_->admit(request, found);
  if (!admitted) {
    request.refuse(std::move(admitted).error());
    return;
  }
  request.tracker_ = impl_;
  const std::shared_ptr<Service::Method>& method = *admitted;
  const bool pooled = method->run == Run::kPool;
  // A borrowed body holds a receive slot, and with it a credit of the peer: only what is over when it returns
  // may do that. Else calls that wait for each other across two peers could starve their own replies.
  if (pooled || !method->borrows || (method->raw && !aligned(request.body()))) request.payload().detach();
  if (pooled) {
    impl_->enqueue(std::move(request), method);
  } else if (method->max_running > 0) {
    impl_->run_limited(std::move(request), method);
  } else {
    impl_->run(std::move(request), *method);
  }
}

}  // namespace slime::rpc
