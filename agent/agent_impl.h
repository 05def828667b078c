#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/admission.h"
#include "agent/connecting/keeper.h"
#include "agent/connecting/pending_peers.h"
#include "agent/connecting/switchboard.h"
#include "agent/memory/agent_memory.h"
#include "agent/memory/devices.h"
#include "agent/operations/starter.h"
#include "agent/peer_agent.h"
#include "agent/registry/keyring.h"
#include "agent/registry/registrar.h"
#include "agent/registry/report.h"
#include "agent/services/calling_agent.h"
#include "agent/services/discovery.h"
#include "base/mutex.h"
#include "rpc/server.h"
#include "transport/connect.h"
#include "transport/loop.h"
#include "transport/provider.h"

namespace slime {

// Implements PeerAgent and Peer. Owns every part and orders their start and end; the parts do the
// work. Thread: any.
class PeerAgentImpl final : public std::enable_shared_from_this<PeerAgentImpl> {
 public:
  // `table`: the providers that the options choose from; valid until start() returns.
  static Result<std::unique_ptr<PeerAgent>> start(
      PeerAgentOptions options, transport::ProviderTable table = transport::provider_table());
  static std::vector<std::string> provider_names();
  explicit PeerAgentImpl(PeerAgentOptions options);
  ~PeerAgentImpl();

  [[nodiscard]] const PeerAgentOptions& options() const { return options_; }
  [[nodiscard]] const std::string& address() const { return address_; }
  [[nodiscard]] const InstanceId& instance() const { return instance_; }
  [[nodiscard]] bool forked() const { return admission_->forked(); }
  Peer peer(std::string name);
  Peer peer(std::shared_ptr<agent::NamedPeer> named);

  // Returns true on a thread that close() waits for: the loop's thread, a caller that drives the
  // loop, a thread of the handler pool, the registrar's thread.
  [[nodiscard]] bool on_own_thread() const;
  // Returns the server if close() left it because handlers still ran; else null.
  std::shared_ptr<rpc::Server> take_server();
  // Starts operations on peers.
  [[nodiscard]] agent::OperationStarter& starter() const { return *starter_; }
  // Returns an error on the loop's thread, where waiting would deadlock.
  [[nodiscard]] Status check_may_wait() const;
  Status disconnect(agent::NamedPeer& peer);

  [[nodiscard]] agent::AgentMemory& memory() const { return *memory_; }
  Status publish(std::string_view name, const MemoryRegion& region);
  Status serve(rpc::Service& service);
  ServiceProxy proxy(std::string service, ProxyOptions options);
  void add_interceptor(std::shared_ptr<rpc::ServerInterceptor> interceptor);
  Status drain(Nanos bound);
  using ImmHandler = std::function<void(Peer, std::uint32_t, NotificationCredit&)>;
  void on_imm(ImmHandler handler);
  void release_credit(std::uint64_t session);
  using ConnectionHandler = std::function<void(const std::string& peer, std::uint64_t connection)>;
  void on_connect(ConnectionHandler handler);
  void on_disconnect(ConnectionHandler handler);
  Result<Peer> accept(Nanos timeout);
  Result<Peer> peer_of(std::uint64_t connection);
  Result<std::vector<RegisteredPeer>> list_peers(Nanos timeout);
  bool poll(Nanos budget);
  void wake();
  Status close(Nanos bound);

  // `bound`: the longest wait for the loop. If the loop does not answer, AgentInfo::loop has the
  // reason.
  [[nodiscard]] AgentInfo info(Nanos bound = Nanos::max());
  [[nodiscard]] PeerInfo peer_info(agent::NamedPeer& peer);

 private:
  static void destroy(PeerAgentImpl* agent);
  Status listen(transport::ProviderTable table);
  Status enroll();
  Status check_exposure() const;
  Result<std::string> advertised() const;
  void note_event(const ctrl::Event& event);
  void note_keys();
  // `peer`: for accept().
  void opened_session(const std::shared_ptr<agent::NamedPeer>& peer, std::uint64_t connection);
  void closed_session(const std::string& peer, std::uint64_t connection);
  // Returns true when no session is left.
  bool wait_for_sessions(TimePoint deadline);
  Status close_parts(Nanos bound);
  struct LoopView;
  LoopView look() const;
  void add_view(AgentInfo& out, const LoopView& view) const;
  std::optional<ctrl::Report> report();
  std::optional<LoopView> look(Nanos bound);

  const InstanceId instance_ = InstanceId::random();
  PeerAgentOptions options_;  // declared after instance_, from which the default name is made
  const std::shared_ptr<agent::Admission> admission_;
  std::string address_;

  std::shared_ptr<agent::Devices> devices_;
  std::shared_ptr<transport::Loop> loop_;
  // null after close(), unless handlers still ran; drain() waits on a copy of the pointer
  std::shared_ptr<rpc::Server> server_;
  std::unique_ptr<agent::AgentMemory> memory_;
  std::vector<std::unique_ptr<transport::Port>> ports_;  // one for each device
  // the scope's keys; null: handshakes use options_.token, or no secret if the token is empty
  std::shared_ptr<agent::Keyring> keyring_;
  std::unique_ptr<agent::Switchboard> switchboard_;
  std::unique_ptr<agent::OperationStarter> starter_;
  std::optional<agent::CallingAgent> calling_;
  std::unique_ptr<transport::Listener> listener_;
  std::shared_ptr<agent::Discovery> discovery_;
  std::unique_ptr<agent::Keeper> keeper_;
  std::unique_ptr<agent::PendingPeers> pending_peers_;  // null unless PeerAgentOptions::accepts
  // Used on the loop only.
  ImmHandler imm_handler_;
  std::vector<ConnectionHandler> connect_handlers_;
  std::vector<ConnectionHandler> disconnect_handlers_;

  Mutex events_mutex_;
  // events of the registry that the loop has not processed yet, oldest first
  std::deque<ctrl::Event> events_ SLIME_GUARDED_BY(events_mutex_);

  std::atomic<bool> keys_noted_{false};  // true: a task that reads the changed keys is posted

  agent::ReportBox reports_;

  Mutex sessions_mutex_;  // only for wait_for_sessions()
  CondVar sessions_changed_;

  Mutex close_mutex_;
  bool closed_ SLIME_GUARDED_BY(close_mutex_) = false;
  Status close_status_ SLIME_GUARDED_BY(close_mutex_);

  std::unique_ptr<agent::Registrar> registrar_;  // last: its thread uses the members above
};

}  // namespace slime
