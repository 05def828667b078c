#pragma once

#include <cstddef>
#include <string>

#include "base/mutex.h"
#include "ctrl/api/context.h"
#include "ctrl/api/key_maker.h"
#include "ctrl/api/prober.h"
#include "ctrl/api/route.h"
#include "ctrl/audit.h"

namespace slime::ctrl {

// The routes of peers and of changes: /v1/peers, /v1/heartbeats, /v1/watch. Thread: any.
class PeerRoutes {
 public:
  // `context` and `keys` outlive this.
  PeerRoutes(Context& context, KeyMaker& keys, Prober prober);
  ApiReply list(const Call& call);
  // Registers a peer. Blocks for a probe when another instance holds the name.
  ApiReply add(const Call& call);
  ApiReply get(const Call& call);
  ApiReply remove(const Call& call);
  ApiReply heartbeat(const Call& call);
  ApiReply heartbeats(const Call& call);  // for several peers
  ApiReply watch(const Call& call);

 private:
  // Probes the holder of a name. kSilent without a probe when ApiOptions::probes_max are under way.
  ProbeResult probe(const Holder& holder);
  // Logs that the command's peer took the name over from `holder`.
  void note_takeover(const RegisterCommand& command, const Lease& lease, const Holder& holder,
                     ProbeResult probed);

  Context& context_;
  KeyMaker& keys_;
  const Prober prober_;
  Audit takeovers_{Audit::kChanges};
  Mutex probes_mutex_;
  std::size_t probes_ SLIME_GUARDED_BY(probes_mutex_) = 0;  // under way
};

}  // namespace slime::ctrl
