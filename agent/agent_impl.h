#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/agent_driver.h"
#include "agent/connecting/keeper.h"
#include "agent/connecting/switchboard.h"
#include "agent/fork_guard.h"
#include "agent/gate.h"
#include "agent/memory/devices.h"
#include "agent/memory/region.h"
#include "agent/operations/calls.h"
#include "agent/operations/old_values.h"
#include "agent/operations/operations.h"
#include "agent/peer_agent.h"
#include "agent/registry/keyring.h"
#include "agent/registry/registrar.h"
#include "agent/registry/report.h"
#include "agent/services/discovery.h"
#include "rpc/server.h"
#include "transport/connect.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime {

// What is behind PeerAgent and Peer. Owns every part and orders their beginning and end; the work is done by
// the parts. Thread: any.
class PeerAgentImpl final : public std::enable_shared_from_this<PeerAgentImpl>, public agent::RegionOwner {
 public:
  static Result<std::shared_ptr<PeerAgentImpl>> start(PeerAgentOptions options);
  static std::vector<std::string> provider_names();
  explicit PeerAgentImpl(PeerAgentOptions options);
  ~PeerAgentImpl();

  [[nodiscard]] const PeerAgentOptions& options() const { return options_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] const InstanceId& instance() const { return instance_; }
  [[nodiscard]] bool forked() const { return guard_.forked(); }
  Peer peer(std::string name);

  // Runs an operation on a peer; its future is done when it is. Zero: the agent's deadline.
  template <class Operation>
  auto submit(const std::string& peer, std::shared_ptr<Operation> operation, Nanos deadline,
              bool wait_for_ready);
  // Like submit(), but runs the client interceptors first.
  template <class Call>
  auto begin(const std::string& peer, std::shared_ptr<Call> call,
             const std::shared_ptr<const rpc::CallSettings>& settings, Nanos deadline, bool wait_for_ready);
  // True on a thread that close() waits for: the loop's thread, a caller that drives the loop, a
  // thread of the handler pool, the registrar's thread.
  [[nodiscard]] bool on_own_thread() const;
  // Returns the server if close() left it because handlers still ran; else null.
  std::shared_ptr<rpc::Server> take_server();
  // What a closed agent, and one in a forked child, answers.
  [[nodiscard]] Status refusal() const;
  // Where a wait would wait for itself.
  [[nodiscard]] Status check_may_wait() const;
  [[nodiscard]] std::shared_ptr<Driver> driver() const { return driver_; }
  // Of what may be waited for without an end, which is no reason for a thread not to sleep.
  [[nodiscard]] std::shared_ptr<Driver> patient_driver() const {
    return options_.progress == Progress::kCaller ? driver_ : nullptr;
  }
  Future<None> one_sided(const std::string& peer, agent::OneSided kind, std::span<const Copy> copies,
                         std::uint32_t imm, Nanos deadline, bool wait_for_ready);
  Result<std::shared_ptr<agent::BoundCopies>> bind(Transfer transfer, std::span<const Copy> copies) const;
  bool done_now(const std::string& peer, Transfer transfer, agent::BoundCopies& copies);
  Future<None> post(const std::string& peer, agent::OneSided kind, std::shared_ptr<agent::BoundCopies> copies,
                    std::span<const std::uint32_t> blocks, std::uint32_t imm, PostOptions options,
                    bool wait_for_ready);
  Future<std::uint64_t> atomic(const std::string& peer, agent::AtomicOperation::Request request,
                               Nanos deadline, bool wait_for_ready);
  Status disconnect(const std::string& peer);

  Result<MemoryRegion> allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages);
  Result<MemoryRegion> register_memory(void* data, std::size_t bytes, Rights rights, MemoryKind kind);
  Status publish(std::string_view name, const MemoryRegion& region);
  Status unpublish(std::string_view name);
  Status serve(rpc::Service& service);
  ServiceProxy proxy(std::string service, ProxyOptions options);
  [[nodiscard]] agent::Discovery& discovery() const { return *discovery_; }
  [[nodiscard]] transport::Loop& loop() const { return *loop_; }
  void add_interceptor(std::shared_ptr<rpc::ServerInterceptor> interceptor);
  void add_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor) {
    interceptors_.add(std::move(interceptor));
  }
  // Of calls that this agent makes.
  [[nodiscard]] bool intercepts() const { return interceptors_.any(); }
  [[nodiscard]] std::vector<std::shared_ptr<rpc::ClientInterceptor>> interceptors() const {
    return interceptors_.all();
  }
  Status drain(Nanos bound);
  using ImmHandler = std::function<void(Peer, std::uint32_t, NotificationCredit&)>;
  void on_imm(ImmHandler handler);
  void release_credit(std::uint64_t session);
  void on_disconnect(std::function<void(const std::string&, std::uint64_t)> handler);
  Result<std::string> list_peers(Nanos timeout);
  bool poll(Nanos budget);
  Status close(Nanos bound);

  // `bound`: how long to wait for the loop; without its word the rest is told.
  [[nodiscard]] std::string info(Nanos bound = Nanos::max());
  [[nodiscard]] std::string peer_info(const std::string& peer);

 private:
  [[nodiscard]] Status check_blocks(std::span<const Copy> copies) const;
  static void destroy(PeerAgentImpl* agent);
  Status listen();
  Status enroll();
  Status check_exposure() const;
  Result<std::string> advertised() const;
  Result<MemoryRegion> keep(Result<agent::Registrations> registrations);
  void on_region_closing(const MemoryRegion::State& region) noexcept override;
  void revoke(const std::vector<std::string>& names);
  void note_event(const ctrl::Event& event);
  void note_keys();
  void closed_session(const std::string& peer, std::uint64_t connection);
  // True when no session is left.
  bool wait_for_sessions(TimePoint deadline);
  Status close_parts(Nanos bound);
  struct LoopView;
  LoopView look() const;
  std::optional<ctrl::Report> report();
  std::optional<LoopView> look(Nanos bound);

  PeerAgentOptions options_;
  const InstanceId instance_ = InstanceId::random();
  const agent::ForkGuard guard_;
  agent::Gate gate_;
  std::string address_;

  std::shared_ptr<agent::Devices> devices_;
  std::shared_ptr<transport::Loop> loop_;
  std::shared_ptr<agent::AgentDriver> driver_;  // of futures
  std::shared_ptr<rpc::Server> server_;         // until the close; drain() may still wait on its own
  agent::RegionTable regions_;
  const std::shared_ptr<agent::OldValues> old_values_ = std::make_shared<agent::OldValues>();
  std::vector<std::unique_ptr<transport::Port>> ports_;  // one for each device
  std::shared_ptr<agent::Keyring> keyring_;              // null: handshakes are under the token, or nothing
  std::unique_ptr<agent::Switchboard> switchboard_;
  std::unique_ptr<transport::Listener> listener_;
  std::shared_ptr<agent::Discovery> discovery_;
  std::unique_ptr<agent::Keeper> keeper_;
  // On the loop.
  ImmHandler imm_handler_;
  std::vector<std::function<void(const std::string&, std::uint64_t)>> disconnect_handlers_;

  rpc::ClientInterceptors interceptors_;

  std::mutex events_mutex_;
  std::deque<ctrl::Event> events_;  // of the registry, that the loop has not seen

  std::atomic<bool> keys_noted_{false};  // the loop is about to look at the keyring

  agent::ReportBox reports_;

  std::mutex sessions_mutex_;  // only for the wait
  std::condition_variable sessions_changed_;

  std::mutex close_mutex_;
  bool closed_ = false;
  Status close_status_;

  std::unique_ptr<agent::Registrar> registrar_;  // last: its thread touches what is above
};

template <class Operation>
auto PeerAgentImpl::submit(const std::string& peer, std::shared_ptr<Operation> operation, Nanos deadline,
                           bool wait_for_ready) {
  auto future = operation->future();
  // Keeps the agent alive: in these modes callbacks run within this call, and one may drop the last
  // reference.
  const auto kept = options_.progress == Progress::kThread ? nullptr : shared_from_this();
  const agent::Gate::Pass pass(gate_);
  if (!pass || forked()) {
    operation->fail(refusal());
    return future;
  }
  const Nanos span = deadline == Nanos::zero() ? options_.deadline : deadline;
  if (const std::size_t weight = operation->weight()) operation->count_in(driver_->under_way, weight);
  operation->began = loop_->now();
  operation->agent::PeerOperation::deadline = deadline_after(operation->began, span);
  operation->wait_for_ready = wait_for_ready;
  operation->promise().on_cancel([weak_self = weak_from_this(), weak = std::weak_ptr<Operation>(operation)] {
    const auto self = weak_self.lock();
    if (!self || self->forked()) return;
    const agent::Gate::Pass cancel_pass(self->gate_);
    if (!cancel_pass) return;  // closing ends it anyway
    self->loop_->dispatch([weak] {
      if (const auto cancelled = weak.lock()) cancelled->cancel();
    });
  });
  // Where the loop's thread sleeps it is spared, if the operation has nothing to wait for. Only while it is
  // the only one: what others complete calls back their users, who are not to be called from here.
  if (options_.progress == Progress::kPolled ||
      driver_->under_way.load(std::memory_order_relaxed) <= agent::limits::kBorrowOperations) {
    const transport::Loop::Borrowed drive(*loop_);
    if (drive && switchboard_->submit_at_once(peer, operation)) return future;
  }
  loop_->dispatch([self = shared_from_this(), peer, operation = std::move(operation)]() mutable {
    self->switchboard_->submit(peer, std::move(operation));
  });
  return future;
}

template <class Call>
auto PeerAgentImpl::begin(const std::string& peer, std::shared_ptr<Call> call,
                          const std::shared_ptr<const rpc::CallSettings>& settings, Nanos deadline,
                          bool wait_for_ready) {
  if (settings == nullptr && !intercepts()) return submit(peer, std::move(call), deadline, wait_for_ready);
  // An interceptor may drop the calling Peer and the agent.
  const auto kept = shared_from_this();
  const std::string name = peer;
  const std::shared_ptr<const rpc::CallSettings> shown = settings;
  Status refusal = call->show(name, shown.get(), interceptors());
  if (refusal.ok()) return submit(name, std::move(call), deadline, wait_for_ready);
  call->fail(std::move(refusal).with_maybe_executed(false));
  return call->future();
}

}  // namespace slime
