#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/operations/operations.h"
#include "rpc/attachment.h"
#include "rpc/channel.h"
#include "rpc/interceptor.h"
#include "rpc/signature.h"
#include "rpc/stream/stream_end.h"

namespace slime::agent {

// Common part of all kinds of calls: the names, the request, and the interceptors that see the
// call.
template <class T>
class CallOf : public ResultOperation<T> {
 public:
  CallOf(std::shared_ptr<Driver> driver, std::string service, std::string method)
      : ResultOperation<T>(std::move(driver)), service_(std::move(service)), method_(std::move(method)) {}
  void fail(Status reason) final;
  // Sets the signature that the server's method must match. Call before submitting.
  void take_for(const rpc::Signature& signature) { signature_ = signature; }
  // Sets the object that runs the interceptors of the call, or carries its metadata and timing.
  // Call before submitting.
  void watch(std::unique_ptr<rpc::InterceptedCall> intercepted) { intercepted_ = std::move(intercepted); }
  // Runs the interceptors for this call to `peer`: `common`, then those of `settings`. Returns the
  // error of an interceptor that refuses the call. Call before submitting.
  Status show(std::string_view peer, const rpc::CallSettings* settings,
              const std::vector<std::shared_ptr<rpc::ClientInterceptor>>& common);
  [[nodiscard]] std::string describe() const final;

 protected:
  [[nodiscard]] virtual rpc::CallKind kind() const { return rpc::CallKind::kPlain; }
  [[nodiscard]] virtual const rpc::Attachments* attachments() const { return nullptr; }
  // Releases what the channel would release otherwise. Called if the call fails before it reaches
  // the channel.
  virtual void drop(const Status&) {}
  [[nodiscard]] rpc::CallSpec spec() const {
    return {service_, method_, this->deadline, intercepted_ ? intercepted_->context() : nullptr,
            signature_.hash()};
  }
  // Returns the channel's completion callback.
  [[nodiscard]] auto ended() {
    return [self = std::static_pointer_cast<CallOf>(this->shared_from_this())](Result<T> outcome) {
      self->end(std::move(outcome));
    };
  }
  void end(Result<T> outcome);
  rpc::Ticket ticket_;

 private:
  void cancel_started(Session& session) final;
  const std::string service_;
  const std::string method_;
  rpc::Signature signature_;
  std::unique_ptr<rpc::InterceptedCall> intercepted_;
};
extern template class CallOf<Payload>;
extern template class CallOf<None>;

class CallOperation final : public CallOf<Payload> {
 public:
  CallOperation(std::shared_ptr<Driver> driver, std::string service, std::string method, ByteVector arguments)
      : CallOf(std::move(driver), std::move(service), std::move(method)), arguments_(std::move(arguments)) {}
  void start(Session& session) override;

 private:
  ByteVector arguments_;
};

// A call that may have attachments beside its arguments.
template <class T>
class AttachedOf : public CallOf<T> {
 public:
  AttachedOf(std::shared_ptr<Driver> driver, std::string service, std::string method,
             rpc::AttachedBody request)
      : CallOf<T>(std::move(driver), std::move(service), std::move(method)), request_(std::move(request)) {}

 protected:
  [[nodiscard]] const rpc::Attachments* attachments() const final { return &request_.attachments; }
  rpc::AttachedBody request_;
};

// A call with attachments, or with memory for the attachments of its reply.
class AttachedCall final : public AttachedOf<Payload> {
 public:
  using AttachedOf::AttachedOf;
  void start(Session& session) override;
};

// A call without an answer: ends when its request has left.
class OneWayOperation final : public AttachedOf<None> {
 public:
  using AttachedOf::AttachedOf;
  void start(Session& session) override;

 private:
  [[nodiscard]] rpc::CallKind kind() const override { return rpc::CallKind::kOneWay; }
};

class StreamOperation final : public AttachedOf<Payload> {
 public:
  StreamOperation(std::shared_ptr<Driver> driver, std::string service, std::string method,
                  rpc::AttachedBody request, std::shared_ptr<rpc::StreamEnd> stream)
      : AttachedOf(std::move(driver), std::move(service), std::move(method), std::move(request)),
        stream_(std::move(stream)) {}
  // `total`: longest time of the whole stream; zero: no limit. Call before submitting.
  void set_bounds(Nanos total, Nanos idle_timeout) {
    total_ = total;
    idle_timeout_ = idle_timeout;
  }
  void start(Session& session) override;
  [[nodiscard]] std::size_t weight() const override { return 0; }  // a stream may be endless

 private:
  [[nodiscard]] rpc::CallKind kind() const override { return rpc::CallKind::kStream; }
  void drop(const Status& reason) override { stream_->stop(reason); }
  const std::shared_ptr<rpc::StreamEnd> stream_;
  Nanos total_{};
  Nanos idle_timeout_{};
};

}  // namespace slime::agent
