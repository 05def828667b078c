#pragma once

// Declares the backend interface of NIXL 1.0.0 to 1.5.1 (API version 1), because NIXL's packages
// contain no headers. The declarations match NIXL's binary interface: the order of the virtual
// functions, the members of objects that NIXL makes or reads, and the values of the enumerations.
// All names are NIXL's. tests/integrations checks the declarations against the installed packages.
// With -DSLIME_NIXL_INCLUDE=DIR, the headers of the NIXL source tree DIR are used instead.

#ifdef SLIME_NIXL_INCLUDE

#include <backend/backend_plugin.h>
static_assert(NIXL_PLUGIN_API_VERSION == 1,
              "this plugin is written for API version 1 of NIXL's backend plugins, and the headers in "
              "SLIME_NIXL_INCLUDE are of another one");

#else

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define NIXL_PLUGIN_API_VERSION 1

#if !defined(_GLIBCXX_USE_CXX11_ABI) || !_GLIBCXX_USE_CXX11_ABI
#error "NIXL is compiled with the new ABI of libstdc++ (_GLIBCXX_USE_CXX11_ABI=1)"
#endif

// NOLINTBEGIN(readability-identifier-naming): the names are NIXL's
// ------------------------------------------------------------------------------------------ values

enum nixl_mem_t { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG };
enum nixl_xfer_op_t { NIXL_READ, NIXL_WRITE };
enum nixl_status_t {
  NIXL_IN_PROG = 1,
  NIXL_SUCCESS = 0,
  NIXL_ERR_NOT_POSTED = -1,
  NIXL_ERR_INVALID_PARAM = -2,
  NIXL_ERR_BACKEND = -3,
  NIXL_ERR_NOT_FOUND = -4,
  NIXL_ERR_MISMATCH = -5,
  NIXL_ERR_NOT_ALLOWED = -6,
  NIXL_ERR_REPOST_ACTIVE = -7,
  NIXL_ERR_UNKNOWN = -8,
  NIXL_ERR_NOT_SUPPORTED = -9,
  NIXL_ERR_REMOTE_DISCONNECT = -10,
  NIXL_ERR_CANCELED = -11,
  NIXL_ERR_NO_TELEMETRY = -12,
};
enum class nixl_thread_sync_t { NIXL_THREAD_SYNC_NONE, NIXL_THREAD_SYNC_STRICT, NIXL_THREAD_SYNC_RW };
enum class nixl_cost_t { ANALYTICAL_BACKEND };

using nixl_backend_t = std::string;
using nixl_blob_t = std::string;
using nixl_mem_list_t = std::vector<nixl_mem_t>;
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using nixl_query_resp_t = std::optional<nixl_b_params_t>;
using notif_list_t = std::vector<std::pair<std::string, std::string> >;
using nixlMemViewH = void*;
struct nixlAgentOptionalArgs;  // not used here
using nixl_opt_args_t = nixlAgentOptionalArgs;

// --------------------------------------------------------------------- what NIXL makes and we read

class nixlBackendMD {
 public:
  explicit nixlBackendMD(bool is_private) : isPrivateMD(is_private) {}
  virtual ~nixlBackendMD() = default;

 protected:
  bool isPrivateMD;
};

class nixlBackendReqH {
 public:
  nixlBackendReqH() = default;
  virtual ~nixlBackendReqH() = default;
};

class nixlBasicDesc {
 public:
  std::uintptr_t addr;
  std::size_t len;
  std::uint64_t devId;
};
class nixlBlobDesc : public nixlBasicDesc {
 public:
  nixl_blob_t metaInfo;
};
class nixlMetaDesc : public nixlBasicDesc {
 public:
  nixlBackendMD* metadataP;
};
struct nixlRemoteMetaDesc;

// A list with the memory layout of NIXL's class of this name. NIXL makes these lists; so do the
// tests.
template <class T>
class nixlDescList {
 public:
  explicit nixlDescList(nixl_mem_t its_type) : type(its_type) {}
  nixlDescList(const nixlDescList&) = default;
  nixlDescList(nixlDescList&&) noexcept = default;
  nixlDescList& operator=(const nixlDescList&) = default;
  nixlDescList& operator=(nixlDescList&&) noexcept = default;
  virtual ~nixlDescList() = default;
  [[nodiscard]] nixl_mem_t getType() const { return type; }
  [[nodiscard]] int descCount() const { return static_cast<int>(descs.size()); }
  const T& operator[](std::size_t index) const { return descs[index]; }
  [[nodiscard]] auto begin() const { return descs.begin(); }
  [[nodiscard]] auto end() const { return descs.end(); }
  void addDesc(const T& desc) { descs.push_back(desc); }

 protected:
  nixl_mem_t type;
  std::vector<T> descs;
};
using nixl_meta_dlist_t = nixlDescList<nixlMetaDesc>;
using nixl_reg_dlist_t = nixlDescList<nixlBlobDesc>;
using nixl_remote_meta_dlist_t = nixlDescList<nixlRemoteMetaDesc>;

struct nixlBackendOptionalArgs {
  nixl_blob_t notifMsg;
  bool hasNotif = false;
  nixl_blob_t customParam;
};
using nixl_opt_b_args_t = nixlBackendOptionalArgs;

class nixlBackendInitParams {
 public:
  std::string localAgent;
  nixl_backend_t type;
  nixl_b_params_t* customParams = nullptr;
  bool enableProgTh = false;
  std::uint64_t pthrDelay = 0;  // us
  nixl_thread_sync_t syncMode{};
  bool enableTelemetry_ = false;
};

// ------------------------------------------------------------------------------------- the backend

// NIXL's code accesses the members that have a trailing comment directly, so their offsets match
// NIXL's class. The virtual functions are in the order of NIXL's vtable.
class nixlBackendEngine {
 public:
  explicit nixlBackendEngine(const nixlBackendInitParams* params)
      : backendType(params->type),
        customParams(*params->customParams),
        localAgent(params->localAgent),
        enableTelemetry_(params->enableTelemetry_) {}
  nixlBackendEngine(const nixlBackendEngine&) = delete;
  nixlBackendEngine& operator=(const nixlBackendEngine&) = delete;
  virtual ~nixlBackendEngine() = default;

  [[nodiscard]] bool getInitErr() const { return initErr; }
  [[nodiscard]] const nixl_b_params_t& getCustomParams() const { return customParams; }

  virtual bool supportsRemote() const = 0;
  virtual bool supportsLocal() const = 0;
  virtual bool supportsNotif() const = 0;
  virtual nixl_mem_list_t getSupportedMems() const = 0;

  virtual nixl_status_t registerMem(const nixlBlobDesc& mem, const nixl_mem_t& kind, nixlBackendMD*& out) = 0;
  virtual nixl_status_t deregisterMem(nixlBackendMD* meta) = 0;
  virtual nixl_status_t connect(const std::string& remote_agent) = 0;
  virtual nixl_status_t disconnect(const std::string& remote_agent) = 0;
  virtual nixl_status_t unloadMD(nixlBackendMD* meta) = 0;

  virtual nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                                 nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const = 0;
  virtual nixl_status_t postXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                                 nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const = 0;
  virtual nixl_status_t checkXfer(nixlBackendReqH* handle) const = 0;
  virtual nixl_status_t releaseReqH(nixlBackendReqH* handle) const = 0;

  virtual nixl_status_t prepMemView(const nixl_remote_meta_dlist_t&, nixlMemViewH&,
                                    const nixl_opt_b_args_t*) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t prepMemView(const nixl_meta_dlist_t&, nixlMemViewH&, const nixl_opt_b_args_t*) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual void releaseMemView(nixlMemViewH) const {}

  virtual nixl_status_t getPublicData(const nixlBackendMD*, std::string&) const { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t getConnInfo(std::string&) const { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t loadRemoteConnInfo(const std::string&, const std::string&) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t loadRemoteMD(const nixlBlobDesc&, const nixl_mem_t&, const std::string&,
                                     nixlBackendMD*&) {
    return NIXL_ERR_BACKEND;
  }
  virtual nixl_status_t loadLocalMD(nixlBackendMD*, nixlBackendMD*&) { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t getNotifs(notif_list_t&) { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t genNotif(const std::string&, const std::string&) const { return NIXL_ERR_BACKEND; }
  virtual nixl_status_t queryMem(const nixl_reg_dlist_t&, std::vector<nixl_query_resp_t>&) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }
  virtual nixl_status_t estimateXferCost(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                         const nixl_meta_dlist_t&, const std::string&,
                                         nixlBackendReqH* const&, std::chrono::microseconds&,
                                         std::chrono::microseconds&, nixl_cost_t&,
                                         const nixl_opt_args_t*) const {
    return NIXL_ERR_NOT_SUPPORTED;
  }

 private:
  nixl_backend_t backendType;    // NIXL reads it
  nixl_b_params_t customParams;  // NIXL reads it
  // NIXL takes the events in this list; always empty, as the type of an event differs between
  // versions of NIXL
  std::vector<char> telemetry_events_;
  std::mutex telemetry_events_mutex_;  // NIXL locks it

 protected:
  bool initErr = false;  // NIXL reads it
  const std::string localAgent;
  const bool enableTelemetry_;
};

class nixlBackendPlugin {
 public:
  int api_version;
  nixlBackendEngine* (*create_engine)(const nixlBackendInitParams* params);
  void (*destroy_engine)(nixlBackendEngine* engine);
  const char* (*get_plugin_name)();
  const char* (*get_plugin_version)();
  nixl_b_params_t (*get_backend_options)();
  nixl_mem_list_t (*get_backend_mems)();
};
// NOLINTEND(readability-identifier-naming)

#endif
