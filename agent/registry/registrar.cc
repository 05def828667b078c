#include "agent/registry/registrar.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/limits.h"
#include "base/log.h"
#include "base/str.h"
#include "base/thread.h"

namespace slime::agent {

std::string_view registry_state_name(RegistryState state) {
  switch (state) {
    case RegistryState::kRegistered:
      return "registered";
    case RegistryState::kUnreachable:
      return "unreachable";
    case RegistryState::kFenced:
      return "fenced";
    case RegistryState::kClosed:
      return "closed";
  }
  return "unknown";
}

// ------------------------------------------------------------------------------------ start, close

namespace {

// Turns kDeadlineExceeded into kUnavailable: the request to nanoctrl timed out, not the caller's
// operation, of which nothing was executed.
Status unanswered(Status status) {
  if (status.code() != Code::kDeadlineExceeded) return status;
  return {Code::kUnavailable, std::string(status.text())};
}

}  // namespace

Registrar::Registrar(RegistrarOptions options, std::unique_ptr<ctrl::Client> client, Secret session,
                     EventHandler on_event, NewsHandler on_news, LinksHandler on_links)
    : options_(std::move(options)),
      session_(std::move(session)),
      client_(std::move(client)),
      on_event_(std::move(on_event)),
      on_news_(std::move(on_news)),
      on_links_(std::move(on_links)),
      retry_(limits::kRegistryRetryMin),
      rng_(static_cast<std::uint64_t>(steady_clock().now().time_since_epoch().count())) {
  view_.url = options_.client.url;
}

Result<std::unique_ptr<Registrar>> Registrar::start(RegistrarOptions options, EventHandler on_event,
                                                    NewsHandler on_news, LinksHandler on_links) {
  options.client.connect_timeout = limits::kRegistryTimeout;
  options.client.timeout = limits::kRegisterTimeout;
  auto first = ctrl::Client::create(options.client);
  if (!first) return std::move(first).error();
  options.client.timeout = limits::kRegistryTimeout;
  auto client = ctrl::Client::create(options.client);
  if (!client) return std::move(client).error();
  Secret session = ctrl::new_session();
  auto lease = (*first)->register_peer(options.self, session);
  if (!lease)
    return std::move(lease).error().with_context(
        str("register ", options.self.name, " with ", options.client.url));
  std::unique_ptr<Registrar> out(new Registrar(std::move(options), std::move(*client), std::move(session),
                                               std::move(on_event), std::move(on_news), std::move(on_links)));
  out->took_lease(*lease);
  out->thread_ = make_thread([self = out.get()] { self->run(); });
  return out;
}

Registrar::~Registrar() { stop_thread(); }

void Registrar::stop_thread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  client_->stop();
  if (thread_.joinable()) thread_.join();
}

Status Registrar::close(Nanos bound) {
  const MutexLock closing(close_mutex_);
  if (std::exchange(closed_, true)) return {};
  stop_thread();
  enter(RegistryState::kClosed, {});
  // stop_thread() has stopped the thread's client for good, so deregistering needs another client.
  ctrl::ClientOptions options = options_.client;
  options.connect_timeout = options.timeout = bound;
  auto client = ctrl::Client::create(std::move(options));
  if (!client) return std::move(client).error();
  Status status =
      (*client)->deregister(options_.self.scope, options_.self.name, lease_.incarnation, session_);
  const bool gone_anyway = status.code() == Code::kNotFound || status.code() == Code::kAborted;
  return gone_anyway ? Status() : std::move(status).with_context("deregister");
}

RegistryView Registrar::view() const {
  const MutexLock lock(mutex_);
  RegistryView out = view_;
  // Handshakes already use new keys while this agent still applies the answer that brought them.
  if (options_.keyring) out.newest_key = options_.keyring->newest();
  return out;
}

// ----------------------------------------------------------------------- requests of other threads

void Registrar::look_up(const std::string& name, LookupHandler handler) {
  ask([this, name, handler = std::move(handler)](Status refused) mutable {
    handler(refused.ok() ? find(name) : Result<DirectoryEntry>(std::move(refused)));
  });
}

void Registrar::look_up_service(const std::string& service, ServiceHandler handler) {
  ask([this, service, handler = std::move(handler)](Status refused) mutable {
    handler(refused.ok() ? find_service(service) : Result<ctrl::ServiceList>(std::move(refused)));
  });
}

void Registrar::refresh_keys(UniqueFunction<void()> handler) {
  ask([this, asked = steady_clock().now(), handler = std::move(handler)](const Status& refused) mutable {
    if (refused.ok() && last_beat_ < asked) beat();
    handler();
  });
}

void Registrar::ask(Question question) {
  MutexLock lock(mutex_);
  Status refused;
  if (stopping_) {
    refused = Status(Code::kUnavailable, "the agent is closed");
  } else if (questions_.size() >= limits::kPendingLookups) {
    refused = Status(Code::kResourceExhausted, str(questions_.size(), " names wait for an answer of ",
                                                   options_.client.url, " already"));
  }
  if (refused.ok()) {
    questions_.push_back(std::move(question));
    lock.unlock();
    changed_.notify_all();
  } else {
    lock.unlock();
    question(std::move(refused));
  }
}

template <class Info>
std::uint64_t Registrar::put(std::map<std::string, Info>& announced,
                             std::map<std::string, std::optional<Info>>& changed, Info&& info) {
  changed[info.name] = info;
  announced[info.name] = std::move(info);
  changed_.notify_all();
  return ++last_change_;
}

std::uint64_t Registrar::put_service(ctrl::ServiceInfo service) {
  const MutexLock lock(mutex_);
  return put(services_, changes_.services, std::move(service));
}

std::uint64_t Registrar::put_region(ctrl::RegionInfo region) {
  const MutexLock lock(mutex_);
  return put(regions_, changes_.regions, std::move(region));
}

std::uint64_t Registrar::drop_regions(const std::vector<std::string>& names) {
  std::uint64_t change = 0;
  {
    const MutexLock lock(mutex_);
    for (const std::string& name : names) {
      regions_.erase(name);
      changes_.regions[name] = std::nullopt;
    }
    change = ++last_change_;
  }
  changed_.notify_all();
  return change;
}

void Registrar::wait_announced(std::uint64_t change, Nanos bound) {
  const MutexLock lock(mutex_);
  changed_.wait_until(mutex_, deadline_after(steady_clock().now(), bound), [&]() SLIME_REQUIRES(mutex_) {
    return stopping_ || announced_ >= change || tried_ >= change;
  });
}

// -------------------------------------------------------------------------------------- the thread

void Registrar::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (!questions_.empty()) {
      Question question = std::move(questions_.front());
      questions_.pop_front();
      lock.unlock();
      question(Status());
      lock.lock();
      changed_.notify_all();  // the question may have registered again, and announced all changes
      continue;
    }
    // Announces changes at once while the registry is reachable; otherwise with the next attempt to
    // reach it.
    const TimePoint now = steady_clock().now();
    const bool announces =
        view_.state == RegistryState::kRegistered && !changes_.empty() && now >= next_announcement_;
    if (announces || now >= next_beat_) {
      lock.unlock();
      announces ? announce() : beat();
      lock.lock();
      changed_.notify_all();
      continue;
    }
    const bool later = view_.state == RegistryState::kRegistered && !changes_.empty();
    changed_.wait_until(mutex_, later ? std::min(next_beat_, next_announcement_) : next_beat_);
  }
  std::deque<Question> left = std::move(questions_);
  lock.unlock();
  for (Question& question : left) question(Status(Code::kUnavailable, "the agent is closed"));
}

Result<DirectoryEntry> Registrar::find(const std::string& name) {
  auto found = client_->get_peer(options_.self.scope, name);
  if (!found) {
    Status status = unanswered(std::move(found).error());
    if (status.code() != Code::kNotFound)
      return std::move(status).with_context(str("look up \"", name, "\""));
    directory_.forget(name, 0);
    return Status(Code::kNotFound, str("no peer named \"", name, "\" is registered in scope \"",
                                       options_.self.scope, "\" of ", options_.client.url));
  }
  DirectoryEntry entry{found->address, found->instance, found->incarnation};
  directory_.remember(name, entry);
  return entry;
}

Result<ctrl::ServiceList> Registrar::find_service(const std::string& service) {
  auto found = client_->list_services({.scope = options_.self.scope, .name = service});
  if (!found) return unanswered(std::move(found).error());
  // Caches the servers' addresses, so that calls of these servers need no look-up.
  for (const ctrl::ServiceEntry& entry : found->services)
    directory_.remember(entry.peer, {entry.address, entry.instance, entry.incarnation});
  return found;
}

void Registrar::took_lease(const ctrl::Lease& lease) {
  lease_ = lease;
  lease_.keys.clear();  // the keyring has them
  lease_.session = {};  // the same as session_
  interval_ = options_.heartbeat > Nanos::zero() ? options_.heartbeat : lease.heartbeat_interval;
  next_beat_ = deadline_after(steady_clock().now(), interval_);
  retry_ = limits::kRegistryRetryMin;
  links_changed_ = false;
  told_.reset();
  on_links_(lease.links);
  if (options_.keyring) tell_keys(options_.keyring->begin(lease.keys, lease.heartbeat_interval));
  const MutexLock lock(mutex_);
  view_.incarnation = lease.incarnation;
  view_.server_epoch = lease.server_epoch;
  view_.revision = lease.revision;
  view_.ttl = lease.ttl;
  ++view_.registrations;
}

void Registrar::tell_keys(bool changed) const {
  if (changed && options_.on_keys) options_.on_keys();
}

// Returns the report for the next heartbeat; nullopt if nanoctrl has received the same report
// recently.
std::optional<ctrl::Report> Registrar::next_report() {
  std::optional<ctrl::Report> report = options_.report ? options_.report() : std::nullopt;
  if (report == told_ && ++beats_since_told_ < limits::kReportRepeat) return std::nullopt;
  return report;
}

void Registrar::beat() {
  last_beat_ = steady_clock().now();
  if (view().state == RegistryState::kFenced) {
    if (Status status = register_again(); !status.ok()) failed(std::move(status));
    return;
  }
  const std::uint64_t since = view().revision;
  std::optional<ctrl::Report> report = next_report();
  const auto keys_have =
      options_.keyring ? std::optional(options_.keyring->newest()) : std::optional<std::uint64_t>();
  auto changes = client_->heartbeat(options_.self.scope, options_.self.name, lease_.incarnation, session_,
                                    since, report, keys_have);
  Status status = changes.status();
  if (status.code() == Code::kNotFound) {
    // The registry restarted without its state, or the agent was silent for longer than its lease.
    status = register_again();
  } else if (status.ok()) {
    next_beat_ = deadline_after(steady_clock().now(), interval_);
    retry_ = limits::kRegistryRetryMin;
    if (report) {
      told_ = std::move(report);
      beats_since_told_ = 0;
    }
    enter(RegistryState::kRegistered, {});
    apply(*changes);
    if (links_changed_) look_up_links();
  }
  if (!status.ok()) failed(std::move(status));
}

Status Registrar::register_again() {
  ctrl::Registration self = options_.self;
  std::uint64_t covers = 0;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, service] : services_) self.services.push_back(service);
    for (const auto& [name, region] : regions_) self.regions.push_back(region);
    changes_ = {};
    covers = last_change_;
  }
  auto lease = client_->register_peer(self, session_);
  {
    const MutexLock lock(mutex_);
    tried_ = std::max(tried_, covers);
    if (lease) announced_ = std::max(announced_, covers);
  }
  // After a failure the registry has no entry of this agent; the next registration announces
  // everything.
  if (!lease) return std::move(lease).error();
  // While this agent was not registered, it may have missed changes of other names.
  directory_.clear();
  on_news_(false);
  took_lease(*lease);
  enter(RegistryState::kRegistered, {});
  return {};
}

// Asks the registry for the wanted links. After a failure the next heartbeat asks again.
void Registrar::look_up_links() {
  auto links = client_->get_links(options_.self.scope, options_.self.name);
  if (!links) return;
  links_changed_ = false;
  on_links_(std::move(*links));
}

void Registrar::apply(const ctrl::Changes& changes) {
  if (changes.resync) {
    directory_.clear();
    links_changed_ = true;
  }
  for (const ctrl::Event& event : changes.events) {
    if (event.kind == ctrl::EventKind::kLinks) {
      links_changed_ = links_changed_ || event.name == options_.self.name;
      continue;
    }
    directory_.apply(event);
    if (event.instance != options_.self.instance) on_event_(event);
  }
  if (options_.keyring) tell_keys(options_.keyring->update(changes.keys));
  if (changes.more) next_beat_ = steady_clock().now();
  if (changes.resync || !changes.more) on_news_(!changes.resync);
  const MutexLock lock(mutex_);
  view_.revision = changes.revision;
  view_.server_epoch = changes.server_epoch;
  ++view_.heartbeats;
}

void Registrar::announce() {
  Changes changes;
  std::uint64_t covers = 0;
  {
    const MutexLock lock(mutex_);
    changes = std::exchange(changes_, {});
    covers = last_change_;
  }
  Status status = send_changes(changes);
  if (status.code() == Code::kNotFound) status = register_again();
  {
    const MutexLock lock(mutex_);
    tried_ = std::max(tried_, covers);
    if (status.ok()) {
      announced_ = std::max(announced_, covers);
    } else if (status.code() != Code::kInvalidArgument) {
      // Puts the changes back, to send them later, except where a newer change of the same name
      // exists.
      changes_.regions.merge(changes.regions);
      changes_.services.merge(changes.services);
    }
  }
  if (status.ok()) return;
  if (status.code() == Code::kInvalidArgument || status.code() == Code::kResourceExhausted) {
    // The registry works but refuses this announcement: tries again after a heartbeat interval. The
    // lease does not depend on announcements.
    next_announcement_ = deadline_after(steady_clock().now(), interval_);
    SLIME_LOG(LogLevel::kWarning, "agent", options_.self.name, ": ", options_.client.url,
              " does not show all of our services and regions: ", status.to_string());
    const MutexLock lock(mutex_);
    view_.last_error = std::move(status);
    return;
  }
  failed(std::move(status));
}

Status Registrar::send_changes(const Changes& changes) {
  const std::string& scope = options_.self.scope;
  const std::string& name = options_.self.name;
  if (!changes.services.empty()) {
    std::vector<ctrl::ServiceInfo> publish;
    std::vector<std::string> unpublish;
    for (const auto& [service, info] : changes.services) {
      info ? publish.push_back(*info) : unpublish.push_back(service);
    }
    SLIME_TRY(client_->update_services(scope, name, lease_.incarnation, session_, publish, unpublish));
  }
  if (!changes.regions.empty()) {
    std::vector<ctrl::RegionInfo> publish;
    std::vector<std::string> unpublish;
    for (const auto& [region, info] : changes.regions) {
      info ? publish.push_back(*info) : unpublish.push_back(region);
    }
    SLIME_TRY(client_->update_regions(scope, name, lease_.incarnation, session_, publish, unpublish));
  }
  return {};
}

// ---------------------------------------------------------------------------------------- failures

void Registrar::failed(Status status) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;  // the client was stopped; the error says nothing about the registry
  }
  const TimePoint now = steady_clock().now();
  const bool fenced = status.code() == Code::kAborted || status.code() == Code::kAlreadyExists;
  if (fenced) {
    next_beat_ =
        deadline_after(now, jittered(std::min(limits::kFencedRetry, limits::kFencedBeats * interval_)));
    enter(RegistryState::kFenced, std::move(status));
    return;
  }
  next_beat_ = deadline_after(now, jittered(std::min(retry_, interval_)));
  retry_ = std::min(2 * retry_, limits::kRegistryRetryMax);
  enter(RegistryState::kUnreachable, std::move(status));
}

void Registrar::enter(RegistryState state, Status reason) {
  RegistryState before{};
  {
    const MutexLock lock(mutex_);
    before = std::exchange(view_.state, state);
    view_.last_error = reason;
  }
  if (before == state) return;
  const bool bad = state == RegistryState::kFenced;
  const bool odd = state == RegistryState::kUnreachable;
  SLIME_LOG(bad   ? LogLevel::kError
            : odd ? LogLevel::kWarning
                  : LogLevel::kInfo,
            "agent", options_.self.name, ": registry ", options_.client.url, ": ",
            registry_state_name(before), " -> ", registry_state_name(state), reason.ok() ? "" : ": ",
            reason.ok() ? "" : reason.to_string(),
            bad ? "; other agents reach that process under this name now" : "");
}

// Returns a random span between half of `span` and all of it.
Nanos Registrar::jittered(Nanos span) {
  const auto half = static_cast<std::uint64_t>(std::max<std::int64_t>(span.count() / 2, 1));
  return span - Nanos(static_cast<std::int64_t>(rng_.below(half)));
}

}  // namespace slime::agent
