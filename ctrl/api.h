#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "ctrl/http.h"
#include "ctrl/limits.h"
#include "ctrl/prober.h"
#include "ctrl/registry.h"
#include "ctrl/store/engine.h"

namespace slime::ctrl {

struct ApiOptions {
  std::size_t watchers_max = limits::kWatchers;
  std::size_t probes_max = limits::kProbes;
  Nanos watch_wait_max = limits::kWatchWaitMax;
  std::function<void(const ScopedEvent&)> on_event =
      {};  // for logs; called under the engine's lock, may be empty
};

// nanoctrl's routes over one Registry. Thread: any, many at once; a watch blocks its thread for up to its
// wait, a registration for a probe.
class Api {
 public:
  // `clock` outlives this.
  Api(ApiOptions options, std::unique_ptr<Engine> engine, const Clock& clock, Prober prober);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  ApiReply handle(const ApiRequest& request);
  // The answer for what goes wrong before a request reaches handle().
  static ApiReply error(int status, Code code, std::string message, std::string hint);

  // Expires what is due. Returns how long until something may be due again.
  Nanos tick();
  [[nodiscard]] std::uint64_t epoch() const { return engine_->epoch(); }
  // Ends the watches under way and refuses new requests (503). Idempotent.
  void stop();

 private:
  // The query parameters of one request, each at most once; the first problem sticks.
  class Query;
  using Lock = std::unique_lock<std::mutex>;
  using EncodePeer = std::function<void(const PeerInfo&, Nanos expires_in, std::vector<std::string>& out)>;

  ApiReply route(const ApiRequest& request, const std::vector<std::string>& path, Query& query);
  ApiReply route_peer(const ApiRequest& request, const std::vector<std::string>& path, Query& query);

  ApiReply server_status(Query& query);
  ApiReply register_peer(Query& query, std::string_view body);
  ApiReply list_peers(Query& query);
  ApiReply list_services(Query& query);
  ApiReply list_regions(Query& query);
  ApiReply watch(Query& query);
  ApiReply get_peer(Query& query, const std::string& name);
  ApiReply deregister(Query& query, const std::string& name);
  ApiReply heartbeat(Query& query, const std::string& name, std::string_view body);
  ApiReply update_regions(Query& query, const std::string& name, std::string_view body, bool replace);
  ApiReply update_services(Query& query, const std::string& name, std::string_view body, bool replace);

  ApiReply apply_update(const Command& command);
  // One page of the peers in the query's scope; `encode` appends what each contributes.
  ApiReply page(Query& query, std::string_view list, const EncodePeer& encode);
  ProbeResult probe(const Holder& holder);

  const ApiOptions options_;
  const Clock& clock_;
  const Prober prober_;
  const TimePoint started_at_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 0;
  std::size_t watchers_ = 0;
  std::size_t probes_ = 0;
  bool stopped_ = false;
  const std::unique_ptr<Engine> engine_;  // last: its threads tell of changes
};

}  // namespace slime::ctrl
