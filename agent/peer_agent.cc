#include "agent/peer_agent.h"

#include <algorithm>
#include <new>
#include <utility>

#include "agent/agent_impl.h"
#include "agent/operations/calls.h"
#include "agent/stub.h"
#include "base/reaper.h"
#include "base/str.h"

namespace slime {
namespace {

Status no_agent() { return Status(Code::kInvalidArgument, "an empty peer: get one from PeerAgent::peer()"); }

}  // namespace

// -------------------------------------------------------------------------------------------- Peer

Future<None> Peer::connect(Nanos timeout) {
  if (!agent_) return Future<None>::ready(no_agent());
  return agent_->starter().submit(peer_, agent_->starter().make<agent::ConnectOperation>(), span(timeout),
                                  wait_for_ready_);
}

Result<RemoteRegion> Peer::region(std::string_view name, Nanos timeout) {
  if (!agent_) return no_agent();
  SLIME_TRY(agent_->check_may_wait());
  return lookup_region(name, timeout).wait();
}

Future<RemoteRegion> Peer::lookup_region(std::string_view name, Nanos timeout) {
  if (!agent_) return Future<RemoteRegion>::ready(no_agent());
  return agent_->starter().submit(peer_, agent_->starter().make<agent::RegionOperation>(std::string(name)),
                                  span(timeout), wait_for_ready_);
}

Future<None> Peer::read(std::span<const Copy> copies, Nanos timeout) {
  if (!agent_) return Future<None>::ready(no_agent());
  return agent_->starter().one_sided(peer_, agent::OneSided::kRead, copies, 0, span(timeout),
                                     wait_for_ready_);
}

Future<None> Peer::write(std::span<const Copy> copies, Nanos timeout) {
  if (!agent_) return Future<None>::ready(no_agent());
  return agent_->starter().one_sided(peer_, agent::OneSided::kWrite, copies, 0, span(timeout),
                                     wait_for_ready_);
}

Future<None> Peer::write_with_imm(std::span<const Copy> copies, std::uint32_t imm, Nanos timeout) {
  if (!agent_) return Future<None>::ready(no_agent());
  return agent_->starter().one_sided(peer_, agent::OneSided::kWriteWithImm, copies, imm, span(timeout),
                                     wait_for_ready_);
}

Future<None> Peer::read_blocks(const BlockIds& blocks, Nanos timeout) {
  if (!agent_) return Future<None>::ready(no_agent());
  return agent_->starter().blocks(peer_, agent::OneSided::kRead, blocks, span(timeout), wait_for_ready_);
}

Future<None> Peer::write_blocks(const BlockIds& blocks, Nanos timeout) {
  if (!agent_) return Future<None>::ready(no_agent());
  return agent_->starter().blocks(peer_, agent::OneSided::kWrite, blocks, span(timeout), wait_for_ready_);
}

Future<std::uint64_t> Peer::fetch_add(const RemoteRegion& remote, std::uint64_t remote_offset,
                                      std::uint64_t add, Nanos timeout) {
  if (!agent_) return Future<std::uint64_t>::ready(no_agent());
  return agent_->starter().atomic(peer_, {.remote = remote, .remote_offset = remote_offset, .value = add},
                                  span(timeout), wait_for_ready_);
}

Future<std::uint64_t> Peer::compare_swap(const RemoteRegion& remote, std::uint64_t remote_offset,
                                         std::uint64_t expected, std::uint64_t desired, Nanos timeout) {
  if (!agent_) return Future<std::uint64_t>::ready(no_agent());
  return agent_->starter().atomic(
      peer_, {.remote = remote, .remote_offset = remote_offset, .value = desired, .expected = expected},
      span(timeout), wait_for_ready_);
}

Future<None> Peer::send(std::uint64_t tag, Bytes bytes, Nanos timeout) {
  if (!agent_) return Future<None>::ready(no_agent());
  ByteVector body;
  try {
    append_bytes(body, bytes);
  } catch (const std::bad_alloc&) {
    return Future<None>::ready(
        Status(Code::kResourceExhausted, str("no memory to copy a message of ", bytes.size(), " bytes")));
  }
  return agent_->starter().submit(peer_, agent_->starter().make<agent::SendOperation>(tag, std::move(body)),
                                  span(timeout), wait_for_ready_);
}

Future<None> Peer::sendv(std::uint64_t tag, rpc::Attachments ranges, Nanos timeout) {
  if (!agent_) return Future<None>::ready(no_agent());
  return agent_->starter().submit(peer_,
                                  agent_->starter().make<agent::SendRangesOperation>(tag, std::move(ranges)),
                                  span(timeout), wait_for_ready_);
}

Future<std::uint64_t> Peer::recvv(std::uint64_t tag, rpc::Destinations ranges, Nanos timeout) {
  if (!agent_) return Future<std::uint64_t>::ready(no_agent());
  return agent_->starter().submit(
      peer_, agent_->starter().make_patient<agent::RecvIntoOperation>(tag, std::move(ranges)), span(timeout),
      wait_for_ready_);
}

template <class T>
Future<T> Peer::receive(std::uint64_t tag, Nanos timeout) {
  if (!agent_) return Future<T>::ready(no_agent());
  return agent_->starter().submit(peer_, agent_->starter().make_patient<agent::RecvOperation<T>>(tag),
                                  span(timeout), wait_for_ready_);
}

Future<Payload> Peer::recv(std::uint64_t tag, Nanos timeout) { return receive<Payload>(tag, timeout); }

Future<rpc::Delivery> Peer::recv_delivery(std::uint64_t tag, Nanos timeout) {
  return receive<rpc::Delivery>(tag, timeout);
}

template <class Call>
auto RawPeer::begin(agent::OperationPtr<Call> call, Nanos timeout) const {
  call->take_for(signature_);
  return agent_->starter().begin(peer_, std::move(call), settings_, span(timeout), wait_for_ready_);
}

Future<Payload> RawPeer::call(std::string_view service, std::string_view method, ByteVector arguments,
                              Nanos timeout) const {
  if (!agent_) return Future<Payload>::ready(no_agent());
  return begin(agent_->starter().make<agent::CallOperation>(service, method, std::move(arguments)), timeout);
}

Future<Payload> RawPeer::call_attached(std::string_view service, std::string_view method,
                                       rpc::AttachedBody request, Nanos timeout) const {
  if (request.attachments.empty() && request.into.empty() && !request.raw)
    return call(service, method, std::move(request.body), timeout);
  if (!agent_) return Future<Payload>::ready(no_agent());
  return begin(agent_->starter().make<agent::AttachedCall>(service, method, std::move(request)), timeout);
}

Future<None> RawPeer::one_way_attached(std::string_view service, std::string_view method,
                                       rpc::AttachedBody request, Nanos timeout) const {
  if (!agent_) return Future<None>::ready(no_agent());
  return begin(agent_->starter().make<agent::OneWayOperation>(service, method, std::move(request)), timeout);
}

RawStream RawPeer::stream_attached(std::string_view service, std::string_view method,
                                   rpc::AttachedBody request, bool reads, Nanos timeout) const {
  if (!agent_) {
    auto end = std::make_shared<rpc::StreamEnd>(nullptr, reads);
    end->stop(no_agent());
    return {std::move(end), Future<Payload>::ready(no_agent())};
  }
  auto end = std::make_shared<rpc::StreamEnd>(agent_->starter().patient_driver(), reads);
  auto operation =
      agent_->starter().make_patient<agent::StreamOperation>(service, method, std::move(request), end);
  // The idle timeout also bounds the time to connect.
  const Nanos total = span(timeout);
  const Nanos idle = idle_timeout_ == Nanos::zero() ? agent_->options().streams.idle_timeout : idle_timeout_;
  operation->set_bounds(total, idle);
  auto result = begin(std::move(operation), total == Nanos::zero() ? idle : std::min(total, idle));
  return {std::move(end), std::move(result)};
}

const std::string& Peer::name() const {
  static const std::string kNone;
  return peer_ ? peer_->name : kNone;
}

std::uint64_t Peer::connection() const { return peer_ ? peer_->connection : 0; }

Result<Peer> Peer::of_connection(Nanos timeout) const {
  if (!agent_) return no_agent();
  SLIME_TRY(agent_->check_may_wait());
  const auto id =
      agent_->starter()
          .submit(peer_, agent_->starter().make<agent::ConnectionOperation>(), span(timeout), wait_for_ready_)
          .wait();
  if (!id) return id.status();
  Peer out = *this;
  out.peer_ = std::make_shared<agent::NamedPeer>(peer_->name, *id);
  return out;
}

Stub Peer::proxy(std::string_view service) const { return {std::string(service), *this}; }

Peer Peer::with_timeout(Nanos timeout) const {
  Peer out = *this;
  out.timeout_ = timeout;
  return out;
}

Peer Peer::with_idle_timeout(Nanos idle_timeout) const {
  Peer out = *this;
  out.idle_timeout_ = idle_timeout;
  return out;
}

Peer Peer::with_signature(const rpc::Signature& signature) const {
  Peer out = *this;
  out.signature_ = signature;
  return out;
}

Peer Peer::with_settings(std::shared_ptr<const rpc::CallSettings> settings) const {
  Peer out = *this;
  out.settings_ = std::move(settings);
  return out;
}

Peer Peer::with_metadata(std::string_view key, std::string_view value, rpc::Need need) const {
  return with_settings(rpc::with_metadata(settings_, key, value, need));
}

Peer Peer::with_timing(std::shared_ptr<rpc::CallTiming> into) const {
  return with_settings(rpc::with_timing(settings_, std::move(into)));
}

Peer Peer::with_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor) const {
  return with_settings(rpc::with_interceptor(settings_, std::move(interceptor)));
}

Peer Peer::wait_for_ready() const {
  Peer out = *this;
  out.wait_for_ready_ = true;
  return out;
}

Status Peer::disconnect() { return agent_ ? agent_->disconnect(*peer_) : no_agent(); }

PeerInfo Peer::info() const { return agent_ ? agent_->peer_info(*peer_) : PeerInfo{}; }

// --------------------------------------------------------------------------------------- PeerAgent

Result<std::unique_ptr<PeerAgent>> PeerAgent::start(PeerAgentOptions options) {
  return PeerAgentImpl::start(std::move(options));
}

std::vector<std::string> PeerAgent::provider_names() { return PeerAgentImpl::provider_names(); }

PeerAgent::~PeerAgent() {
  if (impl_->forked()) {
    // Leaks the agent in a child of fork(): its threads and sockets belong to the parent, so the
    // child must neither join nor close them.
    static_cast<void>(new (std::nothrow) std::shared_ptr<PeerAgentImpl>(std::move(impl_)));
    return;
  }
  if (impl_->on_own_thread()) {
    // A callback or handler of the agent destroys the agent. close() waits for callbacks and
    // handlers, so another thread calls close().
    reap([impl = std::move(impl_)] {
      impl->close(agent::limits::kDestructorBound).ignore();
      impl->take_server().reset();
    });
    return;
  }
  impl_->close(agent::limits::kDestructorBound).ignore();
  if (impl_.use_count() == 1) return;  // destroying impl_ waits for running handlers
  // A running or served handler may own a Peer. The Peer keeps the agent alive, and so the server
  // and its handlers: dropping the server breaks the cycle. Another thread drops it, because
  // waiting here for running handlers could deadlock with the caller.
  if (auto server = impl_->take_server()) reap([server = std::move(server)]() mutable { server.reset(); });
}

const std::string& PeerAgent::name() const { return impl_->options().name; }
std::string PeerAgent::address() const { return impl_->address(); }
InstanceId PeerAgent::instance() const { return impl_->instance(); }
Peer PeerAgent::peer(std::string_view name_or_address) { return impl_->peer(std::string(name_or_address)); }

Result<MemoryRegion> PeerAgent::allocate(std::size_t bytes, Rights rights, MemoryKind kind, Pages pages) {
  return impl_->memory().allocate(bytes, rights, kind, pages);
}
Result<MemoryRegion> PeerAgent::register_memory(void* data, std::size_t bytes, Rights rights,
                                                MemoryKind kind) {
  return impl_->memory().register_memory(data, bytes, rights, kind);
}
Status PeerAgent::publish(std::string_view name, const MemoryRegion& region) {
  return impl_->publish(name, region);
}
Status PeerAgent::unpublish(std::string_view name) { return impl_->memory().unpublish(name); }
Status PeerAgent::serve(rpc::Service& service) { return impl_->serve(service); }
ServiceProxy PeerAgent::proxy(std::string_view service, ProxyOptions options) {
  return impl_->proxy(std::string(service), std::move(options));
}

void PeerAgent::add_interceptor(std::shared_ptr<rpc::ServerInterceptor> interceptor) {
  impl_->add_interceptor(std::move(interceptor));
}
void PeerAgent::add_interceptor(std::shared_ptr<rpc::ClientInterceptor> interceptor) {
  impl_->starter().add_interceptor(std::move(interceptor));
}
Status PeerAgent::drain(Nanos timeout) { return impl_->drain(timeout); }
void PeerAgent::on_imm(std::function<void(Peer, std::uint32_t)> handler) {
  if (!handler) return impl_->on_imm(nullptr);
  impl_->on_imm([handler = std::move(handler)](Peer peer, std::uint32_t imm, NotificationCredit&) {
    handler(std::move(peer), imm);
  });
}

void PeerAgent::on_imm_queued(std::function<void(Peer, std::uint32_t, NotificationCredit&)> handler) {
  impl_->on_imm(std::move(handler));
}

HeldCredit NotificationCredit::hold() {
  session_.channel().endpoint().hold_credit();
  return {std::move(agent_), session_.id()};
}

bool NotificationCredit::leaves_messages() const { return session_.channel().peer_leaves_message_credits(); }

HeldCredit::~HeldCredit() {
  if (const auto agent = agent_.lock()) agent->release_credit(session_);
}
void PeerAgent::on_connect(std::function<void(const std::string& peer, std::uint64_t connection)> handler) {
  impl_->on_connect(std::move(handler));
}
Result<Peer> PeerAgent::accept(Nanos timeout) { return impl_->accept(timeout); }
Result<Peer> PeerAgent::peer_of(std::uint64_t connection) { return impl_->peer_of(connection); }
void PeerAgent::on_disconnect(
    std::function<void(const std::string& peer, std::uint64_t connection)> handler) {
  impl_->on_disconnect(std::move(handler));
}
Result<std::vector<RegisteredPeer>> PeerAgent::list_peers(Nanos timeout) {
  return impl_->list_peers(timeout);
}
AgentInfo PeerAgent::info() const { return impl_->info(); }
// Keeps the implementation alive during the call: a callback that poll() runs may destroy *this.
bool PeerAgent::poll(Nanos budget) {
  const auto impl = impl_;
  return impl->poll(budget);
}
void PeerAgent::wake() { impl_->wake(); }
std::shared_ptr<Driver> PeerAgent::driver() const { return impl_->starter().driver(); }
Status PeerAgent::close(Nanos timeout) {
  const auto impl = impl_;
  return impl->close(timeout);
}

}  // namespace slime
