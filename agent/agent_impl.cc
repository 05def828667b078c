#include "agent/agent_impl.h"

#include <algorithm>
#include <utility>

#include "agent/agents.h"
#include "agent/connecting/target.h"
#include "agent/limits.h"
#include "base/log.h"
#include "base/reaper.h"
#include "base/str.h"
#include "ctrl/client/token_file.h"
#include "ctrl/limits.h"
#include "transport/outage.h"

namespace slime {
namespace {

// Returns `options`. An empty name is replaced by a name made from the instance id.
PeerAgentOptions named(PeerAgentOptions options, const InstanceId& instance) {
  if (options.name.empty()) options.name = str("agent-", instance.to_string().substr(0, 12));
  return options;
}

}  // namespace

// ------------------------------------------------------------------------------------------- start

PeerAgentImpl::PeerAgentImpl(PeerAgentOptions options)
    : options_(named(std::move(options), instance_)),
      admission_(std::make_shared<agent::Admission>(options_.name)),
      pending_peers_(options_.accepts ? std::make_unique<agent::PendingPeers>() : nullptr) {}

Result<std::unique_ptr<PeerAgent>> PeerAgentImpl::start(PeerAgentOptions options,
                                                        transport::ProviderTable table) {
  SLIME_TRY(options.validate());
  if (options.outage_tolerated == Nanos::zero()) {
    const auto outage = transport::outage_from_environment();
    if (!outage) return outage.error();
    options.outage_tolerated = *outage;
  }
  const std::shared_ptr<PeerAgentImpl> out(new PeerAgentImpl(std::move(options)), &PeerAgentImpl::destroy);
  Status status = out->listen(table);
  if (status.ok()) status = out->enroll();
  if (status.ok()) {
    agent::remember(out);
    return std::unique_ptr<PeerAgent>(new PeerAgent(out));
  }
  out->close(Nanos::zero()).ignore();
  return status;
}

Status PeerAgentImpl::listen(transport::ProviderTable table) {
  auto devices = agent::Devices::open(options_.provider, table, {.verbs = options_.verbs});
  if (!devices) return std::move(devices).error();
  devices_ = std::move(*devices);

  transport::LoopOptions waiting;
  waiting.max_spin = options_.progress == Progress::kCaller ? transport::limits::kCallerSpin
                                                            : transport::limits::kThreadSpin;
  if (options_.progress == Progress::kPolled) waiting.nap = transport::limits::kLoopPolledNap;
  auto loop = transport::Loop::create(waiting);
  if (!loop) return std::move(loop).error();
  loop_ = std::move(*loop);
  server_ = std::make_shared<rpc::Server>(options_.server);
  auto ports = devices_->open_ports(*loop_, {.outage_tolerated = options_.outage_tolerated});
  if (!ports) return std::move(ports).error();
  ports_ = std::move(*ports);

  agent::Switchboard::Options board;
  board.handshake.self = {options_.name, instance_};
  board.handshake.token = options_.token;
  if (options_.token.empty() && !options_.ctrl_url.empty()) {
    const auto client = ctrl::client_options(options_.ctrl_url, options_.ctrl_token, options_.ctrl_ca_file);
    if (!client) return client.status().with_context("ctrl_token");
    if (!client->token.empty()) keyring_ = std::make_shared<agent::Keyring>();
  }
  if (keyring_) board.handshake.keys = [keyring = keyring_] { return keyring->handshake_keys(); };
  board.keyring = keyring_;
  board.max_connections = options_.max_connections;
  board.streams = options_.streams;
  board.memory_bytes = options_.memory_bytes;
  board.max_payload_bytes = options_.max_payload_bytes;
  board.outage_tolerated = options_.outage_tolerated;
  board.has_registry = !options_.ctrl_url.empty();
  const transport::HandshakeOptions handshake = board.handshake;
  const transport::Outlets outlets = [this] { return devices_->outlets(ports_); };
  memory_ = std::make_unique<agent::AgentMemory>(
      weak_from_this(), *admission_, devices_, [this](std::vector<std::string> names) {
        loop_->dispatch(
            [self = shared_from_this(), names = std::move(names)] { self->switchboard_->revoke(names); });
      });
  switchboard_ = std::make_unique<agent::Switchboard>(*loop_, *devices_, outlets, *server_,
                                                      memory_->regions(), std::move(board));
  starter_ = std::make_unique<agent::OperationStarter>(
      agent::OperationStarter::Parts{.owner = weak_from_this(),
                                     .admission = *admission_,
                                     .loop = loop_,
                                     .driver = std::make_shared<agent::AgentDriver>(loop_, admission_),
                                     .switchboard = *switchboard_,
                                     .memory = *memory_},
      options_.progress, options_.timeout);
  discovery_ = std::make_shared<agent::Discovery>(*loop_);
  calling_.emplace(agent::CallingAgent{.starter = *starter_,
                                       .discovery = *discovery_,
                                       .scope = options_.scope,
                                       .ctrl_url = options_.ctrl_url,
                                       .timeout = options_.timeout});
  keeper_ = std::make_unique<agent::Keeper>(
      *loop_, [this](const std::string& name, agent::OperationPtr<agent::PeerOperation> operation) {
        agent::NamedPeer peer_named(name);
        switchboard_->submit(peer_named, std::move(operation));
      });
  // The handlers may capture `this`: only sessions call them, and close() ends every session before
  // the agent is destroyed.
  switchboard_->set_handlers(
      {.imm =
           [this](agent::Session& session, std::uint32_t imm) {
             if (!imm_handler_) return;
             const slime::detail::FutureCore::OutsideBurst outside;
             NotificationCredit credit(weak_from_this(), session);
             imm_handler_(peer(session.named_peer()), imm, credit);
           },
       .connected = [this](const std::shared_ptr<agent::NamedPeer>& from,
                           std::uint64_t connection) { opened_session(from, connection); },
       .closed = [this](const std::string& name_of_peer,
                        std::uint64_t connection) { closed_session(name_of_peer, connection); }});
  auto listener = transport::Listener::listen(*loop_, outlets, options_.listen, options_.insecure, handshake,
                                              *switchboard_);
  if (!listener) return std::move(listener).error();
  listener_ = std::move(*listener);
  switchboard_->set_address(listener_->address());
  auto shown = advertised();
  if (!shown) return std::move(shown).error();
  address_ = std::move(*shown);
  return {};
}

Result<std::string> PeerAgentImpl::advertised() const {
  if (options_.advertise.empty()) return listener_->address();
  auto shown = Address::parse(options_.advertise);
  if (!shown) return std::move(shown).error();
  if (shown->port == 0) {
    const auto real = Address::parse(listener_->address());
    if (!real) return real.error();
    shown->port = real->port;
  }
  return shown->to_string();
}

// Registers the agent. Peers can find it from here on, so all other parts must exist.
Status PeerAgentImpl::enroll() {
  if (options_.ctrl_url.empty()) {
    if (options_.progress != Progress::kCaller) loop_->start_thread();
    return {};
  }
  auto client = ctrl::client_options(options_.ctrl_url, options_.ctrl_token, options_.ctrl_ca_file);
  if (!client) return std::move(client).error().with_context("ctrl_token");
  agent::RegistrarOptions registrar;
  registrar.client = std::move(*client);
  registrar.heartbeat = options_.heartbeat;
  registrar.keyring = keyring_;
  registrar.on_keys = [this] { note_keys(); };
  registrar.self.name = options_.name;
  registrar.self.scope = options_.scope;
  registrar.self.instance = instance_;
  registrar.self.address = address_;
  registrar.self.kind = options_.kind;
  registrar.self.providers = devices_->names();
  if (options_.report_links) registrar.report = [this] { return report(); };
  if (options_.progress != Progress::kCaller) loop_->start_thread();
  auto started = agent::Registrar::start(
      std::move(registrar),
      [this](const ctrl::Event& event) {
        discovery_->on_event(event);
        note_event(event);
      },
      [this](bool complete) { discovery_->on_news(complete); },
      [this](std::vector<std::string> links) {
        loop_->post([this, links = std::move(links)]() mutable { keeper_->want(std::move(links)); });
      });
  if (!started) return std::move(started).error();
  registrar_ = std::move(*started);
  memory_->announce_to(*registrar_);
  SLIME_TRY(check_exposure());
  discovery_->use(*registrar_);
  agent::Switchboard::Registry registry;
  registry.directory = &registrar_->directory();
  registry.look_up = [this](const std::string& name) {
    registrar_->look_up(name, [this, name](Result<agent::DirectoryEntry> entry) {
      loop_->post([this, name, entry = std::move(entry)]() mutable {
        switchboard_->on_resolved(name, std::move(entry));
      });
    });
  };
  if (keyring_) {
    registry.refresh_keys = [this](const std::string& name, std::uint64_t attempt) {
      registrar_->refresh_keys([this, name, attempt] {
        loop_->post([this, name, attempt] { switchboard_->on_keys(name, attempt); });
      });
    };
  }
  loop_->run([&] {
    switchboard_->set_registry(std::move(registry));
    keeper_->start();
  });
  return {};
}

// Returns kPermissionDenied if the agent relies on keys of nanoctrl, nanoctrl gave none, and the
// agent listens beyond loopback without the option `insecure`.
Status PeerAgentImpl::check_exposure() const {
  if (!keyring_ || !keyring_->set().keys.empty() || options_.insecure) return {};
  const auto listening = Address::parse(options_.listen);
  const auto address = listening ? SocketAddress::numeric(*listening) : listening.status();
  if (address && address->is_loopback()) return {};
  return Status(
      Code::kPermissionDenied,
      str(options_.listen, " can be reached from other machines, and ", options_.ctrl_url,
          " requires no tokens, so it has no keys for its agents: set a token, which all of them need, "
          "or say that it may be insecure"));
}

// Queues an event of the registry for the loop. The queue grows while no thread drives the loop;
// at kPendingEvents it drops the oldest event, because each is only a hint to ask the registry
// again.
// Runs on the registrar's thread, which ends before the agent's other parts.
void PeerAgentImpl::note_event(const ctrl::Event& event) {
  {
    const MutexLock lock(events_mutex_);
    if (events_.size() >= agent::limits::kPendingEvents) events_.pop_front();
    events_.push_back(event);
    if (events_.size() > 1) return;  // a posted task will take them
  }
  loop_->post([this] {
    std::deque<ctrl::Event> events;
    {
      const MutexLock lock(events_mutex_);
      events.swap(events_);
    }
    for (const ctrl::Event& one : events) switchboard_->on_registry_event(one);
  });
}

// Posts a task that applies the changed keys on the loop, unless such a task is posted already.
// Runs on the registrar's thread.
void PeerAgentImpl::note_keys() {
  if (keys_noted_.exchange(true)) return;
  loop_->post([this] {
    keys_noted_ = false;
    switchboard_->on_new_keys();
  });
}

PeerAgentImpl::~PeerAgentImpl() { close(Nanos::zero()).ignore(); }

bool PeerAgentImpl::on_own_thread() const {
  return (loop_ && loop_->drives()) || (server_ && server_->on_worker()) ||
         (registrar_ && registrar_->on_thread());
}

std::shared_ptr<rpc::Server> PeerAgentImpl::take_server() {
  const MutexLock lock(close_mutex_);
  return std::move(server_);
}

// Deletes the agent. If one of the agent's own threads drops the last reference, another thread
// deletes it. In a child of fork(), which has none of these threads, the agent is leaked.
void PeerAgentImpl::destroy(PeerAgentImpl* agent) {
  if (agent->forked()) return;
  if (!agent->on_own_thread()) {
    delete agent;
    return;
  }
  reap([agent] { delete agent; });
}

// ------------------------------------------------------------------------------------------- peers

Peer PeerAgentImpl::peer(std::string name) {
  return peer(std::make_shared<agent::NamedPeer>(std::move(name)));
}
Peer PeerAgentImpl::peer(std::shared_ptr<agent::NamedPeer> named) {
  return Peer(shared_from_this(), std::move(named));
}

Status PeerAgentImpl::check_may_wait() const {
  if (forked() || !loop_ || !loop_->drives()) return {};
  return Status(Code::kInvalidArgument,
                "this waits for the loop, and was called by the loop (a callback, an "
                "inline handler): use a future and then()");
}

Status PeerAgentImpl::disconnect(agent::NamedPeer& peer) {
  const agent::Admission::Pass pass(*admission_);
  if (!pass) return admission_->refusal();
  loop_->run([&] { switchboard_->disconnect(peer); });
  return {};
}

void PeerAgentImpl::opened_session(const std::shared_ptr<agent::NamedPeer>& peer, std::uint64_t connection) {
  // As in closed_session().
  if (loop_->borrowed()) {
    loop_->post([self = shared_from_this(), peer, connection] { self->opened_session(peer, connection); });
    return;
  }
  if (pending_peers_) pending_peers_->push(peer);
  const auto handlers = connect_handlers_;  // copied: a handler may add another
  const slime::detail::FutureCore::OutsideBurst outside;
  for (const auto& handler : handlers) handler(peer->name, connection);
}

void PeerAgentImpl::closed_session(const std::string& peer, std::uint64_t connection) {
  // A thread has borrowed the loop to begin an operation, and must not run user callbacks: runs
  // this function again in a later turn.
  if (loop_->borrowed()) {
    loop_->post([self = shared_from_this(), peer, connection] { self->closed_session(peer, connection); });
    return;
  }
  keeper_->lost(peer);
  const auto handlers = disconnect_handlers_;  // copied: a handler may add another
  {
    const slime::detail::FutureCore::OutsideBurst outside;
    for (const auto& handler : handlers) handler(peer, connection);
  }
  { const MutexLock lock(sessions_mutex_); }
  sessions_changed_.notify_all();
}

// ----------------------------------------------------------------------------------------- serving

Status PeerAgentImpl::publish(std::string_view name, const MemoryRegion& region) {
  const auto change = memory_->publish(name, region);
  if (!change) return change.error();
  if (*change != 0 && !loop_->drives()) registrar_->wait_announced(*change, agent::limits::kAnnounceWait);
  return {};
}

Status PeerAgentImpl::serve(rpc::Service& service) {
  agent::Admission::Pass pass(*admission_);
  if (!pass) return admission_->refusal();
  ctrl::ServiceInfo shown{.name = service.name(), .kind = options_.kind, .methods = {}};
  for (const auto& [method, handler] : service.methods()) shown.methods.push_back(method);
  // nanoctrl accepts a limited number of methods for each service, and only valid method names. A
  // service that does not fit is registered without its methods; the agent still serves all of
  // them.
  const bool unfit = shown.methods.size() > ctrl::limits::kMethodsPerService ||
                     std::any_of(shown.methods.begin(), shown.methods.end(), [](const std::string& method) {
                       return !ctrl::check_name("method", method).ok();
                     });
  if (unfit) shown.methods.clear();
  SLIME_TRY(server_->add(service));
  if (!registrar_) return {};
  if (const Status fit = ctrl::check_name("service", shown.name); !fit.ok()) {
    SLIME_LOG(LogLevel::kWarning, "agent", options_.name, ": ", options_.ctrl_url,
              " does not show it: ", fit.text());
    return {};
  }
  const std::uint64_t change = registrar_->put_service(std::move(shown));
  pass.leave();  // so close() does not wait for the registry's answer below
  if (!loop_->drives()) registrar_->wait_announced(change, agent::limits::kAnnounceWait);
  discovery_->note_change();
  return {};
}

ServiceProxy PeerAgentImpl::proxy(std::string service, ProxyOptions options) {
  // A child of fork() must not lock discovery_: a thread that exists only in the parent may have
  // held the mutex at the fork.
  auto servers = forked() ? nullptr : discovery_->servers(service);
  return ServiceProxy({shared_from_this(), &*calling_}, std::move(servers), std::move(service),
                      std::move(options));
}

void PeerAgentImpl::add_interceptor(std::shared_ptr<rpc::ServerInterceptor> interceptor) {
  const agent::Admission::Pass pass(*admission_);
  if (pass) server_->add_interceptor(std::move(interceptor));
}

Status PeerAgentImpl::drain(Nanos bound) {
  SLIME_TRY(check_may_wait());
  agent::Admission::Pass pass(*admission_);
  if (!pass) return admission_->refusal();
  const std::shared_ptr<rpc::Server> server = server_;
  pass.leave();
  return server->drain(bound);
}

void PeerAgentImpl::on_imm(ImmHandler handler) {
  const agent::Admission::Pass pass(*admission_);
  if (!pass) return;
  loop_->run([&] { std::swap(imm_handler_, handler); });
}

void PeerAgentImpl::release_credit(std::uint64_t session) {
  const agent::Admission::Pass pass(*admission_);
  if (!pass) return;  // closing the connection gives the credit back
  loop_->dispatch([self = shared_from_this(), session] { self->switchboard_->release_credit(session); });
}

void PeerAgentImpl::on_connect(ConnectionHandler handler) {
  const agent::Admission::Pass pass(*admission_);
  if (!pass) return;
  loop_->run([&] { connect_handlers_.push_back(std::move(handler)); });
}

Result<Peer> PeerAgentImpl::accept(Nanos timeout) {
  SLIME_TRY(check_may_wait());
  if (forked()) return admission_->refusal();
  if (!pending_peers_) {
    return Status(Code::kInvalidArgument,
                  "this agent does not keep the peers that connect: start it with PeerAgentOptions::accepts");
  }
  auto accepted = pending_peers_->take(*starter_->driver(), timeout);
  if (!accepted) return std::move(accepted).error();
  return peer(std::move(*accepted));
}

Result<Peer> PeerAgentImpl::peer_of(std::uint64_t connection) {
  const agent::Admission::Pass pass(*admission_);
  if (!pass) return admission_->refusal();
  std::shared_ptr<agent::NamedPeer> found;
  loop_->run([&] { found = switchboard_->peer_of(connection); });
  if (found == nullptr) return Status(Code::kNotFound, str("connection ", connection, " does not exist"));
  return peer(std::move(found));
}

void PeerAgentImpl::on_disconnect(ConnectionHandler handler) {
  const agent::Admission::Pass pass(*admission_);
  if (!pass) return;
  loop_->run([&] { disconnect_handlers_.push_back(std::move(handler)); });
}

bool PeerAgentImpl::poll(Nanos budget) {
  if (options_.progress != Progress::kCaller || forked() || loop_->drives()) return false;
  return loop_->poll(budget);
}

void PeerAgentImpl::wake() {
  if (!forked()) loop_->post([] {});
}

// ------------------------------------------------------------------------------------------- close

Status PeerAgentImpl::close(Nanos bound) {
  if (forked()) return admission_->refusal();
  SLIME_TRY(check_may_wait());
  const MutexLock lock(close_mutex_);
  if (closed_) return close_status_;
  admission_->close();
  if (pending_peers_) pending_peers_->close();
  close_status_ = close_parts(bound);
  closed_ = true;
  return close_status_;
}

Status PeerAgentImpl::close_parts(Nanos bound) {
  if (!switchboard_) return {};  // start() failed early: nothing to end
  const TimePoint deadline = deadline_after(loop_->now(), bound);
  // Refuses new requests. The second drain() below waits for running handlers.
  server_->drain(Nanos::zero()).ignore();
  bool busy = false;
  loop_->run([&] {
    busy = switchboard_->busy();
    listener_.reset();
    keeper_->close();
    switchboard_->close(bound);
    discovery_->close();
  });
  if (registrar_) {
    const Nanos time =
        std::clamp(bound, Nanos(std::chrono::milliseconds(200)), Nanos(agent::limits::kDeregisterWait));
    if (const Status status = registrar_->close(time); !status.ok())
      SLIME_LOG(LogLevel::kWarning, "agent", options_.name, ": ", status.to_string());
  }
  // Channels close on their own at `deadline`. Cuts off channels that are still open kCloseGrace
  // later.
  if (!wait_for_sessions(deadline_after(deadline, agent::limits::kCloseGrace)))
    loop_->run([&] { switchboard_->cut_all(); });
  Status status;
  if (busy && loop_->now() >= deadline)
    status = Status(Code::kDeadlineExceeded, "what was still in flight at the end of the bound was cut off");
  // Operations that were cut off may still be on the device: closing a region waits for its
  // operations.
  memory_->close_regions(transport::limits::kCloseBound);
  loop_->stop();
  // poll() runs nothing while another thread drives: one that waits for a future, or begins an
  // operation as the agent closes, may do so for a moment. run() waits for it.
  do {
    while (loop_->poll(Nanos::zero())) {
    }
    loop_->run([] {});
  } while (loop_->poll(Nanos::zero()));
  const Status drained = server_->drain(std::max(deadline - loop_->now(), Nanos::zero()));
  if (drained.ok()) {
    // Drops the handlers: a handler may own a Peer, which would keep this agent alive.
    server_.reset();
  } else if (status.ok()) {
    status = drained;
  }
  imm_handler_ = nullptr;
  connect_handlers_.clear();
  disconnect_handlers_.clear();
  return status;
}

bool PeerAgentImpl::wait_for_sessions(TimePoint deadline) {
  const auto none = [this] { return switchboard_->live_sessions() == 0; };
  if (options_.progress == Progress::kCaller) {
    loop_->wait_until(none, deadline);
    return none();
  }
  const MutexLock lock(sessions_mutex_);
  return sessions_changed_.wait_until(sessions_mutex_, deadline, none);
}

}  // namespace slime
