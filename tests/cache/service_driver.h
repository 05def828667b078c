#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "cache/service.h"
#include "rpc/codec.h"
#include "rpc/service.h"

namespace slime::cache {

// Calls the methods of a CacheService as a server of requests would, in the caller's thread.
class ServiceDriver {
 public:
  ServiceDriver(StoreOptions options, bool verify_on_seal, Bytes arena, const Clock& clock)
      : cache(std::make_shared<CacheService>(options, verify_on_seal, clock)) {
    SLIME_CHECK(cache->add_methods(service_, arena).ok());
  }

  Result<ByteVector> call_raw(std::string_view method, ByteVector body, std::uint64_t connection) {
    const auto found = service_.methods().find(method);
    SLIME_CHECK(found != service_.methods().end());
    std::optional<Result<ByteVector>> reply;
    rpc::CallInfo info(
        std::make_shared<rpc::CallNames>(rpc::CallNames{"client", "cache", std::string(method)}));
    info.connection = connection;
    found->second->handler(
        rpc::Request(std::move(info), Payload(std::move(body)), std::make_shared<Keep>(reply)));
    SLIME_CHECK(reply.has_value());
    return std::move(*reply);
  }
  template <class R, class... A>
  Result<R> call(std::uint64_t connection, std::string_view method, const A&... arguments) {
    auto reply = call_raw(method, rpc::encode_arguments(arguments...), connection);
    if (!reply) return std::move(reply).error();
    return rpc::decode_value<R>(*reply);
  }
  [[nodiscard]] const auto& methods() const { return service_.methods(); }

  const std::shared_ptr<CacheService> cache;

 private:
  using Payload = rpc::Payload;
  class Keep final : public rpc::Request::Responder {
   public:
    explicit Keep(std::optional<Result<ByteVector>>& out) : out_(out) {}
    void respond(std::uint64_t, Result<ByteVector>&& reply) noexcept override {
      out_.emplace(std::move(reply));
    }
    void attach(std::uint64_t, rpc::Attachments) override {}
    [[nodiscard]] bool cancelled(std::uint64_t, TimePoint) const noexcept override { return false; }
    void on_cancel(std::uint64_t, Task) override {}

   private:
    std::optional<Result<ByteVector>>& out_;
  };

  rpc::Service service_{wire::kService};
};

}  // namespace slime::cache
