#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/peer_agent.h"
#include "base/mutex.h"
#include "integrations/nixl/inbox.h"
#include "integrations/nixl/interface.h"
#include "integrations/nixl/options.h"
#include "integrations/nixl/ranges.h"
#include "integrations/nixl/remote.h"
#include "integrations/nixl/transfer.h"

namespace slime::nixl {

// NIXL's backend SLIME, on a PeerAgent of its own. A NIXL registration becomes a region, published
// under a name that only NIXL's metadata contains. A NIXL request becomes a prepared batch, and a
// notification a one-way call. Only deregisterMem and the destructor wait. Thread: any; NIXL's
// locks decide which calls may overlap.
class Engine final : public nixlBackendEngine {
 public:
  // If the agent cannot start, getInitErr() returns true and the log says why.
  explicit Engine(const nixlBackendInitParams* params);
  ~Engine() override;

  bool supportsRemote() const override { return true; }
  bool supportsLocal() const override { return true; }
  bool supportsNotif() const override { return true; }
  nixl_mem_list_t getSupportedMems() const override { return {DRAM_SEG}; }

  nixl_status_t registerMem(const nixlBlobDesc& mem, const nixl_mem_t& kind, nixlBackendMD*& out) override;
  nixl_status_t deregisterMem(nixlBackendMD* meta) override;
  nixl_status_t connect(const std::string& remote_agent) override;
  nixl_status_t disconnect(const std::string& remote_agent) override;
  nixl_status_t unloadMD(nixlBackendMD* meta) override;

  nixl_status_t prepXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                         nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const override;
  nixl_status_t postXfer(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                         const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                         nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const override;
  nixl_status_t checkXfer(nixlBackendReqH* handle) const override;
  nixl_status_t releaseReqH(nixlBackendReqH* handle) const override;

  nixl_status_t getPublicData(const nixlBackendMD* meta, std::string& out) const override;
  nixl_status_t getConnInfo(std::string& out) const override;
  nixl_status_t loadRemoteConnInfo(const std::string& remote_agent, const std::string& conn_info) override;
  nixl_status_t loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& kind,
                             const std::string& remote_agent, nixlBackendMD*& out) override;
  nixl_status_t loadLocalMD(nixlBackendMD* input, nixlBackendMD*& out) override;
  nixl_status_t getNotifs(notif_list_t& list) override;
  nixl_status_t genNotif(const std::string& remote_agent, const std::string& message) const override;
  nixl_status_t queryMem(const nixl_reg_dlist_t& descs,
                         std::vector<nixl_query_resp_t>& answers) const override;
  nixl_status_t estimateXferCost(const nixl_xfer_op_t& operation, const nixl_meta_dlist_t& local,
                                 const nixl_meta_dlist_t& remote, const std::string& remote_agent,
                                 nixlBackendReqH* const& handle, std::chrono::microseconds& duration,
                                 std::chrono::microseconds& margin, nixl_cost_t& method,
                                 const nixl_opt_args_t* args) const override;

 private:
  Status begin(const nixlBackendInitParams& params);
  [[nodiscard]] std::shared_ptr<Remote> find(const std::string& remote_agent) const;
  [[nodiscard]] nixl_status_t told(const char* what, const Status& status) const;

  Options options_;
  std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::unique_ptr<PeerAgent> agent_;
  ConnInfo info_;

  mutable Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Remote>> remotes_ SLIME_GUARDED_BY(mutex_);
  Ranges registered_ SLIME_GUARDED_BY(mutex_);
  std::uint64_t next_number_ SLIME_GUARDED_BY(mutex_) = 1;
};

// Maps a status to NIXL's code.
nixl_status_t status_of(const Status& status);

}  // namespace slime::nixl
