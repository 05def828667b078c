#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "agent/peer_agent.h"
#include "agent/service_proxy.h"

namespace slime {

// The client of a service that code made by `slime stubs` uses: calls one peer, or any live server.
// A cheap value. Thread: any.
class Stub {
 public:
  Stub(std::string service, Peer peer) : service_(std::move(service)), at_(std::move(peer)) {}
  explicit Stub(ServiceProxy proxy) : service_(proxy.service()), at_(std::move(proxy)) {}

  // This stub, for calls of one method, which is taken for this: rpc/signature.h.
  [[nodiscard]] Stub with_signature(const rpc::Signature& signature) const {
    Stub out = *this;
    std::visit([&](auto& at) { at = at.with_signature(signature); }, out.at_);
    return out;
  }
  template <class R, class... A>
  Future<typename rpc::detail::ValueOf<R>::Type> call(std::string_view method, const A&... arguments) {
    return rpc::decode_future<R>(call_raw(method, arguments...));
  }
  // The result as it is on the wire.
  template <class... A>
  Future<Payload> call_raw(std::string_view method, const A&... arguments) {
    rpc::AttachedBody request = rpc::encode_attached_arguments(arguments...);
    if (auto* const peer = std::get_if<Peer>(&at_))
      return peer->call_attached(service_, method, std::move(request));
    return std::get<ServiceProxy>(at_).call_attached(method, std::move(request));
  }
  // Of a method of bytes.
  Future<Payload> call_bytes(std::string_view method, ByteVector body) {
    if (auto* const peer = std::get_if<Peer>(&at_))
      return peer->call_bytes(service_, method, std::move(body));
    return std::get<ServiceProxy>(at_).call_bytes(method, std::move(body));
  }
  // Of methods that stream, to the one peer: through a proxy it ends with kUnimplemented.
  template <class In, class Out, class R, class... A>
  rpc::Stream<In, Out, R> stream(std::string_view method, const A&... arguments) {
    auto [end, result] =
        open(method, rpc::encode_attached_arguments(arguments...), rpc::detail::kStreams<Out>);
    return {std::move(end), std::move(result)};
  }
  // Its messages as they are on the wire: see Peer::stream_raw.
  template <class... A>
  std::pair<std::shared_ptr<rpc::StreamEnd>, Future<Payload>> stream_raw(std::string_view method,
                                                                         const A&... arguments) {
    return open(method, rpc::encode_attached_arguments(arguments...), true);
  }

 private:
  std::pair<std::shared_ptr<rpc::StreamEnd>, Future<Payload>> open(std::string_view method,
                                                                   rpc::AttachedBody request, bool reads) {
    if (auto* const peer = std::get_if<Peer>(&at_))
      return peer->stream_attached(service_, method, std::move(request), reads);
    const Status status(Code::kUnimplemented, "a stream goes to one peer, not to any server");
    auto end = std::make_shared<rpc::StreamEnd>(nullptr, reads);
    end->stop(status);
    return {std::move(end), Future<Payload>::ready(status)};
  }

  std::string service_;
  std::variant<Peer, ServiceProxy> at_;
};

}  // namespace slime
