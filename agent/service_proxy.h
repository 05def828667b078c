#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "agent/info.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/future.h"
#include "base/result.h"
#include "rpc/attachment.h"
#include "rpc/codec.h"
#include "rpc/interceptor.h"
#include "rpc/payload.h"
#include "rpc/reflection.h"
#include "rpc/signature.h"
#include "rpc/stream.h"

namespace slime {

class PeerAgentImpl;
namespace agent {
struct CallingAgent;
class ServerPool;
struct Favorite;
}  // namespace agent

// This side of a stream with encoded messages, and the future of the method's result.
using RawStream = std::pair<std::shared_ptr<rpc::StreamEnd>, Future<rpc::Payload>>;

// How a proxy chooses the server of a call.
enum class Balance : std::uint8_t {
  kRoundRobin,     // one server after the other
  kLeastInFlight,  // the server with the fewest calls of this agent in flight; among equals in turn
  // the same server until it fails; with a key, the server that the key's hash selects
  kSticky,
};

// Limits how often a call is tried again after an attempt that may have executed it.
struct RetryPolicy {
  int attempts = 3;  // attempts that may have executed the call, including the first
  // Pause before the second attempt. Doubled before each further attempt, up to backoff_max; each
  // pause is shortened by up to half at random.
  Nanos backoff = std::chrono::milliseconds(20);
  Nanos backoff_max = std::chrono::seconds(1);
  Nanos attempt_timeout{};  // timeout of one attempt; zero: the rest of the call's timeout
  [[nodiscard]] Status validate() const;
};

struct ProxyOptions {
  Balance policy = Balance::kLeastInFlight;
  // For kSticky. All callers send calls with the same key to the same server, as long as it is
  // live. When a server comes or goes, only keys of that server move. Empty: the proxy chooses a
  // server.
  std::string key{};
  // true: executing a method twice does no harm, so calls are repeated as `retry` says. false: a
  // call that may have been executed is never repeated.
  bool idempotent = false;
  RetryPolicy retry{};
  Nanos timeout{};  // default timeout of a call; zero: the agent's default
  // calls wait for a server until their timeout, instead of failing fast
  bool wait_for_ready = false;
  [[nodiscard]] Status validate() const;
};

// The calls of a ServiceProxy with arguments and results as encoded bytes; see ServiceProxy::raw().
// Thread: any.
class RawServiceProxy {
 public:
  // Like the functions of RawPeer with these names, but call any live server of the service.
  Future<rpc::Payload> call(std::string_view method, ByteVector arguments, Nanos timeout = {}) const {
    return call_attached(method, {std::move(arguments)}, timeout);
  }
  Future<rpc::Payload> call_attached(std::string_view method, rpc::AttachedBody request,
                                     Nanos timeout = {}) const;
  Future<None> one_way(std::string_view method, ByteVector arguments, Nanos timeout = {}) const {
    return one_way_attached(method, {std::move(arguments)}, timeout);
  }
  Future<None> one_way_attached(std::string_view method, rpc::AttachedBody request, Nanos timeout = {}) const;
  // Always end with kUnimplemented: a stream needs one peer, not any server.
  RawStream stream(std::string_view method, ByteVector arguments, bool reads, Nanos timeout = {}) const {
    return stream_attached(method, {std::move(arguments)}, reads, timeout);
  }
  RawStream stream_attached(std::string_view method, const rpc::AttachedBody& request, bool reads,
                            Nanos timeout = {}) const;

 private:
  friend class ServiceProxy;
  RawServiceProxy() = default;
  [[nodiscard]] Future<rpc::Payload> start(rpc::CallKind kind, std::string_view service,
                                           std::string_view method, rpc::AttachedBody request,
                                           Nanos timeout) const;

  std::shared_ptr<agent::CallingAgent> agent_;
  std::shared_ptr<agent::ServerPool> servers_;
  std::shared_ptr<agent::Favorite> favorite_;
  std::shared_ptr<const ProxyOptions> options_;
  std::shared_ptr<const rpc::CallSettings> settings_;  // null: none
  rpc::Signature signature_;
  std::string service_;
};

// Calls a service at any server in the agent's scope. Each call goes to a live server; a call that
// was certainly not executed goes to the next server, within the call's timeout. nanoctrl lists the
// servers: the agent asks it on first use, then updates the list in the background. A server that
// failed is avoided for a short while. A server that lets calls time out and answers none is
// ejected, each time for longer. Cheap to copy; copies share the list. Thread: any.
//
// Errors, besides those of a Peer's calls: kUnavailable when no server is left (nothing was
// executed), kInvalidArgument for an agent without ctrl_url.
class ServiceProxy : private RawServiceProxy {
 public:
  ServiceProxy() = default;

  // Like Peer::call(): call<int>("add", 1, 2).
  template <class R, class... A>
  Future<typename rpc::detail::ValueOf<R>::Type> call(std::string_view method, const A&... args) const {
    return rpc::decode_future<R>(call_attached(method, rpc::encode_attached_arguments(args...)));
  }
  // Like Peer::call_bytes().
  Future<rpc::Payload> call_bytes(std::string_view method, ByteVector body, Nanos timeout = {}) const {
    return call_attached(method, {.body = std::move(body), .raw = true}, timeout);
  }
  Future<None> one_way_bytes(std::string_view method, ByteVector body, Nanos timeout = {}) const {
    return one_way_attached(method, {.body = std::move(body), .raw = true}, timeout);
  }
  // Like Peer::one_way(). The future is done once the request has left to a live server. Never
  // sends the request twice.
  template <class... A>
  Future<None> one_way(std::string_view method, const A&... args) const {
    return one_way_attached(method, rpc::encode_attached_arguments(args...));
  }
  // Returns the functions for encoded arguments. The reference is valid as long as this proxy; a
  // copy of the RawServiceProxy is independent.
  [[nodiscard]] const RawServiceProxy& raw() const { return *this; }
  // Asks a live server to describe the service (rpc/reflection.h).
  [[nodiscard]] Future<rpc::ServiceInfo> describe(Nanos timeout = {}) const;

  // Return a copy of this proxy with another option.
  [[nodiscard]] ServiceProxy with_timeout(Nanos timeout) const;
  [[nodiscard]] ServiceProxy wait_for_ready() const;
  [[nodiscard]] ServiceProxy idempotent(RetryPolicy retry = {}) const;
  [[nodiscard]] ServiceProxy with_key(std::string key) const;
  // Like the functions of Peer with these names. Each server that a call is tried with gets the
  // metadata, the timing covers all attempts together, and interceptors see the call once.
  [[nodiscard]] ServiceProxy with_signature(const rpc::Signature& signature) const;
  [[nodiscard]] ServiceProxy with_metadata(std::string_view key, std::string_view value,
                                           rpc::Need need = rpc::Need::kRequired) const;
  [[nodiscard]] ServiceProxy with_timing(std::shared_ptr<rpc::CallTiming> into) const;
  [[nodiscard]] ServiceProxy with_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor) const;

  [[nodiscard]] const std::string& service() const { return service_; }
  // Returns the servers that the agent knows, with the numbers of calls to each.
  [[nodiscard]] ProxyInfo info() const;

 private:
  friend class PeerAgentImpl;
  ServiceProxy(std::shared_ptr<agent::CallingAgent> agent, std::shared_ptr<agent::ServerPool> servers,
               std::string service, ProxyOptions options);
  [[nodiscard]] ServiceProxy with(ProxyOptions options) const;
  [[nodiscard]] ServiceProxy with_settings(std::shared_ptr<const rpc::CallSettings> settings) const;
};

}  // namespace slime
