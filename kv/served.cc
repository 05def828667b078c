#include "kv/served.h"

#include <map>
#include <utility>

#include "agent/peer_agent.h"
#include "base/ids.h"
#include "base/str.h"
#include "kv/cache_state.h"
#include "rpc/service.h"

namespace slime::kv {

// The names of all agents of this process. The handlers in an agent own what it serves.
struct Served::Known {
  static Known& get() {
    static auto* one = new Known;  // never destroyed: caches may be made until the process ends
    return *one;
  }
  std::shared_ptr<Served> find(const InstanceId& agent, const std::string& name) {
    const MutexLock lock(mutex);
    const auto it = all.find({agent, name});
    return it == all.end() ? nullptr : it->second.lock();
  }
  void add(const InstanceId& agent, const std::string& name, const std::shared_ptr<Served>& served) {
    const MutexLock lock(mutex);
    std::erase_if(all, [](const auto& each) { return each.second.expired(); });
    all[{agent, name}] = served;
  }
  Mutex mutex;
  std::map<std::pair<InstanceId, std::string>, std::weak_ptr<Served>> all SLIME_GUARDED_BY(mutex);
};

Status Served::serve(PeerAgent& agent, const std::string& name, ByteVector geometry,
                     std::shared_ptr<Arrivals> arrivals) {
  if (const auto served = Known::get().find(agent.instance(), name))
    return served->take(name, std::move(geometry), std::move(arrivals));
  const auto served = std::make_shared<Served>();
  SLIME_TRY(served->take(name, std::move(geometry), std::move(arrivals)));
  rpc::Service service(service_name(name));
  SLIME_TRY(service.add("geometry",
                        [served](const rpc::CallInfo& info) { return served->tell(info.connection); },
                        {.run = rpc::Run::kInline, .doc = "The geometry of this KV cache (kv/README.md)."}));
  SLIME_TRY(service.add("arrived",
                        [served](const rpc::CallInfo& info, std::uint64_t request, std::uint32_t layer,
                                 std::uint32_t first_head, std::uint32_t heads) {
                          return served->arrived(info.connection, request, layer, {first_head, heads});
                        },
                        {.run = rpc::Run::kInline,
                         .parameters = {"request", "layer", "first_head", "heads"},
                         .doc = "Heads of a layer of a request are in this KV cache."}));
  SLIME_TRY(agent.serve(service));
  Known::get().add(agent.instance(), name, served);
  return {};
}

Status Served::take(const std::string& name, ByteVector geometry, std::shared_ptr<Arrivals> arrivals) {
  const MutexLock lock(mutex_);
  if (arrivals_ != nullptr && arrivals_->check_open().ok())
    return {Code::kAlreadyExists, str("the agent serves a KV cache \"", name, "\" already")};
  again_ = arrivals_ != nullptr;
  arrivals_ = std::move(arrivals);
  geometry_ = std::move(geometry);
  told_.clear();
  return {};
}

Result<ByteVector> Served::tell(std::uint64_t connection) {
  const MutexLock lock(mutex_);
  SLIME_TRY(arrivals_->check_open());
  if (again_) {
    if (told_.size() >= limits::kToldConnections) told_.clear();
    told_.insert(connection);
  }
  return geometry_;
}

Status Served::arrived(std::uint64_t connection, std::uint64_t request, std::uint32_t layer, Heads heads) {
  std::shared_ptr<Arrivals> arrivals;
  {
    const MutexLock lock(mutex_);
    if (again_ && told_.count(connection) == 0)
      return {Code::kUnavailable, "the KV cache was closed, and another has its name: connect again"};
    arrivals = arrivals_;
  }
  return arrivals->arrived(request, layer, heads);  // calls the handler, so without the lock
}

}  // namespace slime::kv
