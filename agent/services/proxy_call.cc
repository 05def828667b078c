#include "agent/services/proxy_call.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "agent/limits.h"
#include "agent/operations/calls.h"
#include "base/str.h"

namespace slime::agent {

namespace {

constexpr std::string_view kAnyServer = "any server";

Result<Payload> to_payload(Result<Payload> outcome) { return outcome; }
Result<Payload> to_payload(Result<None> outcome) {
  if (!outcome) return std::move(outcome).error();
  return Payload(rpc::encode_value(None{}));
}

}  // namespace

ProxyCall::ProxyCall(std::shared_ptr<CallingAgent> agent, Target target, Request request, Nanos deadline)
    : agent_(std::move(agent)),
      target_(std::move(target)),
      request_(std::move(request)),
      deadline_(deadline_after(steady_clock().now(), deadline)),
      promise_(agent_->starter.driver()) {}

Future<Payload> ProxyCall::start(Status problem) {
  promise_.set_label(rpc::method_label(target_.service, target_.method));
  Future<Payload> future = promise_.future();
  if (Status refusal = show(); problem.ok()) problem = std::move(refusal);
  if (!problem.ok()) {
    finish(std::move(problem).with_maybe_executed(false));
    return future;
  }
  promise_.on_cancel([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->cancel();
  });
  const TimePoint now = steady_clock().now();
  Discovery& discovery = agent_->discovery;
  if (target_.servers->old(now)) {
    answer_ = discovery.ask(target_.servers);
    wait(answer_, deadline_);
  } else {
    discovery.ask_if_due(target_.servers, now);
    try_next();
  }
  return future;
}

Status ProxyCall::show() {
  if (request_.settings == nullptr && !agent_->starter.intercepts()) return {};
  intercepted_ = std::make_unique<rpc::InterceptedCall>(
      rpc::CallNamed{
          .peer = kAnyServer, .service = target_.service, .method = target_.method, .kind = request_.kind},
      request_.settings.get(), agent_->starter.interceptors());
  return intercepted_->begin(request_.body.attachments);
}

void ProxyCall::cancel() {
  if (agent_->starter.forked()) return;
  Task cancel_attempt;
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    cancel_attempt = std::move(cancel_attempt_);
  }
  if (cancel_attempt) cancel_attempt();
  agent_->starter.loop().dispatch([self = shared_from_this()] { self->agent_->discovery.wake(*self); });
}

bool ProxyCall::cancelled() const {
  const MutexLock lock(mutex_);
  return cancelled_;
}

void ProxyCall::finish(Result<Payload> outcome) {
  if (!outcome && executions_ > 0) outcome = std::move(outcome).error().with_maybe_executed(true);
  if (intercepted_) {
    Status status = intercepted_->end(outcome.status(), steady_clock().now());
    if (!status.ok()) outcome = std::move(status);
  }
  promise_.complete(std::move(outcome));
}

// ---------------------------------------------------------------------------------------- attempts

void ProxyCall::go_on() noexcept {
  if (std::exchange(waits_again_, false) && !over()) {
    answer_ = agent_->discovery.ask(target_.servers);
    wait(answer_, deadline_);
    return;
  }
  try_next();
}

void ProxyCall::try_next() {
  if (const Status refused = agent_->starter.refusal(); !refused.ok()) return finish(refused);
  if (cancelled()) return finish(Status(Code::kCancelled, "the call was cancelled"));
  if (over()) {
    const Status why = last_.ok() ? no_server() : last_;
    return finish(Status(Code::kDeadlineExceeded,
                         str(target_.servers->service(), ".", target_.method,
                             ": the deadline passed before a server took it; the last: ", why.text())));
  }
  const ProxyOptions& options = *target_.options;
  ServerPool::Wish wish{.policy = options.policy,
                        .key = options.key,
                        .favorite = target_.favorite.get(),
                        .tried = tried_.empty() ? nullptr : &tried_};
  if (must_have_) wish.must_have = target_.method;
  const TimePoint now = steady_clock().now();
  auto server = target_.servers->pick(wish, now);
  if (server) return attempt(std::move(server), now);
  none_left();
}

void ProxyCall::attempt(std::shared_ptr<PooledServer> server, TimePoint now) {
  const ProxyOptions& options = *target_.options;
  attempt_began_ = now;
  Nanos left = deadline_ == kNever ? Nanos::max() : deadline_ - now;
  if (options.idempotent && options.retry.attempt_timeout > Nanos::zero())
    left = std::min(left, options.retry.attempt_timeout);
  current_ = std::move(server);
  left = std::max(left, Nanos(1));
  // Each attempt gets a copy of the request: a failed attempt does not give it back, and another
  // attempt may follow.
  const auto& [service, method] = std::tie(target_.service, target_.method);
  const rpc::AttachedBody& body = request_.body;
  if (request_.kind == rpc::CallKind::kOneWay)
    return run(agent_->starter.make<OneWayOperation>(service, method, body), left);
  if (body.attachments.empty() && body.into.empty() && !body.raw)
    return run(agent_->starter.make<CallOperation>(service, method, body.body), left);
  run(agent_->starter.make<AttachedCall>(service, method, body), left);
}

template <class Call>
void ProxyCall::run(OperationPtr<Call> call, Nanos deadline) {
  call->take_for(target_.signature);
  if (intercepted_) call->watch(std::make_unique<rpc::InterceptedCall>(intercepted_->context()));
  auto future = agent_->starter.submit(current_->peer, std::move(call), deadline, false);
  bool cancelled = false;
  {
    const MutexLock lock(mutex_);
    cancelled = cancelled_;
    if (!cancelled) cancel_attempt_ = [future]() mutable { future.cancel(); };
  }
  if (cancelled) future.cancel();
  std::move(future).then(
      [self = shared_from_this()](auto outcome) { self->on_outcome(to_payload(std::move(outcome))); });
}

void ProxyCall::on_outcome(Result<Payload> outcome) {
  const std::shared_ptr<PooledServer> server = current_;
  const TimePoint now = steady_clock().now();
  target_.servers->release(*server, attempt_began_, answered(outcome.status()), now);
  Task over;
  {
    const MutexLock lock(mutex_);
    over = std::move(cancel_attempt_);
    cancel_attempt_ = {};
  }
  if (outcome) return finish(std::move(outcome));
  Status status = std::move(outcome).error();
  const Verdict verdict = judge(status);
  if (verdict == Verdict::kEnd) return finish(std::move(status));
  tried_.push_back(server);
  last_ = std::move(status);
  // Tries the next server in another turn, because this function may run deep inside the link of
  // the server that failed.
  if (verdict == Verdict::kNext) {
    agent_->starter.loop().post([self = shared_from_this()] { self->try_next(); });
    return;
  }
  answer_ = 0;
  const RetryPolicy& retry = target_.options->retry;
  pause_ = std::min(executions_ == 1 ? retry.backoff : 2 * pause_, retry.backoff_max);
  wait(0, deadline_after(steady_clock().now(), target_.servers->jittered(pause_)));
}

bool ProxyCall::answered(const Status& status) const {
  if (request_.kind == rpc::CallKind::kOneWay) return false;  // OK means only that the request has left
  switch (status.code()) {
    case Code::kDeadlineExceeded:
    case Code::kUnavailable:
    case Code::kAborted:
    case Code::kCancelled:
      return false;
    case Code::kInvalidArgument:
    case Code::kResourceExhausted:
      return status.maybe_executed();  // not executed: the refusal may come from this side
    default:
      return true;
  }
}

ProxyCall::Verdict ProxyCall::judge(const Status& status) {
  if (cancelled() || status.code() == Code::kCancelled || !agent_->starter.refusal().ok())
    return Verdict::kEnd;
  if (!status.maybe_executed()) return judge_not_executed(status);
  ++executions_;
  if (status.code() == Code::kDeadlineExceeded)
    target_.servers->eject(*current_, status, attempt_began_, steady_clock().now());
  const bool lost = status.code() == Code::kUnavailable || status.code() == Code::kAborted;
  if (lost) {
    const TimePoint now = steady_clock().now();
    target_.servers->avoid(*current_, status, deadline_after(now, limits::kAvoidServer));
    target_.servers->note_change();
  }
  const ProxyOptions& options = *target_.options;
  const bool passes = lost || status.code() == Code::kResourceExhausted ||
                      (status.code() == Code::kDeadlineExceeded && !over());
  if (!options.idempotent || !passes || executions_ >= options.retry.attempts) return Verdict::kEnd;
  return Verdict::kAgain;
}

ProxyCall::Verdict ProxyCall::judge_not_executed(const Status& status) {
  const TimePoint now = steady_clock().now();
  switch (status.code()) {
    case Code::kInvalidArgument:
      return Verdict::kEnd;
    case Code::kDeadlineExceeded:
      target_.servers->eject(*current_, status, attempt_began_, now);
      target_.servers->note_change();
      return over() ? Verdict::kEnd : Verdict::kNext;
    case Code::kResourceExhausted:
      target_.servers->avoid(*current_, status, deadline_after(now, limits::kAvoidBusyServer));
      return Verdict::kNext;
    case Code::kNotFound:
      // If the server has no such method, tries only servers that list the method. Otherwise the
      // server has gone, or does not serve the service any more.
      if (has_no_method()) {
        must_have_ = true;
        return Verdict::kNext;
      }
      break;
    default:
      break;
  }
  target_.servers->avoid(*current_, status, deadline_after(now, limits::kAvoidServer));
  target_.servers->note_change();
  return Verdict::kNext;
}

bool ProxyCall::has_no_method() const {
  const ServerPool::Says says = target_.servers->says(*current_, target_.method);
  if (says != ServerPool::Says::kNothing) return says == ServerPool::Says::kNo;
  return agent_->discovery.knows(current_->name);
}

// --------------------------------------------------------------------------------------- no server

void ProxyCall::none_left() {
  if (must_have_) return finish(last_);
  Discovery& discovery = agent_->discovery;
  if (answer_ == 0) {
    // The known list may be old: asks for servers that have registered since.
    answer_ = discovery.ask(target_.servers);
    return wait(answer_, deadline_);
  }
  if (executions_ > rounds_) {
    // A call that may be repeated may go to the same server again, if there is no other.
    rounds_ = executions_;
    tried_.clear();
    return try_next();
  }
  if (!target_.options->wait_for_ready) return finish(no_server());
  tried_.clear();
  pause_ = std::clamp(2 * pause_, limits::kServerWaitMin, limits::kServerWaitMax);
  waits_again_ = true;
  wait(0, deadline_after(steady_clock().now(), target_.servers->jittered(pause_)));
}

void ProxyCall::wait(std::uint64_t answer, TimePoint until) {
  agent_->starter.loop().dispatch(
      [self = shared_from_this(), answer, until = std::min(until, deadline_)]() mutable {
        Discovery& discovery = self->agent_->discovery;
        if (self->cancelled()) until = self->agent_->starter.loop().now();
        const auto servers = self->target_.servers;
        discovery.wait(std::move(self), servers, answer, until);
      });
}

Status ProxyCall::no_server() const {
  const std::string knows =
      str(" in scope \"", agent_->scope, "\": ", agent_->ctrl_url, " ", target_.servers->knowledge());
  const std::string service = str("service \"", target_.servers->service(), "\"");
  if (last_.ok()) return Status(Code::kUnavailable, str(service, " has no live server", knows));
  // These codes come from live servers: returns the last one, which tells the caller whether to
  // back off or to get rights.
  const bool alive = last_.code() == Code::kResourceExhausted || last_.code() == Code::kPermissionDenied ||
                     last_.code() == Code::kUnauthenticated || last_.code() == Code::kUnimplemented;
  return Status(alive ? last_.code() : Code::kUnavailable,
                str(service, alive ? " has no server that takes the call" : " has no live server", knows,
                    "; the last one tried: ", last_.text()));
}

}  // namespace slime::agent
