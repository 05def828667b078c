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
// that another server would not change, or until no server is left. Runs one step at a time; the
// end of each step begins the next. Only cancel() may come from any thread.
class ProxyCall final : public Waiting, public std::enable_shared_from_this<ProxyCall> {
 public:
  struct Target {
    std::shared_ptr<ServerPool> servers;
    std::shared_ptr<Favorite> favorite;
    std::shared_ptr<const ProxyOptions> options;
    std::string service;  // the proxy's service, or a service of every peer
    std::string method;
    rpc::Signature signature;
  };
  // The request, which each server gets that the call is tried with.
  struct Request {
    // kOneWay: the call is done, without a value, when the request has left
    rpc::CallKind kind = rpc::CallKind::kPlain;
    rpc::AttachedBody body;
    std::shared_ptr<const rpc::CallSettings> settings{};  // null: none
  };
  ProxyCall(std::shared_ptr<CallingAgent> agent, Target target, Request request, Nanos deadline);

  // Begins the call. `problem`: an error that ends the call before it begins; OK: none.
  Future<Payload> start(Status problem);

 private:
  enum class Verdict { kEnd, kNext, kAgain };

  void go_on() noexcept override;
  void try_next();
  void attempt(std::shared_ptr<PooledServer> server, TimePoint now);
  template <class Call>
  void run(OperationPtr<Call> call, Nanos deadline);
  [[nodiscard]] Status show();
  void on_outcome(Result<Payload> outcome);
  // Returns whether `status` came from the server, not from a local or network failure.
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

  ServerPool::List tried_;  // servers that were tried in this round
  std::shared_ptr<PooledServer> current_;
  TimePoint attempt_began_{};
  Status last_;               // why the last server could not be used
  std::uint64_t answer_ = 0;  // number of the registry's answer that the call waits or waited for
  bool must_have_ = false;    // a server has no such method: try only servers that list it
  bool waits_again_ = false;  // after the pause, ask the registry again
  int executions_ = 0;        // attempts that may have been executed
  int rounds_ = 0;            // value of executions_ when all servers were last tried anew
  Nanos pause_{};             // last pause before a repeated attempt or another round
  mutable Mutex mutex_;
  Task cancel_attempt_ SLIME_GUARDED_BY(mutex_);  // cancels the attempt under way
  bool cancelled_ SLIME_GUARDED_BY(mutex_) = false;
};

}  // namespace slime::agent
