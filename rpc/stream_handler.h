#pragma once

// Included by rpc/typed_handler.h: handlers that stream.

#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "rpc/typed_handler.h"

namespace slime::rpc {

template <class In, class Out, class R>
class ServerStream;

}  // namespace slime::rpc

namespace slime::rpc::detail {

template <class F, class Return, bool kOwns, class In, class Out, class R, class... A>
class StreamHandler {
  static_assert((kIsArgument<A> && ...), "handler arguments are values or const references");
  static_assert(!kOwns || std::is_void_v<Return>, "a handler that owns its stream answers by it");
  static_assert(!kOwns || ((!std::is_same_v<std::remove_cvref_t<A>, std::string_view> &&
                            !std::is_same_v<std::remove_cvref_t<A>, Bytes>)&&...),
                "a handler that owns its stream outlives the bytes of its request: take copies");

 public:
  explicit StreamHandler(F handler) : handler_(std::move(handler)) {}

  static MethodInfo info() {
    MethodInfo out;
    (out.parameters.push_back({.type = wire_type<std::remove_cvref_t<A>>()}), ...);
    if constexpr (kOwns) {
      out.result = wire_type<R>();
    } else if constexpr (IsResult<Return>::value) {
      out.result = wire_type<typename IsResult<Return>::Value>();
    } else {
      out.result = wire_type<std::remove_cvref_t<Return>>();
    }
    if constexpr (kStreams<In>) out.reads = wire_type<In>();
    if constexpr (kStreams<Out>) out.writes = wire_type<Out>();
    return out;
  }

  void operator()(Request&& request) {
    const CallInfo& info = request.info();
    std::shared_ptr<StreamEnd> end = request.stream();
    if (end == nullptr) {
      const bool over = request.cancelled();
      request.refuse(over ? Status(Code::kCancelled, "nobody waits for the stream any more")
                          : Status(Code::kInvalidArgument,
                                   str(info.service, ".", info.method, " streams: call it as a stream")));
      return;
    }
    auto arguments = decode_arguments<std::remove_cvref_t<A>...>(
        request.body(), str(info.service, ".", info.method), request.attachments());
    if (!arguments) {
      request.refuse(std::move(arguments).error());
      return;
    }
    if constexpr (kOwns) {
      request.payload().release();
      // If the handler throws, the stream is destroyed, which answers kInternal.
      std::apply(
          [&](auto&... each) {
            handler_(ServerStream<In, Out, R>(std::move(request), std::move(end)),
                     std::forward<pass<A>>(each)...);
          },
          *arguments);
    } else {
      ServerStream<In, Out, R> stream(std::move(request), std::move(end));
      Attachments attachments;
      Result<ByteVector> outcome = invoke(stream, *arguments, &attachments);
      if (outcome) {
        stream.request().attach(std::move(attachments));
        stream.request().reply(std::move(*outcome));
      } else {
        stream.request().fail(std::move(outcome).error());
      }
    }
  }

 private:
  template <class Arg>
  using pass = std::conditional_t<std::is_reference_v<Arg>, Arg, std::remove_cv_t<Arg>>;

  template <class Values>
  Result<ByteVector> invoke(ServerStream<In, Out, R>& stream, Values& values, Attachments* attachments) {
    return catch_thrown(stream.info(), [&] {
      return std::apply(
          [&](auto&... each) {
            return encode_outcome<Return>(
                [&]() -> Return { return handler_(stream, std::forward<pass<A>>(each)...); }, attachments);
          },
          values);
    });
  }

  F handler_;
};

template <class F, class Return, class In, class Out, class R, class... Rest>
struct MakeTyped<F, Return, std::tuple<ServerStream<In, Out, R>&, Rest...>> {
  using Type = StreamHandler<F, Return, false, In, Out, R, Rest...>;
};
template <class F, class Return, class In, class Out, class R, class... Rest>
struct MakeTyped<F, Return, std::tuple<ServerStream<In, Out, R>, Rest...>> {
  using Type = StreamHandler<F, Return, true, In, Out, R, Rest...>;
};

}  // namespace slime::rpc::detail
