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

// What calls of every kind are: names, the request of their kind, and those who see the call on its way.
template <class T>
class CallOf : public ResultOperation<T> {
 public:
  CallOf(std::shared_ptr<Driver> driver, std::string service, std::string method)
      : ResultOperation<T>(std::move(driver)), service_(std::move(service)), method_(std::move(method)) {}
  void fail(Status reason) final;
  // What the caller takes the method for. Before it is submitted.
  void take_for(const rpc::Signature& signature) { signature_ = signature; }
  // Somebody sees the call, or it has more than arguments. Before it is submitted.
  void watch(std::unique_ptr<rpc::InterceptedCall> intercepted) { intercepted_ = std::move(intercepted); }
  // Shows it to the interceptors, as a call of `peer`: with what to refuse it. Before it is submitted.
  Status show(std::string_view peer, const rpc::CallSettings* settings,
              const std::vector<std::shared_ptr<rpc::ClientInterceptor>>& common);
  [[nodiscard]] std::string describe() const final;

 protected:
  [[nodiscard]] virtual rpc::CallKind kind() const { return rpc::CallKind::kPlain; }
  [[nodiscard]] virtual const rpc::Attachments* attachments() const { return nullptr; }
  // It has failed before the channel had it, which ends what is the channel's otherwise.
  virtual void drop(const Status&) {}
  [[nodiscard]] rpc::CallSpec spec() const {
    return {service_, method_, this->deadline, intercepted_ ? intercepted_->context() : nullptr,
            signature_.hash()};
  }
  // What the channel tells how it ended.
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

// One that may have attachments beside its arguments.
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

// Or memory for those of its reply.
class AttachedCall final : public AttachedOf<Payload> {
 public:
  using AttachedOf::AttachedOf;
  void start(Session& session) override;
};

// A call whose answer nobody wants: ends when it has left.
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
  // `total`: deadline of the whole stream; zero: none. Call before submit().
  void set_bounds(Nanos total, Nanos idle_timeout) {
    total_ = total;
    idle_timeout_ = idle_timeout;
  }
  void start(Session& session) override;
  [[nodiscard]] std::size_t weight() const override { return 0; }  // it may go on for ever

 private:
  [[nodiscard]] rpc::CallKind kind() const override { return rpc::CallKind::kStream; }
  void drop(const Status& reason) override { stream_->stop(reason); }
  const std::shared_ptr<rpc::StreamEnd> stream_;
  Nanos total_{};
  Nanos idle_timeout_{};
};

}  // namespace slime::agent
