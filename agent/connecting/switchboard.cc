#include "agent/connecting/switchboard.h"

#include <algorithm>
#include <utility>

#include "agent/connecting/target.h"
#include "agent/limits.h"
#include "agent/registry/registrar.h"
#include "base/log.h"
#include "base/str.h"
#include "transport/outage.h"

namespace slime::agent {
namespace {

Status closed_status() { return Status(Code::kUnavailable, "this agent is closed"); }

Status connection_ended(const std::string& peer) {
  return Status(Code::kUnavailable,
                str("the connection with ", peer, " has ended, and this Peer is of that connection alone"))
      .with_maybe_executed(false);
}

// `passive`: see Switchboard::passive().
std::shared_ptr<NamedPeer> peer_of_session(const Session& session, bool passive) {
  return std::make_shared<NamedPeer>(session.peer().name, passive ? 0 : session.id());
}

}  // namespace

Switchboard::Switchboard(transport::Loop& loop, Devices& devices, transport::Outlets outlets,
                         rpc::Server& server, const RegionTable& regions, Options options)
    : loop_(loop),
      outlets_(std::move(outlets)),
      options_(std::move(options)),
      first_use_(std::make_shared<FirstUse>(loop, devices, regions)),
      context_{loop,
               devices,
               server,
               regions,
               *this,
               *first_use_,
               options_.streams,
               options_.memory_bytes,
               options_.max_payload_bytes,
               options_.keyring.get()},
      rng_([] {
        std::uint64_t seed = 0;
        random_bytes(std::as_writable_bytes(std::span(&seed, 1)));
        return seed;
      }()) {}

Switchboard::~Switchboard() {
  SLIME_CHECK(sessions_.empty());
  if (forgets_links_) loop_.drop_deferred(*this);
}

void Switchboard::set_registry(Registry registry) {
  registry_ = std::move(registry);
  if (registry_.refresh_keys) keys_.use([this] { registry_.refresh_keys({}, 0); });
}
void Switchboard::set_handlers(Handlers handlers) { handlers_ = std::move(handlers); }

// ------------------------------------------------------------------------------------------- links

Link& Switchboard::link_for(const std::string& key) {
  if (Link* known = links_.find(key)) return *known;
  if (links_.size() >= limits::kRememberedPeers && !std::exchange(forgets_links_, true)) loop_.defer(*this);
  const auto& self = options_.handshake.self.name;
  auto link = std::make_unique<Link>(static_cast<LinkOwner&>(*this), loop_, self, key,
                                     parse_target(key, options_.has_registry), rng_.next());
  return links_.add(key, std::move(link));
}

// Forgets unused links: peers come and go under new names for as long as the agent lives.
void Switchboard::run_deferred() noexcept {
  forgets_links_ = false;
  links_.forget_unused();
}

void Switchboard::submit(NamedPeer& peer, OperationPtr<PeerOperation> operation) {
  if (peer.connection != 0) {
    if (submit_at_once(peer, operation)) return;
    operation->fail(closing_ ? closed_status() : connection_ended(peer.name));
    return;
  }
  if (closing_) {
    operation->fail(closed_status());
    return;
  }
  Link* const link = links_.find(peer);
  operations_.add(*operation);
  (link != nullptr ? *link : link_for(peer.name)).submit(std::move(operation));
}

Session* Switchboard::usable_session(Pairing::Id id) const {
  const auto it = sessions_.find(id);
  if (it == sessions_.end() || !it->second->ready() || it->second->lost()) return nullptr;
  it->second->touch();
  return it->second.get();
}

bool Switchboard::submit_at_once(NamedPeer& peer, OperationPtr<PeerOperation>& operation) {
  if (peer.connection != 0) {
    Session* const session = closing_ ? nullptr : usable_session(peer.connection);
    if (session == nullptr) return false;
    operations_.add(*operation);
    const OperationPtr<PeerOperation> started = std::move(operation);
    started->start(*session);
    return true;
  }
  Link* const link = links_.find(peer);
  if (closing_ || link == nullptr || !link->takes_at_once()) return false;
  operations_.add(*operation);
  link->start(std::move(operation));
  return true;
}

Session* Switchboard::session_now(NamedPeer& peer) {
  if (peer.connection != 0) return closing_ ? nullptr : usable_session(peer.connection);
  Link* const link = links_.find(peer);
  if (closing_ || link == nullptr || !link->takes_at_once()) return nullptr;
  link->session()->touch();
  return link->session().get();
}

void Switchboard::disconnect(NamedPeer& peer) {
  if (peer.connection != 0) {
    if (Session* const session = usable_session(peer.connection)) drain(*session);
  } else if (Link* const link = links_.find(peer)) {
    link->disconnect();
  }
}

std::optional<DirectoryEntry> Switchboard::cached_entry(const std::string& name) {
  return registry_.directory != nullptr ? registry_.directory->find(name) : std::nullopt;
}

void Switchboard::resolve(Link& link) {
  if (!link.problem().ok()) {
    link.on_resolved(link.problem());
    return;
  }
  if (registry_.look_up) {
    registry_.look_up(link.key());
    return;
  }
  const transport::PeerIdentity& self = options_.handshake.self;
  if (link.key() == self.name) {
    link.on_resolved(DirectoryEntry{own_address_, self.instance});
    return;
  }
  link.on_resolved(Status(Code::kNotFound, str("\"", link.key(),
                                               "\" is not connected, and without a registry (ctrl_url) only "
                                               "\"host:port\" can be reached")));
}

void Switchboard::on_keys(const std::string& name, std::uint64_t attempt) {
  Link* const link = links_.find(name);
  if (link != nullptr && !closing_) link->on_keys(attempt);
}

void Switchboard::on_resolved(const std::string& name, Result<DirectoryEntry> entry) {
  Link* link = links_.find(name);
  if (link == nullptr || closing_) return;
  if (entry && leads_elsewhere(*link, entry->instance)) {
    // Another process has the name. Operations in flight on the old connection may end; new ones go
    // to the new owner.
    const SessionPtr session = link->session();
    link->detach(Status(Code::kUnavailable, str(name, " is another process now")));
    if (session->links.empty()) drain(*session, limits::kCloseBound, true);
  }
  link->on_resolved(std::move(entry));
}

// Returns whether the link is connected to a process other than `owner`.
bool Switchboard::leads_elsewhere(const Link& link, const InstanceId& owner) {
  return link.session() != nullptr && link.session()->peer().instance != owner &&
         link.machine().state() == ConnectionState::kReady;
}

std::unique_ptr<transport::Connecting> Switchboard::connect(Link& link, std::uint64_t attempt,
                                                            const std::string& address,
                                                            transport::PeerIdentity expected) {
  make_room();  // result ignored: a connection that this agent opens may exceed the limit
  std::vector<transport::Outlet> outlets = outlets_();
  const bool known = !expected.instance.is_zero();
  avoided_.apply(known ? expected.instance : link.identity().instance, outlets, loop_.now());
  return transport::connect(loop_, std::move(outlets), address, std::move(expected), options_.handshake,
                            [this, key = link.key(), attempt](Result<transport::Connected> result) {
                              handshake_done(key, attempt, std::move(result));
                            });
}

void Switchboard::handshake_done(const std::string& key, std::uint64_t attempt,
                                 Result<transport::Connected> result) {
  Link* link = links_.find(key);
  // the attempt was given up
  if (link == nullptr || link->attempt() != attempt || closing_) return;
  if (result) {
    Status named = check_agent_name("peer name", result->peer.name);
    if (named.ok()) return arrived(std::move(*result), link);
    result = std::move(named);
  }
  if (result.status().code() == Code::kUnauthenticated && registry_.refresh_keys && link->wait_for_keys())
    return registry_.refresh_keys(key, attempt);
  const transport::Unreached* const unreached = link->connecting()->unreached();
  if (unreached != nullptr) link->answered(unreached->peer);
  const bool others = unreached != nullptr && avoid(unreached->peer, unreached->provider, result.status());
  link->on_handshake_failed(std::move(result).error(), others);
}

// Avoids `provider` for new connections to the peer. Returns false, and avoids nothing, if no other
// provider is left to try: the caller then handles the failure like any other.
bool Switchboard::avoid(const transport::PeerIdentity& peer, const std::string& provider,
                        const Status& cause) {
  auto outlets = outlets_();
  avoided_.apply(peer.instance, outlets, loop_.now());
  const bool others = std::any_of(outlets.begin(), outlets.end(), [&](const transport::Outlet& outlet) {
    return outlet.provider != provider && outlet.available.ok();
  });
  if (!others || peer.instance.is_zero() || !avoided_.add(peer.instance, provider, cause, loop_.now()))
    return false;
  SLIME_LOG(LogLevel::kWarning, "agent", options_.handshake.self.name, ": ", provider, " failed with ",
            peer.name, ", so new connections to it do without for ",
            std::chrono::duration_cast<std::chrono::seconds>(limits::kAvoidFabric).count(),
            " s: ", cause.text());
  return true;
}

// Returns a session with the peer of this link, if the peer's instance is known; else null.
Switchboard::SessionPtr Switchboard::find_session(const Link& link) {
  InstanceId instance = link.identity().instance;
  if (link.by_name()) {
    if (const auto entry = cached_entry(link.key())) instance = entry->instance;
  }
  auto it = pairings_.find(instance);
  // Without a registry, a name means the peer that connected last under it. hope() may return a
  // session that is not ready yet.
  if (it == pairings_.end() && link.by_name() && !options_.has_registry) it = pairing_named(link.key());
  return it == pairings_.end() ? nullptr : session_by_id(it->second.hope());
}

// Returns the pairing of the peer that connected last under this name.
Switchboard::Pairings::iterator Switchboard::pairing_named(std::string_view name) {
  for (auto session = sessions_.rbegin(); session != sessions_.rend(); ++session) {
    if (session->second->peer().name != name) continue;
    if (const auto it = pairings_.find(session->second->peer().instance); it != pairings_.end()) return it;
  }
  return pairings_.end();
}

// -------------------------------------------------------------------------------------- handshakes

Status Switchboard::on_hello(const transport::PeerIdentity& peer) noexcept {
  if (closing_) return Status(Code::kUnavailable, str(options_.handshake.self.name, " is closing"));
  SLIME_TRY(check_agent_name("peer name", peer.name));
  if (make_room()) return {};
  return Status(Code::kResourceExhausted, str(options_.handshake.self.name, " has ", options_.max_connections,
                                              " connections and none of them is idle"));
}

void Switchboard::on_connected(transport::Connected connected) noexcept {
  if (closing_) return;
  arrived(std::move(connected), nullptr);
}

Pairing& Switchboard::pairing_of(const InstanceId& instance) {
  // The agent with the larger instance id is the arbiter. An agent is also the arbiter of
  // connections to itself, so its operations use only one of them.
  return pairings_.try_emplace(instance, options_.handshake.self.instance >= instance).first->second;
}

bool Switchboard::passive(const Session& session) const {
  return session.peer().instance == options_.handshake.self.instance && !session.initiator();
}

// Joins the two ends of a connection of the agent to itself, once both have arrived: messages are
// received at the accepted end.
void Switchboard::join_ends(const SessionPtr& session) {
  for (const auto& [id, other] : sessions_) {
    if (!other->other_end_of(*session)) continue;
    (session->initiator() ? session : other)->receive_at(session->initiator() ? other : session);
    return;
  }
}

void Switchboard::arrived(transport::Connected connected, Link* link) {
  const auto session = std::make_shared<Session>(context_, std::move(connected));
  const InstanceId instance = session->peer().instance;
  Pairing::Arrival arrival;
  if (instance == options_.handshake.self.instance) join_ends(session);
  Pairing* const pairing = passive(*session) ? nullptr : &pairing_of(instance);
  if (pairing != nullptr) arrival = pairing->arrived(session->id(), session->initiator());
  switch (arrival.verdict) {
    case Pairing::Verdict::kOpen:
      sessions_.emplace(session->id(), session);
      live_.fetch_add(1, std::memory_order_acq_rel);
      session->open();
      if (link != nullptr) link->attach(session);
      break;
    case Pairing::Verdict::kHold:
      sessions_.emplace(session->id(), session);
      live_.fetch_add(1, std::memory_order_acq_rel);
      break;
    case Pairing::Verdict::kDrop:
      // The link uses the current session. The new session is destroyed on return, so the peer sees
      // its connection close unused.
      if (link != nullptr) link->attach(session_by_id(pairing->current()));
      break;
  }
  apply(arrival.changes);
}

void Switchboard::apply(const Pairing::Changes& changes) {
  if (const SessionPtr held = session_by_id(changes.open)) held->open();
  if (const SessionPtr old = session_by_id(changes.retire)) drain(*old, limits::kCloseBound, true);
  for (const Pairing::Id id : changes.drop) {
    if (const SessionPtr held = session_by_id(id)) {
      held->drain(Nanos::zero(), true);
      release(*held);
    }
  }
  if (const SessionPtr asked = session_by_id(changes.probe)) asked->probe(limits::kProbeTimeout);
}

Switchboard::SessionPtr Switchboard::session_by_id(Pairing::Id id) const {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second;
}

// Removes a closed session, and destroys it in a later turn.
void Switchboard::release(Session& session) {
  const auto it = sessions_.find(session.id());
  if (it == sessions_.end()) return;
  totals_.add(session.channel_counters());
  loop_.post([held = std::move(it->second)] {});
  sessions_.erase(it);
  live_.fetch_sub(1, std::memory_order_acq_rel);
}

// ---------------------------------------------------------------------------------------- sessions

void Switchboard::on_session_ready(Session& session) {
  const SessionPtr self = session_by_id(session.id());
  if (self == nullptr) return;
  ++totals_.made;
  if (!passive(session)) {
    const Pairing::Changes changes = pairing_of(session.peer().instance).ready(session.id());
    attach_links(self);
    apply(changes);
  }
  keys_.on_ready(session);
  if (!session.initiator() && handlers_.connected)
    handlers_.connected(peer_of_session(session, passive(session)), session.id());
}

void Switchboard::expel(Session& session, Status reason) {
  SLIME_LOG(LogLevel::kWarning, "agent", options_.handshake.self.name, ": ends the connection with ",
            session.peer().name, ": ", reason.text());
  const bool held = session.state() == Session::State::kHeld;
  const Pairing::Changes changes = retire(session);
  session.expel(std::move(reason));
  if (held) release(session);
  apply(changes);
}

// Makes all links that lead to this peer use the new session, opened by either side.
void Switchboard::attach_links(const SessionPtr& session) {
  // Walks over a copy: a link that becomes ready runs callbacks, which may change session->links.
  const auto attached = session->links;
  for (Link* link : attached) {
    if (!session->ready()) return;
    if (link->session() == session && link->machine().state() != ConnectionState::kReady)
      link->on_session_ready();
  }
  std::vector<Link*> others;
  Link& named = link_for(session->peer().name);
  if (named.session() != session && displaces(*session, named)) others.push_back(&named);
  for (Link* link : links_.of_instance(session->peer().instance)) {
    if (link != &named && link->session() != session) others.push_back(link);
  }
  for (Link* link : others) {
    if (!session->ready()) return;
    if (link->session() == session) continue;
    if (link->machine().state() == ConnectionState::kReady) link->detach(Status());
    link->attach(session);
  }
}

// Returns whether `session`, whose peer has the link's name, takes over the link. With a registry,
// the link stays with the instance that the registry names. Without a registry names need not be
// unique, and the newest session takes the link.
bool Switchboard::displaces(const Session& session, const Link& link) {
  if (!link.session() || link.session()->peer().instance == session.peer().instance) return true;
  const auto entry = cached_entry(link.key());
  return !entry || entry->instance != link.session()->peer().instance;
}

void Switchboard::on_session_imm(Session& session, std::uint32_t imm) {
  if (handlers_.imm) handlers_.imm(session, imm);
}

void Switchboard::release_credit(Pairing::Id session) {
  if (const SessionPtr found = session_by_id(session)) found->channel().endpoint().release_credits(1);
}

void Switchboard::on_session_alive(Session& session) {
  const auto it = pairings_.find(session.peer().instance);
  if (it != pairings_.end()) apply(it->second.probed_alive(session.id()));
}

void Switchboard::on_session_closed(Session& session, const Status& reason) {
  const InstanceId instance = session.peer().instance;
  const SessionPtr self = session_by_id(session.id());
  const auto links = session.links;
  Pairing::Changes changes;
  SessionPtr replacement;
  if (const auto it = pairings_.find(instance); it != pairings_.end()) {
    changes = it->second.closed(session.id());
    replacement = session_by_id(it->second.hope());
    if (it->second.empty()) pairings_.erase(it);
  }
  const bool others = session.unreached() && avoid(session.peer(), session.provider(), reason);
  release(session);
  apply(changes);
  for (Link* link : links) {
    if (link->session() == self) link->on_session_closed(reason, replacement, others);
  }
  if (handlers_.closed) handlers_.closed(session.peer().name, session.id());
}

void Switchboard::drain(Session& session) { drain(session, limits::kCloseBound, false); }

void Switchboard::drain(Session& session, Nanos bound, bool abandoned) {
  const Pairing::Changes changes = retire(session);
  session.drain(bound, abandoned);
  apply(changes);
}

void Switchboard::on_session_closing(Session& session) { apply(retire(session)); }

Pairing::Changes Switchboard::retire(Session& session) {
  const auto links = session.links;
  for (Link* link : links) link->on_session_draining();
  const auto it = pairings_.find(session.peer().instance);
  if (it == pairings_.end()) return {};
  Pairing::Changes changes = it->second.closed(session.id());
  if (it->second.empty()) pairings_.erase(it);
  return changes;
}

bool Switchboard::make_room() {
  if (sessions_.size() < options_.max_connections) return true;
  std::size_t staying = 0;
  SessionPtr oldest;
  for (const auto& [id, session] : sessions_) {
    if (session->state() != Session::State::kDraining) ++staying;
    const std::uint64_t used = session->last_use();
    if (!session->ready() || !session->idle() || (oldest && used >= oldest->last_use())) continue;
    oldest = session;
  }
  if (staying < options_.max_connections) return true;
  if (!oldest) return false;
  drain(*oldest, limits::kCloseBound, true);
  return true;
}

// --------------------------------------------------------------------------- the registry, regions

void Switchboard::on_registry_event(const ctrl::Event& event) {
  if (closing_) return;
  if (event.kind == ctrl::EventKind::kExpired) {
    const auto it = pairings_.find(event.instance);
    const SessionPtr session = it == pairings_.end() ? nullptr : session_by_id(it->second.current());
    // An expired lease does not prove that the connection is dead: a peer that answers the probe is
    // alive. The timeout of the probe is at least outage_tolerated.
    if (session && session->ready()) {
      const int silent_ms = transport::keepalive_for(options_.outage_tolerated).silent_ms();
      session->probe(std::max(limits::kProbeTimeout, Nanos(std::chrono::milliseconds(silent_ms))));
    }
    return;
  }
  if (event.kind != ctrl::EventKind::kRegistered) return;
  Link* link = links_.find(event.name);
  if (link == nullptr) return;
  // Skips events about earlier owners of the name: a look-up may return the newest owner before
  // those events arrive.
  const auto known = cached_entry(event.name);
  if (known && known->incarnation > event.incarnation) return;
  // The event may be about a former owner of the name, while the link is connected to its
  // successor: asks the registry for the present owner.
  if (leads_elsewhere(*link, event.instance) && registry_.look_up) registry_.look_up(event.name);
  link->retry_soon();
}

void Switchboard::revoke(const std::vector<std::string>& regions) {
  for (const auto& [id, session] : sessions_) {
    for (const std::string& region : regions) session->revoke(region);
  }
}

// ----------------------------------------------------------------------------------------- closing

void Switchboard::close(Nanos bound) {
  closing_ = true;
  keys_.stop_asking();
  first_use_->close();
  for (const auto& [key, link] : links_) link->fail_all(closed_status());
  const auto sessions = sessions_;
  for (const auto& [id, session] : sessions) {
    const bool held = session->state() == Session::State::kHeld;
    drain(*session, bound, false);
    if (held) release(*session);
  }
}

bool Switchboard::busy() const {
  return std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
    return entry.second->state() != Session::State::kHeld && !entry.second->idle();
  });
}

void Switchboard::cut_all() {
  const auto sessions = sessions_;
  for (const auto& [id, session] : sessions) {
    session->cut(Status(Code::kUnavailable, "the agent was closed and its time to end was over"));
    release(*session);
  }
}

// ------------------------------------------------------------------------------------------- views

std::vector<PeerView> Switchboard::view() const {
  std::vector<PeerView> out;
  out.reserve(links_.size());
  for (const auto& [key, link] : links_) out.push_back(view_of(*link));
  return out;
}

void BoardCounters::add(const rpc::ChannelCounters& channel) {
  receives_given_back += channel.receives_given_back;
  over_budget += channel.over_budget;
  answers_revoked += channel.answers_revoked;
}

BoardCounters Switchboard::counters() const {
  BoardCounters out = totals_;
  out.connections = sessions_.size();
  for (const auto& [id, session] : sessions_) out.add(session->channel_counters());
  return out;
}

OperationsView Switchboard::operations() const {
  OperationsView out;
  const TimePoint now = loop_.now();
  operations_.for_each([&](const PeerOperation& operation) {
    if (out.count++ >= limits::kShownOperations) return;
    out.oldest.push_back({operation.describe(), operation.peer(), operation.stage(), now - operation.began,
                          operation.deadline - now});
  });
  return out;
}

PeerView Switchboard::view(NamedPeer& peer) const {
  if (peer.connection != 0) {
    const SessionPtr session = session_by_id(peer.connection);
    if (session != nullptr && session->state() != Session::State::kClosed)
      return view_of(peer.name, *session);
  } else if (const Link* const link = links_.find(peer)) {
    return view_of(*link);
  }
  PeerView out;
  out.name = peer.name;
  if (peer.connection == 0) return out;
  out.state = ConnectionState::kBroken;
  out.error = connection_ended(peer.name);
  return out;
}

std::shared_ptr<NamedPeer> Switchboard::peer_of(std::uint64_t connection) const {
  const SessionPtr session = session_by_id(connection);
  if (session == nullptr || !session->ready()) return nullptr;
  return peer_of_session(*session, passive(*session));
}

}  // namespace slime::agent
