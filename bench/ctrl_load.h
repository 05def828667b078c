#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/address.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "bench/ctrl_deaths.h"
#include "bench/ctrl_http.h"
#include "bench/histogram.h"

namespace slime::bench {

struct LoadOptions {
  std::uint32_t agents = 0;
  std::uint32_t scopes = 1;
  Nanos heartbeat{};
  Nanos ttl{};    // of the server
  Nanos slack{};  // for its tick
  bool kept = false;
  std::vector<std::string> urls;
  std::string token;
};

struct Latency {
  Histogram values;
  Nanos max{};
  void add(Nanos value) {
    values.add(static_cast<std::uint64_t>(std::max(Nanos::zero(), value).count()));
    max = std::max(max, value);
  }
};

// Simulated agents of a nanoctrl in this thread: each registers, sends heartbeats on a schedule of
// its own, and has its own connection, kept or new for each request. Thread: one.
class CtrlLoad {
 public:
  // Latencies cover the requests that are due between the times of count_between(); errors, losses
  // and other counts cover the whole run.
  struct Figures {
    Latency heartbeat;       // from when it was due to the whole answer
    Latency heartbeat_sent;  // from when it was sent
    Latency registration;
    Latency registration_sent;
    // from the time when a request was due to the time when this thread sent it
    Latency lag;
    Latency lag_ever;              // lag of the whole run
    std::uint64_t answers = 0;     // of all kinds, between the times of count_between()
    std::uint64_t events = 0;      // in them
    std::uint64_t skipped = 0;     // heartbeats that were due while the one before was not answered
    std::uint64_t follow_ups = 0;  // because of "more"
    // lists of the scope, on the server's demand or after it forgot the agent
    std::uint64_t resyncs = 0;
    std::uint64_t reconnects = 0;   // a broken connection: the request goes to the next server
    std::uint64_t idle_closed = 0;  // kept connections that the server closed between requests
    std::uint64_t timeouts = 0;     // of the broken ones: no answer in time
    std::uint64_t lost = 0;         // living agents that the server forgot
    // expired agents in the server's events that this load did not make
    std::uint64_t unknown = 0;
    // deaths between the times of count_between(), each with a registration
    std::uint64_t churned = 0;
    std::uint64_t ttl_ms = 0;                     // as the server reports it
    std::map<std::string, std::uint64_t> errors;  // by HTTP status, or "malformed"
  };

  static Result<std::unique_ptr<CtrlLoad>> create(const LoadOptions& options);
  CtrlLoad(const CtrlLoad&) = delete;
  CtrlLoad& operator=(const CtrlLoad&) = delete;

  // Registers all agents, this many per second. Spreads their heartbeats over the period.
  void register_all(double per_second);
  // Makes this many agents per second fall silent, and registers others in their places; 0 stops
  // that.
  void set_churn(double per_second);
  void count_between(TimePoint begin, TimePoint end) {
    begin_ = begin;
    end_ = end;
  }
  // Works until `end`, or until done() returns true, which is called a hundred times a second.
  // Returns kCancelled on Ctrl-C.
  template <class Done>
  Status run(TimePoint end, Done done) {
    while (clock_.now() < end && !done()) SLIME_TRY(work_until(std::min(end, clock_.now() + kTurn)));
    return {};
  }

  // Clears the latencies, and the counts between the times of count_between(). Keeps the counts of
  // the whole run.
  void forget_latencies();

  [[nodiscard]] std::uint32_t registered() const { return static_cast<std::uint32_t>(living_.size()); }
  [[nodiscard]] const Figures& figures() const { return figures_; }
  [[nodiscard]] Deaths& deaths() { return deaths_; }

 private:
  static constexpr Nanos kTurn = std::chrono::milliseconds(10);
  enum class Doing : std::uint8_t { kNothing, kRegister, kHeartbeat, kFollowUp, kList };
  struct Agent {
    std::string name;
    std::string instance;
    std::string session;
    std::uint64_t incarnation = 0;  // 0: not registered
    std::uint64_t since = 0;
    bool forgotten = false;  // the server forgot the agent, which registers again
    Doing doing = Doing::kNothing;
    TimePoint due;         // time at which the request in flight was due
    TimePoint sent;        // its latest try
    TimePoint chain_sent;  // sending time of the heartbeat that caused the follow-ups and lists
    TimePoint next_due;    // due time of the heartbeat after that
    TimePoint renewed_sent;
    TimePoint renewed_answered;
    std::uint32_t timer = 0;    // increases, which makes older timers of the agent void
    std::uint32_t request = 0;  // increases with each try
    bool asked = false;         // the latest try has no answer yet
    std::uint32_t server = 0;   // index of its URL
    std::uint32_t tries = 0;    // tries of this request that broke
    UniqueFd connection;
    bool watched = false;     // by epoll
    bool wants_room = false;  // whether epoll reports room for writing
    std::string out;
    std::size_t written = 0;
    std::string in;
    std::unique_ptr<PeerPage> list;  // the pages of the list so far
  };
  struct Timer {
    TimePoint at;
    std::uint32_t agent = 0;
    std::uint32_t number = 0;
    bool operator>(const Timer& other) const { return at > other.at; }
  };
  struct Patience {
    TimePoint end;
    std::uint32_t agent = 0;
    std::uint32_t request = 0;
  };
  struct Server {
    SocketAddress address;
    RequestHead head;
  };

  CtrlLoad(const LoadOptions& options, std::vector<Server> servers, UniqueFd epoll, UniqueFd timer);

  [[nodiscard]] std::uint32_t scope_of(std::uint32_t agent) const { return agent % options_.scopes; }
  [[nodiscard]] std::uint32_t slot_of(std::uint32_t agent) const { return agent / options_.scopes; }
  [[nodiscard]] std::string scope_name(std::uint32_t agent) const;
  [[nodiscard]] bool counts(const Agent& agent) const { return agent.due >= begin_ && agent.due < end_; }

  // The engine (ctrl_load.cc).
  Status work_until(TimePoint end);
  void arm(TimePoint at);
  void run_due();
  void churn(TimePoint now);
  void set_timer(std::uint32_t index, TimePoint at);
  void transmit(std::uint32_t index);
  bool open(std::uint32_t index);
  void write(std::uint32_t index);
  void read(std::uint32_t index);
  void close(Agent& agent);
  void broken(std::uint32_t index);
  void go_on_elsewhere(std::uint32_t index);

  // The requests of an agent, and its handling of the answers (ctrl_agents.cc).
  void become_new(std::uint32_t index);
  void begin(std::uint32_t index, Doing doing, TimePoint due);
  void compose(std::uint32_t index);
  void on_answer(std::uint32_t index, const HttpAnswer& answer);
  void on_registered(std::uint32_t index, std::string_view body);
  void on_news(std::uint32_t index, std::string_view body);
  void resync(std::uint32_t index);
  void on_list(std::uint32_t index, std::string_view body);
  void on_error(std::uint32_t index, int status);
  void on_malformed(std::uint32_t index);
  void lose(std::uint64_t incarnation);
  void done(std::uint32_t index);

  const LoadOptions options_;
  const Clock& clock_ = steady_clock();
  const std::vector<Server> servers_;
  const UniqueFd epoll_;
  const UniqueFd timer_;
  const std::string prefix_;  // unique prefix of this load's scopes and names
  std::vector<Agent> agents_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::deque<Patience> patience_;
  std::unordered_map<std::uint64_t, std::uint32_t> living_;  // by incarnation
  std::unordered_set<std::uint64_t> lost_;
  std::uint64_t names_ = 0;
  Rng rng_;
  Nanos churn_gap_{};
  TimePoint next_churn_ = kNever;
  TimePoint begin_ = kNever;
  TimePoint end_ = kNever;
  Figures figures_;
  Deaths deaths_;
};

}  // namespace slime::bench
