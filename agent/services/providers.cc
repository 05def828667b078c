#include "agent/services/providers.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "agent/limits.h"
#include "base/str.h"

namespace slime::agent {
namespace {

// Names that an error text lists; the rest is counted.
constexpr std::size_t kShownProviders = 5;

// What matters is that every caller gets the same number.
std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

bool contains(const Providers::List* list, const Provider& provider) {
  return list != nullptr &&
         std::any_of(list->begin(), list->end(), [&](const auto& one) { return one.get() == &provider; });
}

}  // namespace

Providers::Providers(std::string service, std::uint64_t seed) : service_(std::move(service)), rng_(seed) {
  next_ = rng_.below(1u << 16);  // so that many callers do not begin with the same one
}

// -------------------------------------------------------------------------------------------------- choosing

std::shared_ptr<Provider> Providers::pick(const Wish& wish, TimePoint now) {
  const Lock lock(mutex_);
  const auto usable = [&](const Provider& provider) {
    if (contains(wish.tried, provider)) return false;
    return wish.must_have.empty() || std::binary_search(provider.methods.begin(), provider.methods.end(),
                                                        wish.must_have, std::less<>());
  };
  const auto good = [&](const Provider& p) {
    return p.avoided_until <= now && (p.ejections == 0 || p.trial_began == TimePoint{});
  };
  auto out = choose(wish, [&](const Provider& p) { return good(p) && usable(p); });
  if (!out) out = choose(wish, usable);
  if (!out) return out;
  if (out->ejections > 0 && good(*out)) out->trial_began = now;
  ++out->in_flight;
  ++out->calls;
  return out;
}

template <class Admit>
std::shared_ptr<Provider> Providers::choose(const Wish& wish, const Admit& admit) {
  if (list_.empty()) return nullptr;
  if (wish.policy == Balance::kSticky) {
    if (!wish.key.empty()) return by_key(wish.key, admit);
    for (const auto& provider : list_) {
      if (wish.favorite != nullptr && provider->name == wish.favorite->name && admit(*provider))
        return provider;
    }
  }
  std::shared_ptr<Provider> out;
  const std::size_t first = next_++ % list_.size();
  for (std::size_t i = 0; i < list_.size(); ++i) {
    const auto& provider = list_[(first + i) % list_.size()];
    if (!admit(*provider)) continue;
    if (!out || provider->in_flight < out->in_flight) out = provider;
    if (wish.policy != Balance::kLeastInFlight) break;
  }
  if (out && wish.policy == Balance::kSticky && wish.favorite != nullptr) wish.favorite->name = out->name;
  return out;
}

// Rendezvous hashing: the largest of the numbers that the key has with each of them.
template <class Admit>
std::shared_ptr<Provider> Providers::by_key(std::string_view key, const Admit& admit) const {
  std::shared_ptr<Provider> out;
  std::uint64_t best = 0;
  const std::uint64_t seed = hash(key, 0);
  for (const auto& provider : list_) {
    if (!admit(*provider)) continue;
    const std::uint64_t number = hash(provider->name, seed);
    if (out && number <= best) continue;
    out = provider;
    best = number;
  }
  return out;
}

void Providers::release(Provider& provider, TimePoint began, bool answered, TimePoint now) {
  const Lock lock(mutex_);
  --provider.in_flight;
  if (provider.trial_began == began) provider.trial_began = {};
  if (!answered) return;
  provider.answered_at = now;
  if (std::exchange(provider.ejections, 0) == 0) return;
  provider.trial_began = {};
  provider.avoided_until = {};
}

void Providers::eject(Provider& provider, const Status& failure, TimePoint began, TimePoint now) {
  const Lock lock(mutex_);
  // A timeout is no news if the provider has answered since the call began, or was ejected since.
  if (provider.answered_at >= began || (provider.ejections > 0 && began <= provider.ejected_at)) return;
  Nanos span = std::max(limits::kAvoidProvider, Nanos(now - began));
  for (std::uint32_t i = 0; i < provider.ejections && span < limits::kEjectProviderMost; ++i) span *= 2;
  ++provider.ejections;
  provider.ejected_at = now;
  provider.avoided_until = deadline_after(now, std::min(span, limits::kEjectProviderMost));
  provider.failure = failure;
}

void Providers::avoid(Provider& provider, const Status& failure, TimePoint until) {
  const Lock lock(mutex_);
  provider.avoided_until = until;
  provider.failure = failure;
}

Providers::Says Providers::says(const Provider& provider, std::string_view method) const {
  const Lock lock(mutex_);
  const std::vector<std::string>& methods = provider.methods;
  if (methods.empty()) return Says::kNothing;
  return std::binary_search(methods.begin(), methods.end(), method, std::less<>()) ? Says::kYes : Says::kNo;
}

// --------------------------------------------------------------------------------------------------- knowing

Providers::Question Providers::want() {
  const Lock lock(mutex_);
  const bool under_way = sent_ > answered_;
  // One that is under way may have been answered before what made the caller ask.
  asked_ = std::max(asked_, sent_ + 1);
  if (under_way) return {asked_, false};
  sent_ = asked_;
  return {asked_, true};
}

std::uint64_t Providers::answered() const {
  const Lock lock(mutex_);
  return answered_;
}

bool Providers::answer(Result<ctrl::ServiceList> list, TimePoint now) {
  const Lock lock(mutex_);
  answered_ = sent_;
  answered_at_ = now;
  known_ = true;
  error_ = list.status();
  if (list) {
    changed_ = false;
    replace(*list, now);
  }
  if (asked_ == answered_) return false;
  sent_ = asked_;
  return true;
}

void Providers::replace(const ctrl::ServiceList& list, TimePoint now) {
  List old = std::exchange(list_, {});
  for (const ctrl::ServiceEntry& entry : list.services) {
    if (entry.service.name != service_) continue;  // a registry that does not filter
    const auto same = std::find_if(old.begin(), old.end(), [&](const auto& one) {
      return one && one->name == entry.peer && one->instance == entry.instance;
    });
    auto provider = same != old.end() ? std::exchange(*same, nullptr)
                                      : std::make_shared<Provider>(Provider{entry.peer, entry.instance});
    provider->incarnation = entry.incarnation;
    provider->address = entry.address;
    provider->methods = entry.service.methods;
    std::sort(provider->methods.begin(), provider->methods.end());
    provider->kept_until = {};
    list_.push_back(std::move(provider));
  }
  // A registry that restarted empty learns of everybody by and by; until then who was there is likely to be
  // there still. Another process under the name is not.
  const bool restarted = epoch_ != 0 && list.server_epoch != epoch_;
  epoch_ = list.server_epoch;
  const std::size_t listed = list_.size();
  for (auto& provider : old) {
    if (!provider) continue;
    const bool replaced = std::any_of(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(listed),
                                      [&](const auto& one) { return one->name == provider->name; });
    if (restarted && provider->kept_until == TimePoint{}) provider->kept_until = now + limits::kKeepUnlisted;
    if (!replaced && provider->kept_until > now) list_.push_back(std::move(provider));
  }
  std::sort(list_.begin(), list_.end(), [](const auto& a, const auto& b) { return a->name < b->name; });
}

bool Providers::due(TimePoint now) const {
  const Lock lock(mutex_);
  if (sent_ > answered_) return false;
  if (changed_ && now - answered_at_ >= limits::kProvidersPause) return true;
  return !known_ || now - known_at() >= limits::kProvidersFresh;
}

bool Providers::old(TimePoint now) const {
  const Lock lock(mutex_);
  return !known_ || now - known_at() >= limits::kProvidersOld;
}

void Providers::on_event(const ctrl::Event& event) {
  const Lock lock(mutex_);
  changed_ = true;
  if (event.kind != ctrl::EventKind::kDeregistered && event.kind != ctrl::EventKind::kExpired) return;
  std::erase_if(list_, [&](const auto& provider) {
    return provider->name == event.name && provider->incarnation <= event.incarnation;
  });
}

void Providers::on_news(bool complete, TimePoint now) {
  const Lock lock(mutex_);
  if (!complete) {
    changed_ = true;
  } else if (!changed_ && known_ && error_.ok()) {
    confirmed_at_ = now;
  }
}

void Providers::note_change() {
  const Lock lock(mutex_);
  changed_ = true;
}

Nanos Providers::jittered(Nanos span) {
  const Lock lock(mutex_);
  const auto half = static_cast<std::uint64_t>(std::max<std::int64_t>(span.count() / 2, 1));
  return span - Nanos(static_cast<std::int64_t>(rng_.below(half)));
}

std::string Providers::knowledge() const {
  const Lock lock(mutex_);
  std::string out = error_.ok() ? "" : str("does not answer (", error_.text(), "); before that it ");
  if (list_.empty()) return out + (error_.ok() ? "lists none" : "listed none");
  out.append(str(error_.ok() ? "lists " : "listed ", list_.size(), ": "));
  for (std::size_t i = 0; i < std::min(list_.size(), kShownProviders); ++i)
    out.append(i == 0 ? "" : ", ").append(list_[i]->name);
  if (list_.size() > kShownProviders) out.append(", ...");
  return out;
}

std::vector<Provider> Providers::view() const {
  const Lock lock(mutex_);
  std::vector<Provider> out;
  for (const auto& provider : list_) out.push_back(*provider);
  return out;
}

}  // namespace slime::agent
