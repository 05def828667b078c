#include "kv/relay.h"

#include <tuple>
#include <utility>

#include "base/str.h"
#include "kv/outcome.h"
#include "kv/tree.h"
#include "rpc/codec.h"

namespace slime::kv {

Status Relay::serve(PeerAgent& agent, const std::string& service, const std::shared_ptr<Relay>& self) {
  rpc::Service out(service);
  SLIME_TRY(out.add_raw(
      "ready", [self](rpc::Request request) { self->ask(std::move(request)); },
      {.run = rpc::Run::kInline,
       .parameters = {"source", "version", "ticket", "known", "wait"},
       .doc = "The number of chunks that this reader has; waits until they are more than `known`."}));
  SLIME_TRY(out.add(
      "done",
      [self](const rpc::CallInfo& call, std::uint64_t ticket) { self->done(call.connection, ticket); },
      {.run = rpc::Run::kInline,
       .parameters = {"ticket"},
       .doc = "A child reads no more from this reader."}));
  SLIME_TRY(agent.serve(out));
  agent.on_disconnect([weak = std::weak_ptr(self)](const std::string&, std::uint64_t connection) {
    if (const auto relay = weak.lock()) relay->drop(connection);
  });
  return {};
}

void Relay::begin(const Offer& offer) {
  const MutexLock lock(mutex_);
  serving_ = true;
  source_ = offer.source;
  version_ = offer.version;
  ready_ = 0;
}

void Relay::advance(std::uint64_t ready) {
  std::vector<std::unique_ptr<rpc::Request>> answers;
  {
    const MutexLock lock(mutex_);
    ready_ = ready;
    for (auto& [ticket, child] : children_)
      if (child.waiting && child.known < ready) answers.push_back(std::move(child.waiting));
  }
  for (const auto& request : answers) request->reply(rpc::encode_value(ready));
}

void Relay::stop() {
  std::vector<std::unique_ptr<rpc::Request>> answers;
  {
    const MutexLock lock(mutex_);
    serving_ = false;
    interrupted_ = false;
    for (auto& [ticket, child] : children_)
      if (child.waiting) answers.push_back(std::move(child.waiting));
  }
  for (const auto& request : answers)
    request->fail(Status(Code::kAborted, "this reader passes on nothing any more"));
}

bool Relay::wait_alone(Nanos timeout) {
  Future<None> alone;
  {
    const MutexLock lock(mutex_);
    if (children_.empty()) return true;
    if (interrupted_) return false;
    alone_ = std::make_shared<Promise<None>>(driver_);
    alone = alone_->future();
  }
  alone.wait_done(timeout);
  const MutexLock lock(mutex_);
  return children_.empty();
}

void Relay::interrupt() {
  const MutexLock lock(mutex_);
  interrupted_ = true;
  if (alone_) std::exchange(alone_, nullptr)->complete(outcome_of({}));
}

std::size_t Relay::children() const {
  const MutexLock lock(mutex_);
  return children_.size();
}

void Relay::ask(rpc::Request request) {
  const auto arguments =
      rpc::decode_arguments<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, bool>(
          request.body(), "kv.replica.ready");
  if (!arguments) return request.refuse(arguments.status());
  const auto [source, version, ticket, known, wait] = *arguments;
  std::unique_ptr<rpc::Request> earlier;
  MutexLock lock(mutex_);
  if (!serving_ || source != source_ || version != version_)
    return request.fail(Status(Code::kAborted, "this reader does not have that version"));
  const auto found = children_.find(ticket);
  if (found == children_.end() && children_.size() >= limits::kReaders)
    return request.fail(Status(Code::kResourceExhausted, "this reader has too many children"));
  if (found != children_.end() && found->second.connection != request.info().connection)
    return request.fail(Status(Code::kPermissionDenied, "the ticket is another connection's"));
  Child& child = children_[ticket];
  child.connection = request.info().connection;
  const std::uint64_t ready = ready_;
  if (!wait || known < ready) {
    lock.unlock();
    return request.reply(rpc::encode_value(ready));
  }
  // A child waits once at a time, so that it cannot make this reader keep many requests.
  earlier = std::exchange(child.waiting, std::make_unique<rpc::Request>(std::move(request)));
  child.known = known;
  lock.unlock();
  if (earlier) earlier->reply(rpc::encode_value(ready));
}

void Relay::done(std::uint64_t connection, std::uint64_t ticket) {
  Child gone;  // destroyed without the lock: so is its request, which answers then
  const MutexLock lock(mutex_);
  const auto found = children_.find(ticket);
  if (found == children_.end() || found->second.connection != connection) return;
  gone = std::move(found->second);
  children_.erase(found);
  note_children();
}

void Relay::drop(std::uint64_t connection) {
  std::vector<Child> gone;
  const MutexLock lock(mutex_);
  for (auto child = children_.begin(); child != children_.end();) {
    if (child->second.connection == connection) {
      gone.push_back(std::move(child->second));
      child = children_.erase(child);
    } else {
      ++child;
    }
  }
  note_children();
}

void Relay::note_children() {
  if (children_.empty() && alone_) std::exchange(alone_, nullptr)->complete(outcome_of({}));
}

}  // namespace slime::kv
