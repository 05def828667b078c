#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "integrations/nixl/interface.h"

#ifdef SLIME_NIXL_INCLUDE
// NIXL has these functions of its lists in its library, which is not linked here.
template <class T>
nixlDescList<T>::nixlDescList(const nixl_mem_t& its_type, const int& count)
    : type(its_type), descs(static_cast<std::size_t>(count)) {}
template <class T>
void nixlDescList<T>::resize(const std::size_t& count) {
  descs.resize(count);
}
template <class T>
int nixlDescList<T>::getIndex(const nixlBasicDesc& query) const {
  for (std::size_t i = 0; i < descs.size(); ++i) {
    if (descs[i].covers(query)) return static_cast<int>(i);
  }
  return NIXL_ERR_NOT_FOUND;
}
template <class T>
void nixlDescList<T>::addDesc(const T& desc) {
  descs.push_back(desc);
}
#endif

// Does what NIXL's core does with a backend plugin: loads libplugin_SLIME.so, and uses it through
// NIXL's interface only.
namespace slime::test::nixl {

// The plugin of this build tree, or the one that $SLIME_NIXL_PLUGIN names. Stays loaded. Aborts
// without it.
nixlBackendPlugin& plugin();

// The metadata of an agent: what other agents load.
struct Metadata {
  struct Section {
    std::uintptr_t address = 0;
    std::size_t length_bytes = 0;
    nixl_blob_t public_data;
  };
  std::string agent;
  std::string conn_info;
  std::vector<Section> sections;

  // One line of text, to hand to another process.
  [[nodiscard]] std::string encode() const;
  static std::optional<Metadata> decode(const std::string& line);
};

// One descriptor of a transfer, at both ends.
struct Piece {
  std::uintptr_t local = 0;
  std::uintptr_t remote = 0;
  std::size_t length_bytes = 0;
};

// A registration of this agent.
struct Memory {
  MutableBytes bytes;
  nixlBackendMD* local = nullptr;  // null once deregistered
  nixlBackendMD* self = nullptr;   // the same memory as the remote side of a transfer with oneself
  std::string public_data;
  std::unique_ptr<std::byte[]> owned;

  [[nodiscard]] std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(bytes.data()); }
  [[nodiscard]] Piece piece(std::uintptr_t remote) const { return {address(), remote, bytes.size()}; }
};

// A prepared transfer. Released by release() or by the destructor. Thread: one.
class Request {
 public:
  Request() = default;
  Request(const nixlBackendEngine& engine, nixl_xfer_op_t operation, std::string agent,
          nixl_meta_dlist_t local, nixl_meta_dlist_t remote);
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  ~Request() { release(); }

  // prepXfer. The other functions need its success.
  nixl_status_t prepare();
  nixl_status_t post(const std::optional<std::string>& notification = {});
  nixl_status_t check() const { return engine_->checkXfer(handle_); }
  // Checks until the post has ended. NIXL_IN_PROG if it has not within the bound, 30 s by default.
  nixl_status_t wait(Nanos bound = {}) const;
  // Posts, and waits.
  nixl_status_t run(const std::optional<std::string>& notification = {});
  nixl_status_t release();
  [[nodiscard]] nixlBackendReqH*& handle() { return handle_; }

 private:
  const nixlBackendEngine* engine_ = nullptr;
  nixl_xfer_op_t operation_{};
  std::string agent_;
  nixl_meta_dlist_t local_{DRAM_SEG};
  nixl_meta_dlist_t remote_{DRAM_SEG};
  nixlBackendReqH* handle_ = nullptr;
};

// An agent of NIXL's whose only backend is SLIME. Ends as NIXL does: unloads what it has loaded,
// deregisters, and destroys the engine; requests are released before. Thread: one.
class Host {
 public:
  // Runs on provider() of tests/support/settings.h with a stall timeout that only a failure
  // reaches; `params` are set over that.
  explicit Host(std::string name, const nixl_b_params_t& params = {});
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  [[nodiscard]] bool started() const { return engine_ != nullptr; }
  [[nodiscard]] nixlBackendEngine& engine() const { return *engine_; }
  [[nodiscard]] const std::string& name() const { return name_; }

  // Registers new memory, all zeros. Aborts if the plugin refuses it.
  Memory& add(std::size_t length_bytes);
  // Registers memory of the caller.
  nixl_status_t add(MutableBytes bytes, Memory*& out);
  // Deregisters; the bytes stay valid as long as this object.
  nixl_status_t deregister(Memory& memory);
  // Deregisters and frees.
  void remove(Memory& memory);

  [[nodiscard]] Metadata metadata() const;
  // Loads the metadata of another agent. Adds to what was loaded of that name.
  nixl_status_t load(const Metadata& metadata);
  // Forgets an agent, as NIXL's invalidateRemoteMD.
  void unload(const std::string& agent);

  // The registrations that have this address, or null. Those of the newest metadata of a name
  // count.
  [[nodiscard]] nixlBackendMD* local_meta(std::uintptr_t address) const;
  [[nodiscard]] nixlBackendMD* remote_meta(const std::string& agent, std::uintptr_t address) const;

  // A transfer that is not prepared. Its agent may be this one.
  [[nodiscard]] Request request(nixl_xfer_op_t operation, const std::string& agent,
                                std::span<const Piece> pieces) const;
  // A prepared transfer. Aborts if the plugin refuses to prepare it.
  [[nodiscard]] Request prepared(nixl_xfer_op_t operation, const std::string& agent,
                                 std::span<const Piece> pieces) const;
  [[nodiscard]] Request prepared(nixl_xfer_op_t operation, const std::string& agent,
                                 const Piece& piece) const;

  notif_list_t take_notifications();

 private:
  using Registrations = std::map<std::uintptr_t, nixlBackendMD*>;  // by the first address
  void unload_all();

  std::string name_;
  nixl_b_params_t params_;
  nixlBackendEngine* engine_ = nullptr;
  std::map<std::uintptr_t, std::unique_ptr<Memory>> memories_;
  Registrations self_;
  struct Loaded {
    Registrations by_address;
    std::vector<nixlBackendMD*> all;
  };
  std::map<std::string, Loaded> loaded_;
};

// Loads the metadata of each into the other. True on success.
bool introduce(Host& one, Host& other);

}  // namespace slime::test::nixl
