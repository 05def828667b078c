#include "agent/service_proxy.h"

#include <chrono>
#include <utility>

#include "agent/services/proxy_call.h"
#include "base/str.h"
#include "ctrl/types.h"

namespace slime {

Status RetryPolicy::validate() const {
  if (attempts < 1) return {Code::kInvalidArgument, "retry.attempts must be at least 1"};
  if (backoff < Nanos::zero() || backoff_max < backoff)
    return {Code::kInvalidArgument, "retry.backoff must be from 0 to retry.backoff_max"};
  if (attempt_timeout < Nanos::zero())
    return {Code::kInvalidArgument, "retry.attempt_timeout must not be negative"};
  return {};
}

Status ProxyOptions::validate() const {
  if (!key.empty() && policy != Balance::kSticky)
    return {Code::kInvalidArgument, "a key has a meaning for Balance::kSticky only"};
  if (timeout < Nanos::zero()) return {Code::kInvalidArgument, "timeout must not be negative"};
  return retry.validate();
}

ServiceProxy::ServiceProxy(std::shared_ptr<agent::CallingAgent> agent,
                           std::shared_ptr<agent::ServerPool> servers, std::string service,
                           ProxyOptions options) {
  agent_ = std::move(agent);
  servers_ = std::move(servers);
  favorite_ = std::make_shared<agent::Favorite>();
  options_ = std::make_shared<const ProxyOptions>(std::move(options));
  service_ = std::move(service);
}

Future<rpc::Payload> RawServiceProxy::start(rpc::CallKind kind, std::string_view service,
                                            std::string_view method, rpc::AttachedBody request,
                                            Nanos timeout) const {
  if (!agent_)
    return Future<rpc::Payload>::ready(
        Status(Code::kInvalidArgument, "an empty proxy: get one from PeerAgent::proxy()"));
  Status problem = agent_->starter.refusal();
  if (problem.ok()) problem = ctrl::check_name("service", service_);
  if (problem.ok()) problem = options_->validate();
  if (problem.ok() && !agent_->discovery.usable())
    problem =
        Status(Code::kInvalidArgument, str("service \"", service_,
                                           "\": this agent has no registry to find servers in: set ctrl_url, "
                                           "or call a peer"));
  Nanos span = timeout == Nanos::zero() ? options_->timeout : timeout;
  if (span == Nanos::zero()) span = agent_->timeout;
  return std::make_shared<agent::ProxyCall>(
             agent_,
             agent::ProxyCall::Target{servers_, favorite_, options_, std::string(service),
                                      std::string(method), signature_},
             agent::ProxyCall::Request{kind, std::move(request), settings_}, span)
      ->start(std::move(problem));
}

Future<rpc::Payload> RawServiceProxy::call_attached(std::string_view method, rpc::AttachedBody request,
                                                    Nanos timeout) const {
  return start(rpc::CallKind::kPlain, service_, method, std::move(request), timeout);
}

Future<None> RawServiceProxy::one_way_attached(std::string_view method, rpc::AttachedBody request,
                                               Nanos timeout) const {
  return rpc::decode_future<void>(
      start(rpc::CallKind::kOneWay, service_, method, std::move(request), timeout));
}

RawStream RawServiceProxy::stream_attached(std::string_view, const rpc::AttachedBody&, bool reads,
                                           Nanos) const {
  const Status status(Code::kUnimplemented, "a stream goes to one peer, not to any server");
  auto end = std::make_shared<rpc::StreamEnd>(nullptr, reads);
  end->stop(status);
  return {std::move(end), Future<rpc::Payload>::ready(status)};
}

Future<rpc::ServiceInfo> ServiceProxy::describe(Nanos timeout) const {
  return rpc::decode_future<rpc::ServiceInfo>(with_signature({}).start(
      rpc::CallKind::kPlain, rpc::kReflectionService, "service", {rpc::encode_arguments(service_)}, timeout));
}

ServiceProxy ServiceProxy::with_signature(const rpc::Signature& signature) const {
  ServiceProxy out = *this;
  out.signature_ = signature;
  return out;
}

ServiceProxy ServiceProxy::with_settings(std::shared_ptr<const rpc::CallSettings> settings) const {
  ServiceProxy out = *this;
  out.settings_ = std::move(settings);
  return out;
}

ServiceProxy ServiceProxy::with_metadata(std::string_view key, std::string_view value, rpc::Need need) const {
  return with_settings(rpc::with_metadata(settings_, key, value, need));
}

ServiceProxy ServiceProxy::with_timing(std::shared_ptr<rpc::CallTiming> into) const {
  return with_settings(rpc::with_timing(settings_, std::move(into)));
}

ServiceProxy ServiceProxy::with_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor) const {
  return with_settings(rpc::with_interceptor(settings_, std::move(interceptor)));
}

ServiceProxy ServiceProxy::with(ProxyOptions options) const {
  ServiceProxy out = *this;
  out.options_ = std::make_shared<const ProxyOptions>(std::move(options));
  return out;
}

ServiceProxy ServiceProxy::with_timeout(Nanos timeout) const {
  ProxyOptions options = options_ ? *options_ : ProxyOptions();
  options.timeout = timeout;
  return with(std::move(options));
}

ServiceProxy ServiceProxy::wait_for_ready() const {
  ProxyOptions options = options_ ? *options_ : ProxyOptions();
  options.wait_for_ready = true;
  return with(std::move(options));
}

ServiceProxy ServiceProxy::idempotent(RetryPolicy retry) const {
  ProxyOptions options = options_ ? *options_ : ProxyOptions();
  options.idempotent = true;
  options.retry = retry;
  return with(std::move(options));
}

ServiceProxy ServiceProxy::with_key(std::string key) const {
  ProxyOptions options = options_ ? *options_ : ProxyOptions();
  options.key = std::move(key);
  return with(std::move(options));
}

ProxyInfo ServiceProxy::info() const {
  ProxyInfo out{.service = service_, .servers = {}};
  if (!agent_ || agent_->starter.forked()) return out;
  const TimePoint now = steady_clock().now();
  for (const agent::PooledServer& server : servers_->view())
    out.servers.push_back({.name = server.name,
                           .address = server.address,
                           .instance = server.instance,
                           .calls_in_flight = server.in_flight,
                           .calls = server.calls,
                           .ejections = server.ejections,
                           .avoided = server.avoided_until > now ? server.failure : Status()});
  return out;
}

}  // namespace slime
