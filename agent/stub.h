#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "agent/peer_agent.h"
#include "agent/service_proxy.h"

namespace slime {

// The calls of a Stub with arguments and results as encoded bytes; see Stub::raw(). Thread: any.
class RawStub {
 public:
  // Like the calls of RawPeer and RawServiceProxy.
  Future<Payload> call(std::string_view method, ByteVector arguments, Nanos timeout = {}) const {
    return call_attached(method, {std::move(arguments)}, timeout);
  }
  Future<Payload> call_attached(std::string_view method, rpc::AttachedBody request,
                                Nanos timeout = {}) const {
    if (const auto* const peer = std::get_if<Peer>(&at_))
      return peer->raw().call_attached(service_, method, std::move(request), timeout);
    return std::get<ServiceProxy>(at_).raw().call_attached(method, std::move(request), timeout);
  }
  Future<None> one_way(std::string_view method, ByteVector arguments, Nanos timeout = {}) const {
    return one_way_attached(method, {std::move(arguments)}, timeout);
  }
  Future<None> one_way_attached(std::string_view method, rpc::AttachedBody request,
                                Nanos timeout = {}) const {
    if (const auto* const peer = std::get_if<Peer>(&at_))
      return peer->raw().one_way_attached(service_, method, std::move(request), timeout);
    return std::get<ServiceProxy>(at_).raw().one_way_attached(method, std::move(request), timeout);
  }
  RawStream stream(std::string_view method, ByteVector arguments, bool reads, Nanos timeout = {}) const {
    return stream_attached(method, {std::move(arguments)}, reads, timeout);
  }
  RawStream stream_attached(std::string_view method, rpc::AttachedBody request, bool reads,
                            Nanos timeout = {}) const {
    if (const auto* const peer = std::get_if<Peer>(&at_))
      return peer->raw().stream_attached(service_, method, std::move(request), reads, timeout);
    return std::get<ServiceProxy>(at_).raw().stream_attached(method, std::move(request), reads, timeout);
  }

 private:
  friend class Stub;
  RawStub(std::string service, std::variant<Peer, ServiceProxy> at)
      : service_(std::move(service)), at_(std::move(at)) {}

  std::string service_;
  std::variant<Peer, ServiceProxy> at_;
};

// The client of one service: calls one peer, or any live server. Peer::proxy() returns a Stub, and
// code made by `slime stubs` uses one. Cheap to copy. Thread: any.
class Stub : private RawStub {
 public:
  Stub(std::string service, Peer peer) : RawStub(std::move(service), std::move(peer)) {}
  explicit Stub(const ServiceProxy& proxy) : RawStub(proxy.service(), proxy) {}

  [[nodiscard]] const std::string& service() const { return service_; }
  // Return a copy of this stub with another setting, as the functions of Peer with these names.
  [[nodiscard]] Stub with_timeout(Nanos timeout) const {
    return with([&](const auto& at) { return at.with_timeout(timeout); });
  }
  [[nodiscard]] Stub with_signature(const rpc::Signature& signature) const {
    return with([&](const auto& at) { return at.with_signature(signature); });
  }

  // Like Peer::call(): call<int>("add", 1, 2).
  template <class R, class... A>
  Future<typename rpc::detail::ValueOf<R>::Type> call(std::string_view method, const A&... arguments) const {
    return rpc::decode_future<R>(call_attached(method, rpc::encode_attached_arguments(arguments...)));
  }
  // As Peer::call_bytes().
  Future<Payload> call_bytes(std::string_view method, ByteVector body, Nanos timeout = {}) const {
    return call_attached(method, {.body = std::move(body), .raw = true}, timeout);
  }
  // As Peer::one_way().
  template <class... A>
  Future<None> one_way(std::string_view method, const A&... arguments) const {
    return one_way_attached(method, rpc::encode_attached_arguments(arguments...));
  }
  Future<None> one_way_bytes(std::string_view method, ByteVector body, Nanos timeout = {}) const {
    return one_way_attached(method, {.body = std::move(body), .raw = true}, timeout);
  }
  // Like Peer::stream(). A stream goes to one peer: through a ServiceProxy it ends with
  // kUnimplemented.
  template <class In, class Out, class R, class... A>
  rpc::Stream<In, Out, R> stream(std::string_view method, const A&... arguments) const {
    auto [end, result] =
        stream_attached(method, rpc::encode_attached_arguments(arguments...), rpc::detail::kStreams<Out>);
    return {std::move(end), std::move(result)};
  }
  // Returns the functions for encoded arguments. The reference is valid as long as this stub; a
  // copy of the RawStub is independent.
  [[nodiscard]] const RawStub& raw() const { return *this; }

 private:
  template <class Change>
  [[nodiscard]] Stub with(const Change& change) const {
    Stub out = *this;
    std::visit([&](auto& at) { at = change(at); }, out.at_);
    return out;
  }
};

}  // namespace slime
