#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "bench/histogram.h"

namespace slime::bench {

// Checks that each agent hears of each death in its scope, in time. An agent that falls silent
// expires one TTL after nanoctrl received its last heartbeat, which was between the sending of that
// heartbeat and its answer. So no agent may hear of the death earlier than one TTL after the
// sending. An agent that registered before that moment and lives must hear of it no later than with
// its first heartbeat that is sent one TTL and `slack` after the answer. A killed server loses its
// latest heartbeats: such a lease ends early, at any moment since the agent fell silent, and agents
// that register after that moment need not hear of it. Thread: one.
class Deaths {
 public:
  struct Figures {
    std::uint64_t deaths = 0;
    std::uint64_t pairs = 0;  // combinations of a death and an agent that had to hear of it
    std::uint64_t late = 0;   // pairs in which the agent did not hear in time
    std::uint64_t never = 0;  // late pairs in which the agent lives and never heard
    std::uint64_t early = 0;  // heard while the lease was still valid
    Histogram delay;          // from the answer + TTL to the moment when an agent heard
    Nanos delay_max{};
  };

  // Each scope has `slots` places, each for one living agent at a time.
  Deaths(std::size_t scopes, std::size_t slots, Nanos ttl, Nanos slack);

  // An agent in this place has registered; it knows all events up to the answer.
  void joined(std::size_t scope, std::size_t slot, TimePoint answered);
  // The agent in this place falls silent after a request with these times.
  void died(std::size_t scope, std::size_t slot, std::uint64_t incarnation, TimePoint sent,
            TimePoint answered);
  // The agent in this place hears that `incarnation` expired. Returns false if no such agent died.
  bool heard(std::size_t scope, std::size_t slot, std::uint64_t incarnation, TimePoint now);
  // The agent in this place lists the living agents of its scope, and so hears of the deaths of all
  // others. This is never too early: a server that starts again has forgotten the dead agents.
  void listed(std::size_t scope, std::size_t slot, std::vector<std::uint64_t> living, TimePoint now);
  // The agent in this place has the whole answer to a heartbeat with this sending time, so it must
  // have heard of all deaths due by then.
  void caught_up(std::size_t scope, std::size_t slot, TimePoint sent);

  // Returns whether each living agent has had to hear of every death in its scope.
  [[nodiscard]] bool settled() const;
  // Counts open pairs as never heard.
  [[nodiscard]] Figures finish();

 private:
  struct Death {
    std::uint64_t incarnation = 0;
    TimePoint expires_first;  // the earliest moment
    TimePoint expires_last;
    TimePoint known_from;      // agents that registered later need not hear of it
    std::vector<bool> heard;   // by slot
    std::vector<bool> missed;  // by slot: the agent was late
  };
  struct Hearer {
    bool alive = false;
    TimePoint joined;
    TimePoint checked;  // deaths due by then are counted
  };
  struct Scope {
    // deaths by the time by which agents must have heard of them
    std::multimap<TimePoint, Death> deaths;
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
