#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "base/future.h"
#include "base/result.h"
#include "base/str.h"
#include "rpc/codec.h"
#include "rpc/service.h"
#include "rpc/stream/stream_end.h"

// Streams: a call with messages between its request and its reply, in one or both directions. `In`
// is the type of messages that the method reads and `Out` of those that it writes; None: no
// messages. Arguments and result may have attachments; a message with an attachment does not
// compile.
//
// A writer is at most a window (StreamOptions) ahead of its reader: write() is done when its
// message is accepted.
namespace slime::rpc {

namespace detail {

// Completes `promise` with the message. The thread that takes the value decodes it; an untaken
// message is given back. `code` is the error of a message that does not convert.
template <class T>
void complete_decoded(Promise<std::optional<T>>& promise, Result<StreamEnd::Message> next, Code code) {
  if (!next) {
    promise.complete(std::move(next).error());
  } else if (!*next) {
    promise.complete(std::optional<T>());
  } else {
    promise.complete_with([delivery = std::move(**next), code]() mutable -> Result<std::optional<T>> {
      const Payload message = delivery.take();
      auto value = decode_value<T>(message.bytes());
      if (value) return std::optional<T>(std::move(*value));
      return Status(code, str("bad message: ", value.error().text()));
    });
  }
}

template <class T>
Future<std::optional<T>> decode_message(Future<StreamEnd::Message> message, Code code) {
  Promise<std::optional<T>> promise(message.driver());
  if (message.done()) {
    complete_decoded(promise, message.wait(), code);
    return promise.owning_future();
  }
  auto future = promise.owning_future();
  promise.on_cancel([message]() mutable { message.cancel(); });
  std::move(message).then([promise = std::move(promise), code](Result<StreamEnd::Message> next) mutable {
    complete_decoded(promise, std::move(next), code);
  });
  return future;
}

}  // namespace detail

// The caller's side. Movable. The destructor cancels the stream if finish() was not called. Thread:
// any; one thread at a time for each direction, because the order of calls is the order of
// messages.
template <class In, class Out, class R = None>
class Stream {
 public:
  Stream() = default;
  // `result`: the result of the call.
  Stream(std::shared_ptr<StreamEnd> end, Future<Payload> result)
      : end_(std::move(end)), result_(std::move(result)) {
    if constexpr (!detail::kStreams<In>) end_->close_writing();
  }
  Stream(Stream&& other) noexcept = default;
  Stream& operator=(Stream&& other) noexcept {
    if (this != &other) {
      drop();
      end_ = std::move(other.end_);
      result_ = std::move(other.result_);
      finishing_ = other.finishing_;
    }
    return *this;
  }
  ~Stream() { drop(); }

  // Writes a message. Wait for the future, which is done when the message is accepted, before the
  // next write. Fails when the stream has ended; finish() returns the reason.
  Future<None> write(const In& message) requires(detail::kStreams<In>) {
    return end_->write(encode_value(message));
  }
  // Reads the next message; nullopt after the method has ended with OK. The error of a failed
  // method follows all its messages. Dropping or cancelling the future gives its message back, for
  // the next read.
  Future<std::optional<Out>> read() requires(detail::kStreams<Out>) {
    return detail::decode_message<Out>(end_->read(), Code::kInternal);
  }
  void close_writing() { end_->close_writing(); }
  // Closes writing and returns the method's result, which ends the stream. Messages can still be
  // read; a method that writes more than the window waits for that. The destructor drops unread
  // messages.
  Future<R> finish() {
    finishing_ = true;
    end_->close_writing();
    return decode_future<R>(result_);
  }
  // Ends the stream on both sides with kCancelled.
  void cancel() { result_.cancel(); }

 private:
  void drop() {
    if (end_ == nullptr) return;
    if (!finishing_) result_.cancel();
    end_->discard();
    end_.reset();
  }
  std::shared_ptr<StreamEnd> end_;
  Future<Payload> result_;
  bool finishing_ = false;
};

// The method's side. A handler that takes it by reference returns the result, like a plain handler;
// it runs on the pool and may wait. A handler that takes it by value keeps it and calls finish() or
// fail() later, on any thread: for inline handlers, which never wait but use then() or co_await.
// The destructor of an unfinished stream answers kInternal. Reads and writes fail when the stream
// has ended.
template <class In, class Out, class R = None>
class ServerStream {
 public:
  ServerStream(Request&& request, std::shared_ptr<StreamEnd> end)
      : request_(std::move(request)), end_(std::move(end)) {
    if constexpr (detail::kStreams<In>) end_->start_reading();
  }
  ServerStream(ServerStream&&) noexcept = default;
  ServerStream& operator=(ServerStream&&) = delete;

  // Reads the next message; nullopt after the caller's last one. Dropping or cancelling the future
  // works like for Stream::read().
  Future<std::optional<In>> read() requires(detail::kStreams<In>) {
    return detail::decode_message<In>(end_->read(), Code::kInvalidArgument);
  }
  // Writes a message. Wait for the future, which is done when the message is accepted, before the
  // next write.
  Future<None> write(const Out& message) requires(detail::kStreams<Out>) {
    return end_->write(encode_value(message));
  }
  // Tells the caller that no message follows, before the method ends.
  void close_writing() { end_->close_writing(); }

  [[nodiscard]] const CallInfo& info() const { return request_.info(); }
  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] Request& request() { return request_; }

  // Ends a stream that its handler owns; call one of them, once. A result follows the written
  // messages; an error does not wait for them.
  void finish(const R& result) {
    AttachedBody reply = encode_attached_value(result);
    request_.attach(std::move(reply.attachments));
    request_.reply(std::move(reply.body));
  }
  void fail(Status status) { request_.fail(std::move(status)); }

 private:
  Request request_;
  std::shared_ptr<StreamEnd> end_;
};

}  // namespace slime::rpc
