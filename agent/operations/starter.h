#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/admission.h"
#include "agent/agent_driver.h"
#include "agent/connecting/switchboard.h"
#include "agent/limits.h"
#include "agent/memory/agent_memory.h"
#include "agent/operations/operations.h"
#include "agent/peer_agent.h"
#include "rpc/interceptor.h"
#include "transport/loop.h"

namespace slime::agent {

// Starts operations on peers: applies the agent's default timeout, counts operations in flight, and
// runs an operation in the caller's thread if that wakes no other thread, else on the loop. Part of
// an agent, which outlives it; each started operation keeps the agent alive until the loop has
// taken the operation. Thread: any.
class OperationStarter {
 public:
  struct Parts {
    std::weak_ptr<void> owner;  // the agent
    Admission& admission;
    std::shared_ptr<transport::Loop> loop;
    std::shared_ptr<AgentDriver> driver;
    Switchboard& switchboard;
    AgentMemory& memory;
  };
  OperationStarter(Parts parts, Progress progress, Nanos timeout)
      : parts_(std::move(parts)), progress_(progress), timeout_(timeout) {}
  OperationStarter(const OperationStarter&) = delete;
  OperationStarter& operator=(const OperationStarter&) = delete;

  [[nodiscard]] transport::Loop& loop() const { return *parts_.loop; }
  [[nodiscard]] std::shared_ptr<Driver> driver() const { return parts_.driver; }
  // Returns the driver for operations that may wait without end, such as receives. Null lets their
  // waiting threads sleep. With Progress::kCaller the agent's driver, since no other thread drives.
  [[nodiscard]] std::shared_ptr<Driver> patient_driver() const {
    return progress_ == Progress::kCaller ? parts_.driver : nullptr;
  }
  [[nodiscard]] bool forked() const { return parts_.admission.forked(); }
  [[nodiscard]] Status refusal() const { return parts_.admission.refusal(); }

  // Adds an interceptor, which runs for each call that this agent makes.
  void add_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor) {
    interceptors_.add(std::move(interceptor));
  }
  [[nodiscard]] bool intercepts() const { return interceptors_.any(); }
  [[nodiscard]] std::vector<std::shared_ptr<rpc::ClientInterceptor>> interceptors() const {
    return interceptors_.all();
  }

  // Makes an operation; `arguments`: see its constructor.
  template <class Operation, class... A>
  [[nodiscard]] OperationPtr<Operation> make(A&&... arguments) const {
    return make_operation<Operation>(parts_.driver, true, std::forward<A>(arguments)...);
  }
  // Like make(), for operations that may wait without end: as patient_driver().
  template <class Operation, class... A>
  [[nodiscard]] OperationPtr<Operation> make_patient(A&&... arguments) const {
    return make_operation<Operation>(parts_.driver, progress_ == Progress::kCaller,
                                     std::forward<A>(arguments)...);
  }
  // Starts an operation on `peer` and returns its future. A timeout of zero: the agent's default.
  template <class Operation>
  auto submit(const std::shared_ptr<NamedPeer>& peer, OperationPtr<Operation> operation, Nanos timeout,
              bool wait_for_ready);
  // Like submit(), but runs the client interceptors first.
  template <class Call>
  auto begin(const std::shared_ptr<NamedPeer>& peer, OperationPtr<Call> call,
             const std::shared_ptr<const rpc::CallSettings>& settings, Nanos timeout, bool wait_for_ready);

  // Start one-sided operations and atomics. Errors: kInvalidArgument for a batch that
  // check_blocks() refuses.
  Future<None> one_sided(const std::shared_ptr<NamedPeer>& peer, OneSided kind, std::span<const Copy> copies,
                         std::uint32_t imm, Nanos timeout, bool wait_for_ready);
  Future<None> blocks(const std::shared_ptr<NamedPeer>& peer, OneSided kind, const BlockIds& blocks,
                      Nanos timeout, bool wait_for_ready);
  Future<std::uint64_t> atomic(const std::shared_ptr<NamedPeer>& peer, AtomicOperation::Request request,
                               Nanos timeout, bool wait_for_ready);
  // bind() checks and binds the copies of a prepared batch. post() posts the blocks of a bound list
  // that have the numbers `blocks`, or all if there are no numbers.
  Result<std::shared_ptr<BoundCopies>> bind(const std::string& peer, Transfer transfer,
                                            std::span<const Copy> copies) const;
  Future<None> post(const std::shared_ptr<NamedPeer>& peer, OneSided kind,
                    std::shared_ptr<BoundCopies> copies, std::span<const std::uint32_t> blocks,
                    std::uint32_t imm, PostOptions options, bool wait_for_ready);
  // Copies a small batch inside this call, if the memory of both sides is on this host. Returns
  // false if that is not possible; then nothing was copied.
  bool done_now(NamedPeer& peer, Transfer transfer, BoundCopies& copies);

 private:
  const Parts parts_;
  const Progress progress_;
  const Nanos timeout_;
  rpc::ClientInterceptors interceptors_;
};

template <class Operation>
auto OperationStarter::submit(const std::shared_ptr<NamedPeer>& peer, OperationPtr<Operation> operation,
                              Nanos timeout, bool wait_for_ready) {
  auto future = operation->future();
  // Keeps the agent alive where callbacks of other operations run within this call: a callback may
  // drop the last reference to the agent.
  std::shared_ptr<void> kept = progress_ == Progress::kPolled ? parts_.owner.lock() : nullptr;
  AgentDriver& driver = *parts_.driver;
  transport::Loop& loop = *parts_.loop;
  if (timeout == Nanos::zero()) timeout = timeout_;
  operation->wait_for_ready = wait_for_ready;
  // One-sided operations and atomics name regions. They have no other use for the exact time: over
  // verbs, the posts of one turn share a reading of the clock.
  constexpr bool kNamesRegions = requires(Operation & each) { each.pin_regions(); };
  std::optional<Admission::Pass> pass;
  // Starts the operation in this thread if it has nothing to wait for, which saves waking the
  // loop's thread. With other operations in flight, deferred work is left to the next thread that
  // drives: it may complete those, whose callbacks must not run in this thread.
  const bool alone = progress_ != Progress::kThread || driver.under_way.load(std::memory_order_relaxed) == 0;
  OperationPtr<PeerOperation> started;
  if (parts_.admission.open()) {
    const transport::Loop::Borrowed drive(loop, alone);
    if (drive && parts_.admission.open()) {
      operation->begin(loop, timeout, kNamesRegions);
      if (operation->counts()) operation->count_in(driver.under_way);
      if constexpr (kNamesRegions) operation->pin_regions();
      started = std::move(operation);
      if (parts_.switchboard.submit_at_once(*peer, started)) return future;
      pass.emplace(parts_.admission);
      if (!*pass) {
        started->fail(refusal());
        started = nullptr;  // while this thread drives: the operation has pinned its regions
        return future;
      }
    }
  }
  if (!started) {
    pass.emplace(parts_.admission);
    if (!*pass) {
      operation->fail(refusal());
      return future;
    }
    operation->begin(loop, timeout, kNamesRegions);
    if constexpr (kNamesRegions) operation->count_regions();
    started = std::move(operation);
  }
  if (progress_ == Progress::kCaller) kept = parts_.owner.lock();
  // `named`, not `peer`: a copy of a const reference would be const, and copied by each move.
  loop.dispatch([this, owner = parts_.owner.lock(), named = peer, started = std::move(started)]() mutable {
    if (started->counts()) started->count_in(parts_.driver->under_way);
    parts_.switchboard.submit(*named, std::move(started));
  });
  return future;
}

template <class Call>
auto OperationStarter::begin(const std::shared_ptr<NamedPeer>& peer, OperationPtr<Call> call,
                             const std::shared_ptr<const rpc::CallSettings>& settings, Nanos timeout,
                             bool wait_for_ready) {
  if (settings == nullptr && !intercepts()) return submit(peer, std::move(call), timeout, wait_for_ready);
  // An interceptor may drop the calling Peer and the agent.
  const auto kept = parts_.owner.lock();
  const std::shared_ptr<NamedPeer> named = peer;
  const std::shared_ptr<const rpc::CallSettings> shown = settings;
  Status refusal = call->show(named->name, shown.get(), interceptors());
  if (refusal.ok()) return submit(named, std::move(call), timeout, wait_for_ready);
  auto future = call->future();
  call->fail(std::move(refusal).with_maybe_executed(false));
  return future;
}

}  // namespace slime::agent
