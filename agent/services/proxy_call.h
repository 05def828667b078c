#pragma once

#include <memory>
#include <string>

#include "agent/service_proxy.h"
#include "agent/services/calling_agent.h"
#include "agent/services/discovery.h"
#include "agent/services/server_pool.h"
#include "base/function.h"
#include "base/future.h"
#include "base/mutex.h"
#include "rpc/attachment.h"
#include "rpc/interceptor.h"
#include "rpc/signature.h"

namespace slime::agent {

// One call of a ServiceProxy. Goes from server to server until one has answered, until an error
// that another server would not change, or until no server is left. One step at a time, each begun
// by the end of the step before; only cancel() may come from any thread.
class ProxyCall final : public Waiting, public std::enable_shared_from_this<ProxyCall> {
 public:
  struct Target {
    std::shared_ptr<ServerPool> servers;
    std::shared_ptr<Favorite> favorite;
    std::shared_ptr<const ProxyOptions> options;
    std::string service;  // the called service: the proxy's, or one that every peer serves
    std::string method;
    rpc::Signature signature;
  };
  // The request. Each server that the call is tried with gets it.
  struct Request {
    // kOneWay: done when the request has left, without a value
    rpc::CallKind kind = rpc::CallKind::kPlain;
    rpc::AttachedBody body;
    std::shared_ptr<const rpc::CallSettings> settings{};  // null: none
  };
  ProxyCall(std::shared_ptr<CallingAgent> agent, Target target, Request request, Nanos deadline);

  // `problem`: why the call cannot begin; OK: it can.
  Future<Payload> start(Status problem);

 private:
  enum class Verdict { kEnd, kNext, kAgain };

  void go_on() noexcept override;
  void try_next();
  void attempt(std::shared_ptr<PooledServer> server, TimePoint now);
  template <class Call>
  void run(std::shared_ptr<Call> call, Nanos deadline);
  [[nodiscard]] Status show();
  void on_outcome(Result<Payload> outcome);
  // Returns whether `status` is the server's answer, not a local or network failure.
  [[nodiscard]] bool answered(const Status& status) const;
  [[nodiscard]] Verdict judge(const Status& status);
  [[nodiscard]] Verdict judge_not_executed(const Status& status);
  [[nodiscard]] bool has_no_method() const;
  void none_left();
  void wait(std::uint64_t answer, TimePoint until);
  void finish(Result<Payload> outcome);
  void cancel();
  [[nodiscard]] bool cancelled() const;
  [[nodiscard]] bool over() const { return steady_clock().now() >= deadline_; }
  [[nodiscard]] Status no_server() const;

  const std::shared_ptr<CallingAgent> agent_;
  const Target target_;
  const Request request_;
  const TimePoint deadline_;
  Promise<Payload> promise_;

  std::unique_ptr<rpc::InterceptedCall> intercepted_;  // sees the call once; null: no interceptors

  ServerPool::List tried_;  // in this round
  std::shared_ptr<PooledServer> current_;
  TimePoint attempt_began_{};
  Status last_;               // why the last server could not be used
  std::uint64_t answer_ = 0;  // number of the registry's answer that this call has waited for
  bool must_have_ = false;    // a server said that there is no such method
  bool waits_again_ = false;  // waits for an answer again, after a pause
  int executions_ = 0;        // attempts that may have been executed
  int rounds_ = 0;            // of them, after which all servers were tried anew
  Nanos pause_{};             // before the next of them, or before the next round
  mutable Mutex mutex_;
  Task cancel_attempt_ SLIME_GUARDED_BY(mutex_);  // that is under way
  bool cancelled_ SLIME_GUARDED_BY(mutex_) = false;
};

}  // namespace slime::agent
