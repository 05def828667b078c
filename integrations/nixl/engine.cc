#include "integrations/nixl/engine.h"

#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/str.h"
#include "integrations/nixl/limits.h"

namespace slime::nixl {
namespace {

constexpr std::string_view kComponent = "nixl";

class LocalMeta final : public nixlBackendMD {
 public:
  explicit LocalMeta(std::shared_ptr<LocalMemory> its_memory)
      : nixlBackendMD(true), memory(std::move(its_memory)) {}
  const std::shared_ptr<LocalMemory> memory;
};

class RemoteMeta final : public nixlBackendMD {
 public:
  explicit RemoteMeta(std::shared_ptr<RemoteMemory> its_memory)
      : nixlBackendMD(false), memory(std::move(its_memory)) {}
  const std::shared_ptr<RemoteMemory> memory;
};

class Request final : public nixlBackendReqH {
 public:
  explicit Request(std::shared_ptr<TransferRequest> its_transfer) : transfer(std::move(its_transfer)) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() override { transfer->abandon(); }
  const std::shared_ptr<TransferRequest> transfer;
};

Result<Blocks> blocks_of(const nixl_meta_dlist_t& local, const nixl_meta_dlist_t& remote) {
  const auto count = static_cast<std::size_t>(local.descCount());
  if (count != static_cast<std::size_t>(remote.descCount()))
    return Status(Code::kInvalidArgument,
                  str(count, " local descriptors, and ", remote.descCount(), " remote ones"));
  Blocks out;
  out.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const nixlMetaDesc& here = local[i];
    const nixlMetaDesc& there = remote[i];
    if (here.len != there.len)
      return Status(Code::kInvalidArgument,
                    str("descriptor ", i, " has ", here.len, " bytes here, and ", there.len, " there"));
    if (here.metadataP == nullptr || there.metadataP == nullptr)
      return Status(Code::kInvalidArgument, str("descriptor ", i, " is of no registration"));
    Status added = out.add(static_cast<const LocalMeta*>(here.metadataP)->memory, here.addr,
                           static_cast<const RemoteMeta*>(there.metadataP)->memory, there.addr, here.len);
    if (!added.ok()) return Status(added.code(), str("descriptor ", i, ": ", added.text()));
  }
  return out;
}

}  // namespace

nixl_status_t status_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk:
      return NIXL_SUCCESS;
    case Code::kInvalidArgument:
      return NIXL_ERR_INVALID_PARAM;
    case Code::kNotFound:
      return NIXL_ERR_NOT_FOUND;
    case Code::kPermissionDenied:
    case Code::kUnauthenticated:
      return NIXL_ERR_NOT_ALLOWED;
    case Code::kUnimplemented:
      return NIXL_ERR_NOT_SUPPORTED;
    case Code::kCancelled:
      return NIXL_ERR_CANCELED;
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kAborted:
      return NIXL_ERR_REMOTE_DISCONNECT;
    default:
      return NIXL_ERR_BACKEND;
  }
}

// ---------------------------------------------------------------------------------------- its life

Engine::Engine(const nixlBackendInitParams* params) : nixlBackendEngine(params) {
  if (const Status status = begin(*params); !status.ok()) {
    SLIME_LOG(LogLevel::kError, kComponent, localAgent,
              ": the backend SLIME could not start: ", status.to_string());
    initErr = true;
  }
}

Status Engine::begin(const nixlBackendInitParams& params) {
  if (localAgent.size() > limits::kAgentNameBytes)
    return Status(Code::kInvalidArgument, str("the agent's name has ", localAgent.size(), " bytes; at most ",
                                              limits::kAgentNameBytes));
  auto options = Options::from(*params.customParams, environment);
  if (!options) return std::move(options).error();
  options_ = *std::move(options);
  auto agent = PeerAgent::start(options_.agent);
  if (!agent) return std::move(agent).error();
  rpc::Service service(kService);
  SLIME_TRY(service.add_bytes(kNotify, [inbox = inbox_](Bytes body) { return inbox->put(body); },
                              {.run = rpc::Run::kInline}));
  SLIME_TRY((*agent)->serve(service));
  agent_ = *std::move(agent);
  info_.address = agent_->address();
  random_bytes(std::as_writable_bytes(std::span(&info_.id, 1)));
  return {};
}

Engine::~Engine() = default;

nixl_status_t Engine::told(const char* what, const Status& status) const {
  if (!status.ok())
    SLIME_LOG(LogLevel::kWarning, kComponent, localAgent, ": ", what, ": ", status.to_string());
  return status_of(status);
}

// ------------------------------------------------------------------------------------ registration

nixl_status_t Engine::registerMem(const nixlBlobDesc& mem, const nixl_mem_t& kind, nixlBackendMD*& out) {
  if (kind != DRAM_SEG)
    return told("register memory", Status(Code::kUnimplemented, "only memory of the host (DRAM_SEG)"));
  // NIXL's address is a number.
  auto region = agent_->register_memory(reinterpret_cast<void*>(mem.addr), mem.len,  // NOLINT
                                        Rights::kReadWrite);
  if (!region) return told("register memory", region.error());
  auto memory = std::make_shared<LocalMemory>();
  memory->region = *std::move(region);
  memory->base = mem.addr;
  memory->length_bytes = mem.len;
  {
    const MutexLock lock(mutex_);
    memory->number = next_number_++;
  }
  if (const Status status = agent_->publish(info_.region_name(memory->number), memory->region); !status.ok())
    return told("register memory", status);
  {
    const MutexLock lock(mutex_);
    registered_.add({mem.addr, mem.len});
  }
  out = new LocalMeta(std::move(memory));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::deregisterMem(nixlBackendMD* meta) {
  const std::unique_ptr<LocalMeta> owner(static_cast<LocalMeta*>(meta));
  LocalMemory& memory = *owner->memory;
  {
    const MutexLock lock(mutex_);
    registered_.remove({memory.base, memory.length_bytes});
  }
  // Waits for released transfers that still use the memory, at most limits::kDeregisterBound; then
  // resets their connections. Afterwards the user may use the memory again, whatever the status.
  static_cast<void>(told("deregister memory", memory.region.close(limits::kDeregisterBound)));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::getPublicData(const nixlBackendMD* meta, std::string& out) const {
  out = encode_registration(static_cast<const LocalMeta*>(meta)->memory->number);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& kind,
                                   const std::string& remote_agent, nixlBackendMD*& out) {
  if (kind != DRAM_SEG)
    return told("load metadata", Status(Code::kUnimplemented, "only memory of the host (DRAM_SEG)"));
  const auto number = decode_registration(input.metaInfo);
  if (!number) return told("load metadata", number.error());
  const auto remote = find(remote_agent);
  if (!remote) return NIXL_ERR_NOT_FOUND;
  out = new RemoteMeta(remote->memory(*number, input.addr, input.len));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadLocalMD(nixlBackendMD* input, nixlBackendMD*& out) {
  const auto self = find(localAgent);
  if (!self) return NIXL_ERR_NOT_FOUND;
  const LocalMemory& memory = *static_cast<const LocalMeta*>(input)->memory;
  out = new RemoteMeta(self->memory(memory.number, memory.base, memory.length_bytes));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::unloadMD(nixlBackendMD* meta) {
  delete static_cast<RemoteMeta*>(meta);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::queryMem(const nixl_reg_dlist_t& descs, std::vector<nixl_query_resp_t>& answers) const {
  const MutexLock lock(mutex_);
  for (const nixlBlobDesc& desc : descs) {
    nixl_query_resp_t& answer = answers.emplace_back();
    if (const auto range = registered_.around({desc.addr, desc.len}))
      answer = nixl_b_params_t{{"registered_address", std::to_string(range->base)},
                               {"registered_bytes", std::to_string(range->length_bytes)}};
  }
  return NIXL_SUCCESS;
}

// --------------------------------------------------------------------------------------- the peers

nixl_status_t Engine::getConnInfo(std::string& out) const {
  out = info_.encode();
  return NIXL_SUCCESS;
}

nixl_status_t Engine::loadRemoteConnInfo(const std::string& remote_agent, const std::string& conn_info) {
  auto info = ConnInfo::decode(conn_info);
  if (!info) return told("load connection info", info.error());
  const MutexLock lock(mutex_);
  std::shared_ptr<Remote>& remote = remotes_[remote_agent];
  // NIXL may load an agent's metadata in parts, each with the connection info. Keeps the Remote if
  // the agent's engine is still the same.
  if (remote && remote->info().id == info->id) return NIXL_SUCCESS;
  Peer peer = agent_->peer(info->address);
  remote = std::make_shared<Remote>(std::move(peer), *std::move(info), options_.stall_timeout);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::connect(const std::string& remote_agent) {
  if (remote_agent == localAgent) {
    const MutexLock lock(mutex_);
    remotes_[localAgent] =
        std::make_shared<Remote>(agent_->peer(info_.address), info_, options_.stall_timeout);
    return NIXL_SUCCESS;
  }
  const auto remote = find(remote_agent);
  if (!remote) return NIXL_ERR_NOT_FOUND;
  Peer peer = remote->peer();
  // if connecting fails, a later transfer reports the reason
  peer.connect(options_.stall_timeout).then([](const Result<None>&) {});
  return NIXL_SUCCESS;
}

// Forgets the remote agent but keeps the connection, because the peer may use it. Slime closes idle
// connections.
nixl_status_t Engine::disconnect(const std::string& remote_agent) {
  const MutexLock lock(mutex_);
  return remotes_.erase(remote_agent) > 0 ? NIXL_SUCCESS : NIXL_ERR_NOT_FOUND;
}

std::shared_ptr<Remote> Engine::find(const std::string& remote_agent) const {
  const MutexLock lock(mutex_);
  const auto it = remotes_.find(remote_agent);
  return it == remotes_.end() ? nullptr : it->second;
}

nixl_status_t Engine::getNotifs(notif_list_t& list) {
  inbox_->take(list);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::genNotif(const std::string& remote_agent, const std::string& message) const {
  const auto remote = find(remote_agent);
  if (!remote) return NIXL_ERR_NOT_FOUND;
  return told(
      "notify",
      remote->notify(encode_notification(localAgent, message), [name = localAgent](const Status& sent) {
        if (!sent.ok())
          SLIME_LOG(LogLevel::kWarning, kComponent, name, ": a notification was lost: ", sent.to_string());
      }));
}

// ----------------------------------------------------------------------------------- the transfers

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                               const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                               nixlBackendReqH*& handle, const nixl_opt_b_args_t*) const {
  const auto peer = find(remote_agent);
  if (!peer) return NIXL_ERR_NOT_FOUND;
  auto blocks = blocks_of(local, remote);
  if (!blocks) return told("prepare a transfer", blocks.error());
  auto transfer = std::make_shared<TransferRequest>(
      operation == NIXL_READ ? Transfer::kRead : Transfer::kWrite, peer, *std::move(blocks),
      TransferRequest::Bounds{options_.stall_timeout, options_.timeout});
  transfer->prepare();
  handle = new Request(std::move(transfer));
  return NIXL_SUCCESS;
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&, const nixl_meta_dlist_t&,
                               const std::string&, nixlBackendReqH*& handle,
                               const nixl_opt_b_args_t* args) const {
  if (handle == nullptr) return NIXL_ERR_INVALID_PARAM;
  std::optional<ByteVector> notification;
  if (args != nullptr && args->hasNotif) notification = encode_notification(localAgent, args->notifMsg);
  if (!static_cast<Request*>(handle)->transfer->post(std::move(notification))) return NIXL_ERR_REPOST_ACTIVE;
  return checkXfer(handle);
}

nixl_status_t Engine::checkXfer(nixlBackendReqH* handle) const {
  if (handle == nullptr) return NIXL_ERR_INVALID_PARAM;
  const auto outcome = static_cast<Request*>(handle)->transfer->check();
  if (!outcome) return NIXL_IN_PROG;
  return outcome->fresh ? told("a transfer failed", outcome->status) : status_of(outcome->status);
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH* handle) const {
  delete static_cast<Request*>(handle);
  return NIXL_SUCCESS;
}

nixl_status_t Engine::estimateXferCost(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                       const nixl_meta_dlist_t&, const std::string&,
                                       nixlBackendReqH* const& handle, std::chrono::microseconds& duration,
                                       std::chrono::microseconds& margin, nixl_cost_t& method,
                                       const nixl_opt_args_t*) const {
  if (handle == nullptr) return NIXL_ERR_INVALID_PARAM;
  const auto& transfer = *static_cast<const Request*>(handle)->transfer;
  const auto [cost, doubt] = transfer.remote().estimate(transfer.length_bytes());
  duration = std::chrono::duration_cast<std::chrono::microseconds>(cost);
  margin = std::chrono::duration_cast<std::chrono::microseconds>(doubt);
  method = nixl_cost_t::ANALYTICAL_BACKEND;
  return NIXL_SUCCESS;
}

}  // namespace slime::nixl
