#pragma once

// Makes a RawHandler of a plain function. Included by rpc/service.h.

#include <cstdint>
#include <exception>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "base/str.h"
#include "rpc/codec.h"
#include "rpc/service.h"
#include "rpc/type_names.h"

namespace slime::rpc::detail {

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};  // a lambda or function object
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Return = R;
  using Arguments = std::tuple<A...>;
};
template <class R, class... A>
struct Signature<R (*)(A...) noexcept> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...)> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) noexcept> : Signature<R (*)(A...)> {};
template <class C, class R, class... A>
struct Signature<R (C::*)(A...) const noexcept> : Signature<R (*)(A...)> {};

// True if a handler may have a parameter of type A: a value or a const reference. What a handler
// writes to a non-const reference would be lost.
template <class A>
inline constexpr bool kIsArgument = !std::is_pointer_v<std::remove_cvref_t<A>> &&
                                    (!std::is_reference_v<A> || std::is_const_v<std::remove_reference_t<A>>);

template <class T>
struct IsResult : std::false_type {};
template <class T>
struct IsResult<Result<T>> : std::true_type {
  using Value = T;
};

template <class T>
struct ReplyOf {
  using Type = std::remove_cvref_t<T>;
};
template <class T>
struct ReplyOf<Result<T>> : ReplyOf<T> {};
template <>
struct ReplyOf<void> : ReplyOf<None> {};
template <>
struct ReplyOf<Status> : ReplyOf<None> {};

// Encodes the result of a handler. Sets `attachments` if a value of type T may have attachments.
template <class T>
ByteVector encode_result(const T& value, [[maybe_unused]] Attachments* attachments) {
  if constexpr (kMayAttach<T>) {
    const AttachmentScope scope(*attachments);
    return pack_value<AttachingSink>(value);
  } else {
    return encode_value(value);
  }
}

// Calls the handler and encodes its result.
template <class Return, class Call>
Result<ByteVector> encode_outcome(Call&& call, [[maybe_unused]] Attachments* attachments) {
  if constexpr (std::is_void_v<Return>) {
    call();
    return encode_value(None{});
  } else if constexpr (std::is_same_v<Return, Status>) {
    Status status = call();
    if (!status.ok()) return status;
    return encode_value(None{});
  } else if constexpr (IsResult<Return>::value) {
    Return result = call();
    if (!result) return std::move(result).error();
    ByteVector encoded = encode_result(*result, attachments);
    give_value(*result);
    return encoded;
  } else {
    Return result = call();
    ByteVector encoded = encode_result(result, attachments);
    if constexpr (!std::is_reference_v<Return>) give_value(result);
    return encoded;
  }
}

// Runs a handler, and converts an exception to a kInternal error.
template <class Call>
Result<ByteVector> catch_thrown(const CallInfo& info, Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return Status(Code::kInternal, str(info.service, ".", info.method, " threw: ", error.what()));
  } catch (...) {
    return Status(Code::kInternal, str(info.service, ".", info.method, " threw"));
  }
}

// The handler's first parameter, if it is not an argument of the call: none, CallInfo or Request.
enum class Lead : std::uint8_t { kNone, kInfo, kRequest };

template <class F, class Return, Lead kLead, class... A>
class TypedHandler {
  static_assert((kIsArgument<A> && ...), "handler arguments are values or const references");

 public:
  explicit TypedHandler(F handler) : handler_(std::move(handler)) {}

  static MethodInfo info() {
    MethodInfo out;
    (out.parameters.push_back({.type = wire_type<std::remove_cvref_t<A>>()}), ...);
    if constexpr (IsResult<Return>::value) {
      out.result = wire_type<typename IsResult<Return>::Value>();
    } else {
      out.result = wire_type<std::remove_cvref_t<Return>>();
    }
    return out;
  }

  void operator()(Request&& request) {
    const CallInfo& info = request.info();
    auto arguments = decode(request, info);
    if (!arguments) {
      request.refuse(std::move(arguments).error());
      return;
    }
    [[maybe_unused]] std::conditional_t<kAttaches, Attachments, None> attachments;
    Attachments* to = nullptr;
    if constexpr (kAttaches) to = &attachments;
    Result<ByteVector> outcome = invoke(request, *arguments, to);
    std::apply([](auto&... each) { (give_value(each), ...); }, *arguments);
    if (outcome) {
      if constexpr (kAttaches) request.attach(std::move(attachments));
      request.reply(std::move(*outcome));
    } else {
      request.fail(std::move(outcome).error());
    }
  }

 private:
  using Values = std::tuple<std::remove_cvref_t<A>...>;

  static constexpr bool kAttaches = kMayAttach<typename ReplyOf<Return>::Type>;

  static Result<Values> decode(const Request& request, const CallInfo& info) {
    if (auto values = flat_arguments<std::remove_cvref_t<A>...>(request.body())) return std::move(*values);
    return decode_arguments<std::remove_cvref_t<A>...>(request.body(), str(info.service, ".", info.method),
                                                       request.attachments());
  }
  Result<ByteVector> invoke(const Request& request, Values& values, Attachments* attachments) {
    const CallInfo& info = request.info();
    return catch_thrown(info, [&] {
      return std::apply(
          [&](auto&... each) {
            const auto call = [&]() -> Return {
              if constexpr (kLead == Lead::kInfo) {
                return handler_(info, std::forward<pass<A>>(each)...);
              } else if constexpr (kLead == Lead::kRequest) {
                return handler_(request, std::forward<pass<A>>(each)...);
              } else {
                return handler_(std::forward<pass<A>>(each)...);
              }
            };
            return encode_outcome<Return>(call, attachments);
          },
          values);
    });
  }
  // Type with which an argument is forwarded: moved into a parameter by value, otherwise by
  // reference.
  template <class Arg>
  using pass = std::conditional_t<std::is_reference_v<Arg>, Arg, std::remove_cv_t<Arg>>;

  F handler_;
};

template <class F, class Return, class Arguments>
struct MakeTyped;
template <class F, class Return>
struct MakeTyped<F, Return, std::tuple<>> {
  using Type = TypedHandler<F, Return, Lead::kNone>;
};
template <class F, class Return, class First, class... Rest>
struct MakeTyped<F, Return, std::tuple<First, Rest...>> {
  using Type = std::conditional_t<std::is_same_v<First, const Request&>,
                                  TypedHandler<F, Return, Lead::kRequest, Rest...>,
                                  std::conditional_t<std::is_same_v<std::remove_cvref_t<First>, CallInfo>,
                                                     TypedHandler<F, Return, Lead::kInfo, Rest...>,
                                                     TypedHandler<F, Return, Lead::kNone, First, Rest...>>>;
};
template <class F>
using TypedHandlerOf =
    typename MakeTyped<F, typename Signature<F>::Return, typename Signature<F>::Arguments>::Type;

}  // namespace slime::rpc::detail

namespace slime::rpc {

template <class F>
RawHandler Service::typed_handler(F handler) {
  return detail::TypedHandlerOf<F>(std::move(handler));
}

template <class F>
MethodInfo Service::typed_info() {
  return detail::TypedHandlerOf<F>::info();
}

}  // namespace slime::rpc

#include "rpc/bytes_handler.h"
#include "rpc/stream_handler.h"
