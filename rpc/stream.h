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

// Streams: a call between whose request and answer messages go, in one or in both directions. Of a method
// that streams, `In` is what it reads and `Out` what it writes; None: it does not. Arguments and result may
// have attachments, messages may not: writing one that has does not compile.
//
// Who writes faster than the other side reads waits: write() is done once its message is accepted, and
// between writer and reader there is no more than the reader's window (StreamOptions).
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

// The caller's side. Movable. Dropping it cancels the stream if finish() was not called. Thread: any, but
// writes come in the order of calls and reads too, so each direction is used by one thread at a time.
template <class In, class Out, class R = None>
class Stream {
 public:
  Stream() = default;
  // `result` is the call's.
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

  // Done once it is accepted: wait for that before the next one. An error once the stream is over; why it is
  // over, finish() says.
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
  // The method's result, which ends the stream; closes writing. What is not read yet can still be read, and a
  // method that writes more than the window waits for that; once this object is gone it is dropped.
  Future<R> finish() {
    finishing_ = true;
    end_->close_writing();
    return decode_future<R>(result_);
  }
  // Ends it now, on both sides, with kCancelled; the handler is told.
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

// The method's side. A handler that takes it by reference returns the result, as plain ones do; it runs on
// the pool and may wait. One that takes it by value keeps it, and calls finish() or fail() when it likes,
// from any thread: for inline handlers, which never wait but use then() or co_await. Dropped without that, it
// answers kInternal. Reads and writes end with an error once nobody waits for the stream any more.
template <class In, class Out, class R = None>
class ServerStream {
 public:
  ServerStream(Request&& request, std::shared_ptr<StreamEnd> end)
      : request_(std::move(request)), end_(std::move(end)) {
    if constexpr (detail::kStreams<In>) end_->start_reading();
  }
  ServerStream(ServerStream&&) noexcept = default;
  ServerStream& operator=(ServerStream&&) = delete;

  // Reads the next message; nullopt after the caller's last one. Given up like Stream::read().
  Future<std::optional<In>> read() requires(detail::kStreams<In>) {
    return detail::decode_message<In>(end_->read(), Code::kInvalidArgument);
  }
  // Done once it is accepted: wait for that before the next one.
  Future<None> write(const Out& message) requires(detail::kStreams<Out>) {
    return end_->write(encode_value(message));
  }
  // The caller reads the end now, before the method has.
  void close_writing() { end_->close_writing(); }

  [[nodiscard]] const CallInfo& info() const { return request_.info(); }
  [[nodiscard]] const Request& request() const { return request_; }
  [[nodiscard]] Request& request() { return request_; }

  // Of handlers that own it, once. The result follows all that was written; an error does not wait for it.
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
