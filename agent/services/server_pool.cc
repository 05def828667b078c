#include "agent/services/server_pool.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "agent/limits.h"
#include "base/str.h"

namespace slime::agent {
namespace {

// Most names that an error text lists.
constexpr std::size_t kShownServers = 5;

// Returns a hash that is the same in every process, so that all callers choose the same server for
// a key.
std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

bool contains(const ServerPool::List* list, const PooledServer& server) {
  return list != nullptr &&
         std::any_of(list->begin(), list->end(), [&](const auto& one) { return one.get() == &server; });
}

}  // namespace

ServerPool::ServerPool(std::string service, std::uint64_t seed) : service_(std::move(service)), rng_(seed) {
  next_ = rng_.below(1u << 16);  // random, so that not all callers begin with the same server
}

// ---------------------------------------------------------------------------------------- choosing

std::shared_ptr<PooledServer> ServerPool::pick(const Wish& wish, TimePoint now) {
  const MutexLock lock(mutex_);
  const auto usable = [&](const PooledServer& server) {
    if (contains(wish.tried, server)) return false;
    return wish.must_have.empty() ||
           std::binary_search(server.methods.begin(), server.methods.end(), wish.must_have, std::less<>());
  };
  const auto good = [&](const PooledServer& p) {
    return p.avoided_until <= now && (p.ejections == 0 || p.trial_began == TimePoint{});
  };
  auto out = choose(wish, [&](const PooledServer& p) { return good(p) && usable(p); });
  if (!out) out = choose(wish, usable);
  if (!out) return out;
  if (out->ejections > 0 && good(*out)) out->trial_began = now;
  ++out->in_flight;
  ++out->calls;
  return out;
}

template <class Admit>
std::shared_ptr<PooledServer> ServerPool::choose(const Wish& wish, const Admit& admit) {
  if (list_.empty()) return nullptr;
  if (wish.policy == Balance::kSticky) {
    if (!wish.key.empty()) return by_key(wish.key, admit);
    for (const auto& server : list_) {
      if (wish.favorite != nullptr && server->name == wish.favorite->name && admit(*server)) return server;
    }
  }
  std::shared_ptr<PooledServer> out;
  const std::size_t first = next_++ % list_.size();
  for (std::size_t i = 0; i < list_.size(); ++i) {
    const auto& server = list_[(first + i) % list_.size()];
    if (!admit(*server)) continue;
    if (!out || server->in_flight < out->in_flight) out = server;
    if (wish.policy != Balance::kLeastInFlight) break;
  }
  if (out && wish.policy == Balance::kSticky && wish.favorite != nullptr) wish.favorite->name = out->name;
  return out;
}

// Rendezvous hashing: picks the server for which the hash of key and server is the largest.
template <class Admit>
std::shared_ptr<PooledServer> ServerPool::by_key(std::string_view key, const Admit& admit) const {
  std::shared_ptr<PooledServer> out;
  std::uint64_t best = 0;
  const std::uint64_t seed = hash(key, 0);
  for (const auto& server : list_) {
    if (!admit(*server)) continue;
    const std::uint64_t number = hash(server->name, seed);
    if (out && number <= best) continue;
    out = server;
    best = number;
  }
  return out;
}

void ServerPool::release(PooledServer& server, TimePoint began, bool answered, TimePoint now) {
  const MutexLock lock(mutex_);
  --server.in_flight;
  if (server.trial_began == began) server.trial_began = {};
  if (!answered) return;
  server.answered_at = now;
  if (std::exchange(server.ejections, 0) == 0) return;
  server.trial_began = {};
  server.avoided_until = {};
}

void ServerPool::eject(PooledServer& server, const Status& failure, TimePoint began, TimePoint now) {
  const MutexLock lock(mutex_);
  // Ignores a timeout if the server has answered another call, or was ejected, since this call
  // began.
  if (server.answered_at >= began || (server.ejections > 0 && began <= server.ejected_at)) return;
  Nanos span = std::max(limits::kAvoidServer, Nanos(now - began));
  for (std::uint32_t i = 0; i < server.ejections && span < limits::kEjectServerMost; ++i) span *= 2;
  ++server.ejections;
  server.ejected_at = now;
  server.avoided_until = deadline_after(now, std::min(span, limits::kEjectServerMost));
  server.failure = failure;
}

void ServerPool::avoid(PooledServer& server, const Status& failure, TimePoint until) {
  const MutexLock lock(mutex_);
  server.avoided_until = until;
  server.failure = failure;
}

ServerPool::Says ServerPool::says(const PooledServer& server, std::string_view method) const {
  const MutexLock lock(mutex_);
  const std::vector<std::string>& methods = server.methods;
  if (methods.empty()) return Says::kNothing;
  return std::binary_search(methods.begin(), methods.end(), method, std::less<>()) ? Says::kYes : Says::kNo;
}

// ----------------------------------------------------------------------------------------- knowing

ServerPool::Question ServerPool::want() {
  const MutexLock lock(mutex_);
  const bool under_way = sent_ > answered_;
  // The answer to a request in flight may be older than the event that made the caller ask, so
  // another request is needed.
  asked_ = std::max(asked_, sent_ + 1);
  if (under_way) return {asked_, false};
  sent_ = asked_;
  return {asked_, true};
}

std::uint64_t ServerPool::answered() const {
  const MutexLock lock(mutex_);
  return answered_;
}

bool ServerPool::answer(Result<ctrl::ServiceList> list, TimePoint now) {
  const MutexLock lock(mutex_);
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

void ServerPool::replace(const ctrl::ServiceList& list, TimePoint now) {
  List old = std::exchange(list_, {});
  for (const ctrl::ServiceEntry& entry : list.services) {
    if (entry.service.name != service_) continue;  // the registry did not filter
    const auto same = std::find_if(old.begin(), old.end(), [&](const auto& one) {
      return one && one->name == entry.peer && one->instance == entry.instance;
    });
    auto server = same != old.end()
                      ? std::exchange(*same, nullptr)
                      : std::make_shared<PooledServer>(PooledServer{entry.peer, entry.instance});
    server->incarnation = entry.incarnation;
    server->address = entry.address;
    server->methods = entry.service.methods;
    std::sort(server->methods.begin(), server->methods.end());
    server->kept_until = {};
    list_.push_back(std::move(server));
  }
  // Agents register again one after the other with a registry that restarted empty. Until then a
  // known server is likely to be alive, unless another process has its name.
  const bool restarted = epoch_ != 0 && list.server_epoch != epoch_;
  epoch_ = list.server_epoch;
  const std::size_t listed = list_.size();
  for (auto& server : old) {
    if (!server) continue;
    const bool replaced = std::any_of(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(listed),
                                      [&](const auto& one) { return one->name == server->name; });
    if (restarted && server->kept_until == TimePoint{}) server->kept_until = now + limits::kKeepUnlisted;
    if (!replaced && server->kept_until > now) list_.push_back(std::move(server));
  }
  std::sort(list_.begin(), list_.end(), [](const auto& a, const auto& b) { return a->name < b->name; });
}

bool ServerPool::due(TimePoint now) const {
  const MutexLock lock(mutex_);
  if (sent_ > answered_) return false;
  if (changed_ && now - answered_at_ >= limits::kServersPause) return true;
  return !known_ || now - known_at() >= limits::kServersFresh;
}

bool ServerPool::old(TimePoint now) const {
  const MutexLock lock(mutex_);
  return !known_ || now - known_at() >= limits::kServersOld;
}

void ServerPool::on_event(const ctrl::Event& event) {
  const MutexLock lock(mutex_);
  changed_ = true;
  if (event.kind != ctrl::EventKind::kDeregistered && event.kind != ctrl::EventKind::kExpired) return;
  std::erase_if(list_, [&](const auto& server) {
    return server->name == event.name && server->incarnation <= event.incarnation;
  });
}

void ServerPool::on_news(bool complete, TimePoint now) {
  const MutexLock lock(mutex_);
  if (!complete) {
    changed_ = true;
  } else if (!changed_ && known_ && error_.ok()) {
    confirmed_at_ = now;
  }
}

void ServerPool::note_change() {
  const MutexLock lock(mutex_);
  changed_ = true;
}

Nanos ServerPool::jittered(Nanos span) {
  const MutexLock lock(mutex_);
  const auto half = static_cast<std::uint64_t>(std::max<std::int64_t>(span.count() / 2, 1));
  return span - Nanos(static_cast<std::int64_t>(rng_.below(half)));
}

std::string ServerPool::knowledge() const {
  const MutexLock lock(mutex_);
  std::string out = error_.ok() ? "" : str("does not answer (", error_.text(), "); before that it ");
  if (list_.empty()) return out + (error_.ok() ? "lists none" : "listed none");
  out.append(str(error_.ok() ? "lists " : "listed ", list_.size(), ": "));
  for (std::size_t i = 0; i < std::min(list_.size(), kShownServers); ++i)
    out.append(i == 0 ? "" : ", ").append(list_[i]->name);
  if (list_.size() > kShownServers) out.append(", ...");
  return out;
}

std::vector<PooledServer> ServerPool::view() const {
  const MutexLock lock(mutex_);
  std::vector<PooledServer> out;
  for (const auto& server : list_) out.push_back(*server);
  return out;
}

}  // namespace slime::agent
