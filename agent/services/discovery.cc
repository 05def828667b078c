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

// ----------------------------------------------------------------------------------------------------- lists

std::shared_ptr<Providers> Discovery::providers(const std::string& service) {
  const std::lock_guard lock(mutex_);
  const auto found = services_.find(service);
  if (found != services_.end()) return found->second;
  if (services_.size() >= limits::kRememberedServices)
    std::erase_if(services_, [](const auto& one) { return one.second.use_count() == 1; });
  return services_.emplace(service, std::make_shared<Providers>(service, random_seed())).first->second;
}

std::vector<std::shared_ptr<Providers>> Discovery::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Providers>> out;
  for (const auto& [name, providers] : services_) out.push_back(providers);
  return out;
}

bool Discovery::knows(std::string_view name) const {
  return registrar_ != nullptr && registrar_->directory().find(name).has_value();
}

std::uint64_t Discovery::ask(const std::shared_ptr<Providers>& providers) {
  const Providers::Question question = providers->want();
  if (question.to_send) send(providers);
  return question.number;
}

void Discovery::ask_if_due(const std::shared_ptr<Providers>& providers, TimePoint now) {
  if (providers->due(now)) ask(providers);
}

// The answer comes on the registrar's thread; at once, if the registrar takes no more questions.
void Discovery::send(const std::shared_ptr<Providers>& providers) {
  const std::weak_ptr<Discovery> weak = weak_from_this();
  registrar_->look_up_service(providers->service(), [weak, providers](Result<ctrl::ServiceList> list) {
    const bool again = providers->answer(std::move(list), steady_clock().now());
    const auto self = weak.lock();
    if (!self) return;
    self->loop_.post([weak, providers] {
      if (const auto alive = weak.lock()) alive->answered(*providers);
    });
    if (again) self->send(providers);
  });
}

void Discovery::on_event(const ctrl::Event& event) {
  for (const auto& providers : all()) providers->on_event(event);
}

void Discovery::on_news(bool complete) {
  const TimePoint now = steady_clock().now();
  for (const auto& providers : all()) providers->on_news(complete, now);
}

void Discovery::note_change() {
  for (const auto& providers : all()) providers->note_change();
}

// ------------------------------------------------------------------------------------------- calls that wait

void Discovery::wait(std::shared_ptr<Waiting> call, std::shared_ptr<Providers> providers,
                     std::uint64_t answer, TimePoint until) {
  if (closed_) return call->go_on();
  const Waiting* const key = call.get();
  Entry& entry = waiting_[key];
  entry.call = std::move(call);
  entry.answer = answer;
  const bool there = answer != 0 && providers->answered() >= answer;
  entry.providers = std::move(providers);
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

void Discovery::answered(const Providers& providers) {
  std::vector<const Waiting*> ready;
  for (const auto& [call, entry] : waiting_) {
    if (entry.providers.get() == &providers && entry.answer != 0 && providers.answered() >= entry.answer)
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
