#include "agent/services/discovery.h"

#include <span>
#include <utility>

#include "agent/limits.h"
#include "base/random.h"

namespace slime::agent {
namespace {

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
  return seed;
}

}  // namespace

// ------------------------------------------------------------------------------------------- lists

std::shared_ptr<ServerPool> Discovery::servers(const std::string& service) {
  const MutexLock lock(mutex_);
  const auto found = services_.find(service);
  if (found != services_.end()) return found->second;
  if (services_.size() >= limits::kRememberedServices)
    std::erase_if(services_, [](const auto& one) { return one.second.use_count() == 1; });
  return services_.emplace(service, std::make_shared<ServerPool>(service, random_seed())).first->second;
}

std::vector<std::shared_ptr<ServerPool>> Discovery::all() const {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<ServerPool>> out;
  for (const auto& [name, servers] : services_) out.push_back(servers);
  return out;
}

bool Discovery::knows(std::string_view name) const {
  return registrar_ != nullptr && registrar_->directory().find(name).has_value();
}

std::uint64_t Discovery::ask(const std::shared_ptr<ServerPool>& servers) {
  const ServerPool::Question question = servers->want();
  if (question.to_send) send(servers);
  return question.number;
}

void Discovery::ask_if_due(const std::shared_ptr<ServerPool>& servers, TimePoint now) {
  if (servers->due(now)) ask(servers);
}

// Asks the registrar for the servers. The answer comes on the registrar's thread, or, if the
// registrar takes no more requests, at once as an error.
void Discovery::send(const std::shared_ptr<ServerPool>& servers) {
  const std::weak_ptr<Discovery> weak = weak_from_this();
  registrar_->look_up_service(servers->service(), [weak, servers](Result<ctrl::ServiceList> list) {
    const bool again = servers->answer(std::move(list), steady_clock().now());
    const auto self = weak.lock();
    if (!self) return;
    self->loop_.post([weak, servers] {
      if (const auto alive = weak.lock()) alive->answered(*servers);
    });
    if (again) self->send(servers);
  });
}

void Discovery::on_event(const ctrl::Event& event) {
  for (const auto& servers : all()) servers->on_event(event);
}

void Discovery::on_news(bool complete) {
  const TimePoint now = steady_clock().now();
  for (const auto& servers : all()) servers->on_news(complete, now);
}

void Discovery::note_change() {
  for (const auto& servers : all()) servers->note_change();
}

// --------------------------------------------------------------------------------- calls that wait

void Discovery::wait(std::shared_ptr<Waiting> call, std::shared_ptr<ServerPool> servers, std::uint64_t answer,
                     TimePoint until) {
  if (closed_) return call->go_on();
  const Waiting* const key = call.get();
  Entry& entry = waiting_[key];
  entry.call = std::move(call);
  entry.answer = answer;
  const bool there = answer != 0 && servers->answered() >= answer;
  entry.servers = std::move(servers);
  entry.timer = loop_.add_timer(there ? loop_.now() : until, [this, key] { wake(*key); });
}

void Discovery::wake(const Waiting& call) {
  const auto found = waiting_.find(&call);
  if (found == waiting_.end()) return;
  Entry entry = std::move(found->second);
  waiting_.erase(found);
  loop_.cancel_timer(entry.timer);
  entry.call->go_on();
}

void Discovery::answered(const ServerPool& servers) {
  std::vector<const Waiting*> ready;
  for (const auto& [call, entry] : waiting_) {
    if (entry.servers.get() == &servers && entry.answer != 0 && servers.answered() >= entry.answer)
      ready.push_back(call);
  }
  for (const Waiting* call : ready) wake(*call);
}

void Discovery::close() {
  closed_ = true;
  std::vector<const Waiting*> all_of_them;
  for (const auto& [call, entry] : waiting_) all_of_them.push_back(call);
  for (const Waiting* call : all_of_them) wake(*call);
}

}  // namespace slime::agent
