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

// A stream is a call with messages between its request and its reply, in one or both directions.
// `In` is the type of the messages that the method reads, `Out` the type of the messages that it
// writes; None means no messages. Arguments and result may have attachments; a message with an
// attachment does not compile.
//
// A writer is at most a window (StreamOptions) of messages ahead of its reader: the future of
// write() is done when the message is accepted.
namespace slime::rpc {

namespace detail {

// Completes `promise` with the message `next`. The thread that takes the future's value decodes the
// message; if the value is never taken, the message is given back. `code`: error code for a message
// that does not convert to T.
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

// The caller's side of a stream. Movable. The destructor cancels the stream if finish() was not
// called. Thread: any; at any time one thread may read and one may write, because the order of the
// calls is the order of the messages.
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
  // next write(). Fails when the stream has ended; the future of finish() has the reason.
  Future<None> write(const In& message) requires(detail::kStreams<In>) {
    return end_->write(encode_value(message));
  }
  // Reads the next message; nullopt after the last message if the method has ended with OK. If the
  // method has failed, its error follows all its messages. If the future is dropped or cancelled,
  // its message goes back to the stream, for the next read().
  Future<std::optional<Out>> read() requires(detail::kStreams<Out>) {
    return detail::decode_message<Out>(end_->read(), Code::kInternal);
  }
  void close_writing() { end_->close_writing(); }
  // Closes writing, and returns the future of the method's result, which ends the stream. Messages
  // can still be read; a method that writes more than the window waits until they are read. The
  // destructor drops unread messages.
  Future<R> finish() {
    finishing_ = true;
    end_->close_writing();
    return decode_future<R>(result_);
  }
  // Ends the stream on both sides, with the error kCancelled.
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

// The method's side of a stream. A handler that takes the stream by reference returns the result,
// like a plain handler; it runs on the pool and may wait. A handler that takes the stream by value
// keeps it, and calls finish() or fail() later, on any thread. Inline handlers need that, because
// they must not wait but use then() or co_await. The destructor of an unfinished stream answers
// kInternal. Reads and writes fail when the stream has ended.
template <class In, class Out, class R = None>
class ServerStream {
 public:
  ServerStream(Request&& request, std::shared_ptr<StreamEnd> end)
      : request_(std::move(request)), end_(std::move(end)) {
    if constexpr (detail::kStreams<In>) end_->start_reading();
  }
  ServerStream(ServerStream&&) noexcept = default;
  ServerStream& operator=(ServerStream&&) = delete;

  // Reads the next message; nullopt after the caller's last message. If the future is dropped or
  // cancelled, its message goes back to the stream, for the next read().
  Future<std::optional<In>> read() requires(detail::kStreams<In>) {
    return detail::decode_message<In>(end_->read(), Code::kInvalidArgument);
  }
  // Writes a message. Wait for the future, which is done when the message is accepted, before the
  // next write().
  Future<None> write(const Out& message) requires(detail::kStreams<Out>) {
    return end_->write(encode_value(message));
  }
  // Tells the caller that no more messages follow, although the method has not ended yet.
  void close_writing() { end_->close_writing(); }

  [[nodiscard]] const CallInfo& info() const { return request_.info(); }
  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] Request& request() { return request_; }

  // finish() and fail() end a stream that its handler owns: call one of them, once. The result of
  // finish() follows the written messages; the error of fail() does not wait for them.
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
