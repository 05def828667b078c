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

// Routes for peers and their changes: /v1/peers, /v1/heartbeats, /v1/watch. Thread: any.
class PeerRoutes {
 public:
  // `context` and `keys` outlive this.
  PeerRoutes(Context& context, KeyMaker& keys, Prober prober);
  ApiReply list(const Call& call);
  // Registers a peer. If another instance holds the name, blocks while it probes that instance.
  ApiReply add(const Call& call);
  ApiReply get(const Call& call);
  ApiReply remove(const Call& call);
  ApiReply heartbeat(const Call& call);
  ApiReply heartbeats(const Call& call);  // for several peers
  ApiReply watch(const Call& call);

 private:
  // Probes whether the holder of a name is alive. Returns kSilent without a probe if
  // ApiOptions::probes_max probes are under way.
  ProbeResult probe(const Holder& holder);
  // Logs that the peer registered by `command` has taken its name from `holder`.
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
