#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "bench/histogram.h"

namespace slime::bench {

// Who must have heard of whose death by when. An agent that falls silent is expired one TTL after nanoctrl
// had its last heartbeat, which was some moment from its sending to its answer. So nobody may hear of it
// before the sending + TTL, and with the first heartbeat that is sent `slack` after the answer + TTL every
// agent of the scope must have heard: each one that registered before it can have expired, and still lives.
// A server that was killed takes the last heartbeats with it. A lease that lacks one ends early, at any
// moment since the agent fell silent, so who registers from then on has nothing to hear. Thread: one.
class Deaths {
 public:
  struct Figures {
    std::uint64_t deaths = 0;
    std::uint64_t pairs = 0;  // an agent that had to hear of a death, and whether it did is known
    std::uint64_t late = 0;   // of the pairs: not with that heartbeat
    std::uint64_t never = 0;  // of the late ones: not at all
    std::uint64_t early = 0;  // heard while the lease must have been good
    Histogram delay;          // from the answer + TTL to hearing it
    Nanos delay_max{};
  };

  // Each scope has `slots` places for agents, one living agent at a time in each.
  Deaths(std::size_t scopes, std::size_t slots, Nanos ttl, Nanos slack);

  // A new agent in this place (or an old one that registered anew) knows everything up to this moment.
  void joined(std::size_t scope, std::size_t slot, TimePoint answered);
  // It fell silent after a request that was sent and answered then.
  void died(std::size_t scope, std::size_t slot, std::uint64_t incarnation, TimePoint sent,
            TimePoint answered);
  // The agent in that place heard that this one expired. False: it is none that died here.
  bool heard(std::size_t scope, std::size_t slot, std::uint64_t incarnation, TimePoint now);
  // The agent in that place listed the living: who died in its scope and is not among them, it knows to be
  // gone. Never too early: a server that starts again has forgotten the dead.
  void listed(std::size_t scope, std::size_t slot, std::vector<std::uint64_t> living, TimePoint now);
  // The agent in that place has the whole answer to a heartbeat that was sent then, so it had to hear by now
  // what was due by then.
  void caught_up(std::size_t scope, std::size_t slot, TimePoint sent);

  // Whether each living agent has had to hear of every death of its scope.
  [[nodiscard]] bool settled() const;
  // Counts what is still owed as never heard.
  [[nodiscard]] Figures finish();

 private:
  struct Death {
    std::uint64_t incarnation = 0;
    TimePoint expires_first;  // the earliest moment
    TimePoint expires_last;
    TimePoint known_from;      // who registered at that moment or later need not hear of it
    std::vector<bool> heard;   // by slot: of the agent that had to
    std::vector<bool> missed;  // by slot: it was late
  };
  struct Hearer {
    bool alive = false;
    TimePoint joined;
    TimePoint checked;  // deaths due by then are done with
  };
  struct Scope {
    std::multimap<TimePoint, Death> deaths;  // by when they had to be heard of
    std::vector<Hearer> hearers;
  };
  static bool owed(const Death& death, const Hearer& hearer) { return hearer.joined < death.known_from; }
  void hear(Death& death, const Hearer& hearer, std::size_t slot, TimePoint now);

  const Nanos ttl_;
  const Nanos slack_;
  std::vector<Scope> scopes_;
  std::unordered_map<std::uint64_t, Death*> by_incarnation_;
  Figures figures_;
};

}  // namespace slime::bench
