#include "tests/nixl/host.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>

#include "base/check.h"
#include "tests/support/settings.h"

namespace slime::test::nixl {
namespace {

nixlBackendPlugin& load_plugin() {
  const char* const given = std::getenv("SLIME_NIXL_PLUGIN");
  const char* const path = given != nullptr ? given : SLIME_NIXL_PLUGIN;
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
  SLIME_CHECK(library != nullptr);
  const auto init = reinterpret_cast<nixlBackendPlugin* (*)()>(::dlsym(library, "nixl_plugin_init"));
  SLIME_CHECK(init != nullptr);
  nixlBackendPlugin* const plugin = init();
  SLIME_CHECK(plugin != nullptr && plugin->api_version == NIXL_PLUGIN_API_VERSION);
  return *plugin;
}

std::string hex(std::string_view text) { return "x" + to_hex(as_bytes(text)); }

bool unhex(const std::string& text, std::string& out) {
  if (text.empty() || text[0] != 'x') return false;
  out.resize(text.size() / 2);
  return from_hex(std::string_view(text).substr(1), std::as_writable_bytes(std::span(out)));
}

// The value of the last key that is not above `address`.
template <class Map>
auto at_or_below(const Map& map, std::uintptr_t address) {
  auto it = map.upper_bound(address);
  return it == map.begin() ? map.end() : --it;
}

}  // namespace

nixlBackendPlugin& plugin() {
  static nixlBackendPlugin& loaded = load_plugin();
  return loaded;
}

// ---------------------------------------------------------------------------------------- metadata

std::string Metadata::encode() const {
  std::ostringstream out;
  out << hex(agent) << ' ' << hex(conn_info);
  for (const Section& section : sections)
    out << ' ' << section.address << ' ' << section.length_bytes << ' ' << hex(section.public_data);
  return out.str();
}

std::optional<Metadata> Metadata::decode(const std::string& line) {
  std::istringstream in(line);
  std::string name;
  std::string info;
  Metadata out;
  if (!(in >> name >> info) || !unhex(name, out.agent) || !unhex(info, out.conn_info)) return std::nullopt;
  Section section;
  for (std::string data; in >> section.address >> section.length_bytes >> data;) {
    if (!unhex(data, section.public_data)) return std::nullopt;
    out.sections.push_back(section);
  }
  return out;
}

// ----------------------------------------------------------------------------------------- request

Request::Request(const nixlBackendEngine& engine, nixl_xfer_op_t operation, std::string agent,
                 nixl_meta_dlist_t local, nixl_meta_dlist_t remote)
    : engine_(&engine),
      operation_(operation),
      agent_(std::move(agent)),
      local_(std::move(local)),
      remote_(std::move(remote)) {}

Request::Request(Request&& other) noexcept
    : engine_(other.engine_),
      operation_(other.operation_),
      agent_(std::move(other.agent_)),
      local_(std::move(other.local_)),
      remote_(std::move(other.remote_)),
      handle_(std::exchange(other.handle_, nullptr)) {}

Request& Request::operator=(Request&& other) noexcept {
  if (this == &other) return *this;
  release();
  engine_ = other.engine_;
  operation_ = other.operation_;
  agent_ = std::move(other.agent_);
  local_ = std::move(other.local_);
  remote_ = std::move(other.remote_);
  handle_ = std::exchange(other.handle_, nullptr);
  return *this;
}

nixl_status_t Request::prepare() {
  const nixl_opt_b_args_t args;
  return engine_->prepXfer(operation_, local_, remote_, agent_, handle_, &args);
}

nixl_status_t Request::post(const std::optional<std::string>& notification) {
  nixl_opt_b_args_t args;
  args.hasNotif = notification.has_value();
  args.notifMsg = notification.value_or(std::string());
  return engine_->postXfer(operation_, local_, remote_, agent_, handle_, &args);
}

nixl_status_t Request::wait(Nanos bound) const {
  if (bound == Nanos::zero()) bound = patient(std::chrono::seconds(30));
  const TimePoint end = deadline_after(steady_clock().now(), bound);
  nixl_status_t status = check();
  while (status == NIXL_IN_PROG && steady_clock().now() < end) {
    std::this_thread::yield();
    status = check();
  }
  return status;
}

nixl_status_t Request::run(const std::optional<std::string>& notification) {
  const nixl_status_t status = post(notification);
  return status == NIXL_IN_PROG ? wait() : status;
}

nixl_status_t Request::release() {
  if (handle_ == nullptr) return NIXL_SUCCESS;
  return engine_->releaseReqH(std::exchange(handle_, nullptr));
}

// -------------------------------------------------------------------------------------------- host

Host::Host(std::string name, const nixl_b_params_t& params) : name_(std::move(name)), params_(params) {
  params_.try_emplace("provider", provider());
  const auto stall = std::chrono::duration_cast<std::chrono::milliseconds>(patient(std::chrono::seconds(60)));
  params_.try_emplace("stall_timeout_ms", std::to_string(stall.count()));
  nixlBackendInitParams init;
  init.localAgent = name_;
  init.type = "SLIME";
  init.customParams = &params_;
  engine_ = plugin().create_engine(&init);
  if (engine_ == nullptr) return;
  if (engine_->getInitErr() || engine_->connect(name_) != NIXL_SUCCESS)
    plugin().destroy_engine(std::exchange(engine_, nullptr));
}

Host::~Host() {
  if (engine_ == nullptr) return;
  unload_all();
  for (auto& [address, memory] : memories_) deregister(*memory);
  plugin().destroy_engine(engine_);
}

void Host::unload_all() {
  while (!loaded_.empty()) unload(std::string(loaded_.begin()->first));  // which it erases
}

Memory& Host::add(std::size_t length_bytes) {
  auto owned = std::make_unique<std::byte[]>(length_bytes);
  Memory* out = nullptr;
  SLIME_CHECK(add(MutableBytes(owned.get(), length_bytes), out) == NIXL_SUCCESS);
  out->owned = std::move(owned);
  return *out;
}

nixl_status_t Host::add(MutableBytes bytes, Memory*& out) {
  auto memory = std::make_unique<Memory>();
  memory->bytes = bytes;
  nixlBlobDesc desc;
  desc.addr = memory->address();
  desc.len = bytes.size();
  desc.devId = 0;
  if (const auto status = engine_->registerMem(desc, DRAM_SEG, memory->local); status != NIXL_SUCCESS)
    return status;
  SLIME_CHECK(engine_->getPublicData(memory->local, memory->public_data) == NIXL_SUCCESS);
  SLIME_CHECK(engine_->loadLocalMD(memory->local, memory->self) == NIXL_SUCCESS);
  self_[desc.addr] = memory->self;
  auto& slot = memories_[desc.addr];
  SLIME_CHECK(slot == nullptr);
  slot = std::move(memory);
  out = slot.get();
  return NIXL_SUCCESS;
}

nixl_status_t Host::deregister(Memory& memory) {
  if (memory.local == nullptr) return NIXL_SUCCESS;
  self_.erase(memory.address());
  const nixl_status_t unloaded = engine_->unloadMD(std::exchange(memory.self, nullptr));
  const nixl_status_t status = engine_->deregisterMem(std::exchange(memory.local, nullptr));
  return status != NIXL_SUCCESS ? status : unloaded;
}

void Host::remove(Memory& memory) {
  SLIME_CHECK(deregister(memory) == NIXL_SUCCESS);
  memories_.erase(memory.address());
}

Metadata Host::metadata() const {
  Metadata out;
  out.agent = name_;
  SLIME_CHECK(engine_->getConnInfo(out.conn_info) == NIXL_SUCCESS);
  for (const auto& [address, memory] : memories_) {
    if (memory->local != nullptr)
      out.sections.push_back({address, memory->bytes.size(), memory->public_data});
  }
  return out;
}

nixl_status_t Host::load(const Metadata& metadata) {
  const nixl_status_t status = engine_->loadRemoteConnInfo(metadata.agent, metadata.conn_info);
  if (status != NIXL_SUCCESS) return status;
  Loaded& loaded = loaded_[metadata.agent];
  for (const Metadata::Section& section : metadata.sections) {
    nixlBlobDesc desc;
    desc.addr = section.address;
    desc.len = section.length_bytes;
    desc.devId = 0;
    desc.metaInfo = section.public_data;
    nixlBackendMD* meta = nullptr;
    const auto one = engine_->loadRemoteMD(desc, DRAM_SEG, metadata.agent, meta);
    if (one != NIXL_SUCCESS) return one;
    loaded.all.push_back(meta);
    loaded.by_address[section.address] = meta;
  }
  return NIXL_SUCCESS;
}

void Host::unload(const std::string& agent) {
  const auto it = loaded_.find(agent);
  if (it == loaded_.end()) return;
  for (nixlBackendMD* const meta : it->second.all) SLIME_CHECK(engine_->unloadMD(meta) == NIXL_SUCCESS);
  loaded_.erase(it);
  SLIME_CHECK(engine_->disconnect(agent) == NIXL_SUCCESS);
}

nixlBackendMD* Host::local_meta(std::uintptr_t address) const {
  const auto it = at_or_below(memories_, address);
  return it == memories_.end() ? nullptr : it->second->local;
}

nixlBackendMD* Host::remote_meta(const std::string& agent, std::uintptr_t address) const {
  const auto known = loaded_.find(agent);
  if (agent != name_ && known == loaded_.end()) return nullptr;
  const Registrations& all = agent == name_ ? self_ : known->second.by_address;
  const auto it = at_or_below(all, address);
  return it == all.end() ? nullptr : it->second;
}

Request Host::request(nixl_xfer_op_t operation, const std::string& agent,
                      std::span<const Piece> pieces) const {
  nixl_meta_dlist_t local(DRAM_SEG);
  nixl_meta_dlist_t remote(DRAM_SEG);
  for (const Piece& piece : pieces) {
    nixlMetaDesc desc;
    desc.addr = piece.local;
    desc.len = piece.length_bytes;
    desc.devId = 0;
    desc.metadataP = local_meta(piece.local);
    local.addDesc(desc);
    desc.addr = piece.remote;
    desc.metadataP = remote_meta(agent, piece.remote);
    remote.addDesc(desc);
  }
  return {*engine_, operation, agent, std::move(local), std::move(remote)};
}

Request Host::prepared(nixl_xfer_op_t operation, const std::string& agent,
                       std::span<const Piece> pieces) const {
  Request out = request(operation, agent, pieces);
  SLIME_CHECK(out.prepare() == NIXL_SUCCESS);
  return out;
}

Request Host::prepared(nixl_xfer_op_t operation, const std::string& agent, const Piece& piece) const {
  return prepared(operation, agent, std::span(&piece, 1));
}

notif_list_t Host::take_notifications() {
  notif_list_t out;
  SLIME_CHECK(engine_->getNotifs(out) == NIXL_SUCCESS);
  return out;
}

bool introduce(Host& one, Host& other) {
  return one.load(other.metadata()) == NIXL_SUCCESS && other.load(one.metadata()) == NIXL_SUCCESS;
}

}  // namespace slime::test::nixl
