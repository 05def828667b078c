#pragma once

// Makes a RawHandler of a handler that takes and returns plain bytes. Included by
// rpc/typed_handler.h.

#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "rpc/typed_handler.h"

namespace slime::rpc::detail {

template <class F, class Return, Lead kLead>
class BytesHandler {
  static_assert(std::is_same_v<Return, ByteVector> || std::is_same_v<Return, Result<ByteVector>> ||
                    std::is_same_v<Return, Status> || std::is_void_v<Return>,
                "a method of bytes returns ByteVector, Result<ByteVector>, Status or void");

 public:
  explicit BytesHandler(F handler) : handler_(std::move(handler)) {}

  void operator()(Request&& request) {
    Result<ByteVector> outcome =
        catch_thrown(request.info(), [&]() -> Result<ByteVector> { return answer(request); });
    if (outcome) {
      request.reply(std::move(*outcome));
    } else {
      request.fail(std::move(outcome).error());
    }
  }

 private:
  Return invoke(const Request& request) {
    if constexpr (kLead == Lead::kInfo) {
      return handler_(request.info(), request.body());
    } else if constexpr (kLead == Lead::kRequest) {
      return handler_(request, request.body());
    } else {
      return handler_(request.body());
    }
  }
  Result<ByteVector> answer(const Request& request) {
    if constexpr (std::is_void_v<Return>) {
      invoke(request);
      return ByteVector();
    } else if constexpr (std::is_same_v<Return, Status>) {
      Status status = invoke(request);
      if (!status.ok()) return status;
      return ByteVector();
    } else {
      return invoke(request);
    }
  }

  F handler_;
};

template <class F, class Return, class Arguments>
struct MakeBytes {
  static_assert(sizeof(F) == 0, "a method of bytes takes Bytes, and before them a CallInfo or a Request");
};
template <class F, class Return, class Body>
struct MakeBytes<F, Return, std::tuple<Body>> {
  static_assert(std::is_same_v<std::remove_cvref_t<Body>, Bytes>, "a method of bytes takes Bytes");
  using Type = BytesHandler<F, Return, Lead::kNone>;
};
template <class F, class Return, class Body>
struct MakeBytes<F, Return, std::tuple<const Request&, Body>> : MakeBytes<F, Return, std::tuple<Body>> {
  using Type = BytesHandler<F, Return, Lead::kRequest>;
};
template <class F, class Return, class Body>
struct MakeBytes<F, Return, std::tuple<const CallInfo&, Body>> : MakeBytes<F, Return, std::tuple<Body>> {
  using Type = BytesHandler<F, Return, Lead::kInfo>;
};

}  // namespace slime::rpc::detail

namespace slime::rpc {

template <class F>
// NOLINTNEXTLINE(performance-unnecessary-value-param): moved when the template is instantiated
Status Service::add_bytes(std::string_view method, F handler, MethodOptions options) {
  using Of = detail::Signature<F>;
  using Handler = typename detail::MakeBytes<F, typename Of::Return, typename Of::Arguments>::Type;
  return add_typed(method, Handler(std::move(handler)), std::move(options), bytes_info());
}

}  // namespace slime::rpc
