#pragma once

#include <array>
#include <cstddef>
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

// The names of a call as one text, "service.method". Names of usual length need no allocation.
class CallName {
 public:
  // Call once.
  void set(std::string_view service, std::string_view method) {
    service_bytes_ = service.size();
    bytes_ = service.size() + 1 + method.size();
    if (bytes_ > kInside) outside_ = std::make_unique<char[]>(bytes_);
    char* const to = outside_ ? outside_.get() : inside_.data();
    service.copy(to, service.size());
    to[service_bytes_] = '.';
    method.copy(to + service_bytes_ + 1, method.size());
  }
  [[nodiscard]] std::string_view text() const { return {outside_ ? outside_.get() : inside_.data(), bytes_}; }
  [[nodiscard]] std::string_view service() const { return text().substr(0, service_bytes_); }
  [[nodiscard]] std::string_view method() const { return text().substr(service_bytes_ + 1); }

 private:
  static constexpr std::size_t kInside = 64;
  std::array<char, kInside> inside_;  // initialized as far as it is used
  std::unique_ptr<char[]> outside_;   // longer names
  std::size_t service_bytes_ = 0;
  std::size_t bytes_ = 0;
};

// The future's part of the record of a call: keeps the names, which errors of the decoder need.
template <class T>
class CallState : public ResultState<T> {
 public:
  using ResultState<T>::ResultState;
  [[nodiscard]] std::string label() const override { return std::string(name.text()); }
  CallName name;  // set by the operation's constructor

 protected:
  ~CallState() = default;
};

// Common part of all kinds of calls: the names, the request, and the interceptors that see the
// call.
template <class T>
class CallOf : public ResultOperation<T> {
 public:
  using State = CallState<T>;
  CallOf(State& state, std::string_view service, std::string_view method) : ResultOperation<T>(state) {
    state.name.set(service, method);
  }
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
    return {name().service(), name().method(), this->deadline,
            intercepted_ ? intercepted_->context() : nullptr, signature_.hash()};
  }
  // Returns the channel's completion callback.
  [[nodiscard]] auto ended() {
    return [self = OperationPtr<CallOf>(this)](Result<T>&& outcome) { self->end(std::move(outcome)); };
  }
  void end(Result<T>&& outcome);
  rpc::Ticket ticket_;

 private:
  void cancel_started(Session& session) final;
  [[nodiscard]] const CallName& name() const { return static_cast<State&>(this->result_state()).name; }
  rpc::Signature signature_;
  std::unique_ptr<rpc::InterceptedCall> intercepted_;
};
extern template class CallOf<Payload>;
extern template class CallOf<None>;

class CallOperation final : public CallOf<Payload> {
 public:
  CallOperation(State& state, std::string_view service, std::string_view method, ByteVector arguments)
      : CallOf(state, service, method), arguments_(std::move(arguments)) {}
  void start(Session& session) override;

 private:
  ByteVector arguments_;
};

// A call that may have attachments beside its arguments.
template <class T>
class AttachedOf : public CallOf<T> {
 public:
  AttachedOf(CallState<T>& state, std::string_view service, std::string_view method,
             rpc::AttachedBody request)
      : CallOf<T>(state, service, method), request_(std::move(request)) {}

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
  StreamOperation(State& state, std::string_view service, std::string_view method, rpc::AttachedBody request,
                  std::shared_ptr<rpc::StreamEnd> stream)
      : AttachedOf(state, service, method, std::move(request)), stream_(std::move(stream)) {}
  // `total`: longest time of the whole stream; zero: no limit. Call before submitting.
  void set_bounds(Nanos total, Nanos idle_timeout) {
    total_ = total;
    idle_timeout_ = idle_timeout;
  }
  void start(Session& session) override;
  [[nodiscard]] bool counts() const override { return false; }  // a stream may be endless

 private:
  [[nodiscard]] rpc::CallKind kind() const override { return rpc::CallKind::kStream; }
  void drop(const Status& reason) override { stream_->stop(reason); }
  const std::shared_ptr<rpc::StreamEnd> stream_;
  Nanos total_{};
  Nanos idle_timeout_{};
};

}  // namespace slime::agent
