#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "agent/agent_impl.h"
#include "agent/discovery.h"
#include "agent/providers.h"
#include "agent/service_proxy.h"
#include "base/future.h"

namespace slime::agent {

// One call of a ServiceProxy: goes from provider to provider until one has answered, the error is one that
// another provider would not mend, or there is none left. One step at a time, each begun by the end of the
// one before; only cancel() comes from anywhere.
class ProxyCall final : public Waiting, public std::enable_shared_from_this<ProxyCall> {
 public:
  struct Target {
    std::shared_ptr<Providers> providers;
    std::shared_ptr<Favorite> favorite;
    std::shared_ptr<const ProxyOptions> options;
    std::string service;  // what is called of them: theirs, or one that every peer has
    std::string method;
  };
  ProxyCall(std::shared_ptr<PeerAgentImpl> agent, Target target, rpc::AttachedBody arguments, Nanos deadline);

  Future<Payload> start();

 private:
  enum class Verdict { kEnd, kNext, kAgain };

  void go_on() noexcept override;
  void try_next();
  void attempt(std::shared_ptr<Provider> provider);
  [[nodiscard]] std::shared_ptr<ResultOperation<Payload>> make_operation() const;
  void on_outcome(Result<Payload> outcome);
  [[nodiscard]] Verdict judge(const Status& status);
  [[nodiscard]] Verdict judge_not_executed(const Status& status);
  [[nodiscard]] bool has_no_method() const;
  void none_left();
  void wait(std::uint64_t answer, TimePoint until);
  void finish(Result<Payload> outcome);
  void cancel();
  [[nodiscard]] bool cancelled() const;
  [[nodiscard]] bool over() const { return steady_clock().now() >= deadline_; }
  [[nodiscard]] Status no_provider() const;

  const std::shared_ptr<PeerAgentImpl> agent_;
  const Target target_;
  const rpc::AttachedBody arguments_;
  const TimePoint deadline_;
  Promise<Payload> promise_;

  Providers::List tried_;  // in this round
  std::shared_ptr<Provider> current_;
  Status last_;                // why the last provider was of no use
  std::uint64_t answer_ = 0;   // of the registry, that this call has waited for
  bool must_have_ = false;     // one said that there is no such method
  bool waits_again_ = false;   // for an answer, after a while
  int executions_ = 0;         // attempts that may have been executed
  int rounds_ = 0;             // of them, after which all providers were tried anew
  Nanos pause_{};              // before the next of them, or before the next round
  mutable std::mutex mutex_;   // guards what follows
  Future<Payload> under_way_;  // an attempt
  bool cancelled_ = false;
};

}  // namespace slime::agent
