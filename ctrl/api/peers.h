#pragma once

#include <cstddef>
#include <mutex>
#include <string>

#include "ctrl/api/context.h"
#include "ctrl/api/key_maker.h"
#include "ctrl/api/prober.h"
#include "ctrl/api/route.h"
#include "ctrl/audit.h"

namespace slime::ctrl {

// The routes of peers and of their changes: /v1/peers, /v1/heartbeats, /v1/watch. Thread: any.
class PeerRoutes {
 public:
  // `context` and `keys` outlive this.
  PeerRoutes(Context& context, KeyMaker& keys, Prober prober);
  ApiReply list(const Call& call);
  // Registers a peer. Blocks for a probe when another instance has the name.
  ApiReply add(const Call& call);
  ApiReply get(const Call& call);
  ApiReply remove(const Call& call);
  ApiReply heartbeat(const Call& call);
  ApiReply heartbeats(const Call& call);  // of several peers at once
  ApiReply watch(const Call& call);

 private:
  // Asks the holder of a name whether it lives. kSilent when as many are asked as may be at once.
  ProbeResult probe(const Holder& holder);
  // Logs that the command's peer has the name of `holder` now.
  void note_takeover(const RegisterCommand& command, const Lease& lease, const Holder& holder,
                     ProbeResult probed);

  Context& context_;
  KeyMaker& keys_;
  const Prober prober_;
  Audit takeovers_{Audit::kChanges};
  std::mutex probes_mutex_;
  std::size_t probes_ = 0;  // under way
};

}  // namespace slime::ctrl
