#include "agent/operations/calls.h"

#include <type_traits>

#include "agent/connecting/session.h"
#include "base/str.h"

namespace slime::agent {
namespace {

std::string_view name_of(rpc::CallKind kind) {
  switch (kind) {
    case rpc::CallKind::kOneWay:
      return "one-way call ";
    case rpc::CallKind::kStream:
      return "stream ";
    case rpc::CallKind::kPlain:
      break;
  }
  return "call ";
}

}  // namespace

template <class T>
std::string CallOf<T>::describe() const {
  return str(name_of(kind()), name().text());
}

template <class T>
Status CallOf<T>::show(std::string_view peer, const rpc::CallSettings* settings,
                       const std::vector<std::shared_ptr<rpc::ClientInterceptor>>& common) {
  watch(std::make_unique<rpc::InterceptedCall>(
      rpc::CallNamed{.peer = peer, .service = name().service(), .method = name().method(), .kind = kind()},
      settings, common));
  const rpc::Attachments* const beside = attachments();
  return intercepted_->begin(beside != nullptr ? std::span(*beside) : std::span<const Attachment>());
}

template <class T>
void CallOf<T>::fail(Status reason) {
  drop(reason);
  end(std::move(reason));
}

template <class T>
void CallOf<T>::end(Result<T>&& outcome) {
  // Copies a received payload out of its receive slot: the slot belongs to the port, which ends
  // with the agent, and a slot that the user keeps would hold up the peer.
  if constexpr (std::is_same_v<T, Payload>) {
    if (outcome) outcome->detach();
  }
  if (!outcome) outcome = signature_.explain(std::move(outcome).error());
  if (intercepted_) {
    if (!outcome) outcome = this->outcome(std::move(outcome).error());
    Status status = intercepted_->end(outcome.status(), steady_clock().now());
    if (!status.ok()) outcome = std::move(status);
  }
  this->conclude(std::move(outcome));
}

template <class T>
void CallOf<T>::cancel_started(Session& session) {
  session.channel().cancel(ticket_);
}

template class CallOf<Payload>;
template class CallOf<None>;

void CallOperation::start(Session& session) {
  run_on(session);
  ticket_ = session.channel().call(spec(), std::move(arguments_), ended());
}

void AttachedCall::start(Session& session) {
  run_on(session);
  ticket_ = session.channel().call_attached(spec(), std::move(request_), ended());
}

void OneWayOperation::start(Session& session) {
  run_on(session);
  ticket_ = session.channel().call_one_way(
      spec(), std::move(request_), [end = ended()](Status status) { end(none_or(std::move(status))); });
}

void StreamOperation::start(Session& session) {
  run_on(session);
  deadline = total_ == Nanos::zero() ? kNever : deadline_after(began, total_);
  rpc::CallSpec with_bounds = spec();
  with_bounds.idle_timeout = idle_timeout_;
  ticket_ = session.channel().stream(with_bounds, std::move(request_), stream_, ended());
}

}  // namespace slime::agent
