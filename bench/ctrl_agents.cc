// The requests of a simulated agent, and its handling of the answers.
#include <algorithm>
#include <utility>

#include "base/ids.h"
#include "base/str.h"
#include "bench/ctrl_load.h"

namespace slime::bench {
namespace {

constexpr Nanos kRefusedPause =
    std::chrono::milliseconds(200);  // pause before a refused registration is tried again
constexpr int kOk = 200;
constexpr int kNotFound = 404;
constexpr int kGone = 410;
constexpr int kUnavailable = 503;

}  // namespace

std::string CtrlLoad::scope_name(std::uint32_t agent) const {
  return prefix_ + "-" + std::to_string(scope_of(agent));
}

// Replaces the agent at this index by a new one, with a name and an instance that no agent had
// before.
void CtrlLoad::become_new(std::uint32_t index) {
  Agent& agent = agents_[index];
  agent.name = "agent-" + std::to_string(names_++);
  std::array<std::byte, 16> id{};
  rng_.fill(id);
  agent.instance = to_hex(id);
  std::array<std::byte, 32> session{};
  rng_.fill(session);
  agent.session = to_hex(session);
  agent.incarnation = 0;
}

void CtrlLoad::begin(std::uint32_t index, Doing doing, TimePoint due) {
  Agent& agent = agents_[index];
  ++agent.timer;  // earlier timers are void
  agent.doing = doing;
  agent.due = due;
  agent.tries = 0;
  if (doing == Doing::kHeartbeat) {
    agent.next_due = due + options_.heartbeat;
    agent.chain_sent = clock_.now();
  }
  transmit(index);
}

void CtrlLoad::compose(std::uint32_t index) {
  Agent& agent = agents_[index];
  const RequestHead& head = servers_[agent.server].head;
  const std::string scope = scope_name(index);
  switch (agent.doing) {
    case Doing::kRegister:
      // The request of the example in docs/nanoctrl-api.md.
      agent.out =
          post_text(head, "/v1/peers",
                    "{\"name\":\"" + agent.name + "\",\"scope\":\"" + scope + "\",\"instance\":\"" +
                        agent.instance + "\",\"session\":\"" + agent.session +
                        "\",\"address\":\"127.0.0.1:7001\",\"kind\":\"worker\",\"providers\":[\"tcp\"],"
                        "\"metadata\":{\"gpu\":\"0\"},"
                        "\"services\":[{\"name\":\"calc\",\"kind\":\"math\",\"methods\":[\"add\"]}],"
                        "\"regions\":[{\"name\":\"kv\",\"length_bytes\":1048576,\"rights\":\"read\"}]}");
      return;
    case Doing::kHeartbeat:
    case Doing::kFollowUp:
      agent.out = post_text(head, "/v1/peers/" + agent.name + "/heartbeat?scope=" + scope,
                            "{\"incarnation\":" + std::to_string(agent.incarnation) + ",\"session\":\"" +
                                agent.session + "\",\"since\":" + std::to_string(agent.since) + "}");
      return;
    case Doing::kList:
      agent.out = get_text(head, "/v1/peers?scope=" + scope + "&limit=1000" +
                                     (agent.list->next.empty() ? "" : "&after=" + agent.list->next));
      return;
    case Doing::kNothing:
      return;
  }
}

void CtrlLoad::on_answer(std::uint32_t index, const HttpAnswer& answer) {
  Agent& agent = agents_[index];
  agent.asked = false;
  const TimePoint now = clock_.now();
  if (now >= begin_ && now < end_) ++figures_.answers;
  if (options_.kept && answer.close) close(agent);
  if (answer.status != kOk) return on_error(index, answer.status);
  switch (agent.doing) {
    case Doing::kRegister:
      return on_registered(index, answer.body);
    case Doing::kHeartbeat:
    case Doing::kFollowUp:
      return on_news(index, answer.body);
    case Doing::kList:
      return on_list(index, answer.body);
    case Doing::kNothing:
      return;
  }
}

void CtrlLoad::on_registered(std::uint32_t index, std::string_view body) {
  Agent& agent = agents_[index];
  const auto grant = parse_grant(body);
  if (!grant) return on_malformed(index);
  const TimePoint now = clock_.now();
  if (counts(agent)) {
    figures_.registration.add(now - agent.due);
    figures_.registration_sent.add(now - agent.sent);
  }
  figures_.ttl_ms = grant->ttl_ms;
  agent.incarnation = grant->incarnation;
  agent.since = grant->revision;
  agent.renewed_sent = agent.sent;
  agent.renewed_answered = now;
  living_[agent.incarnation] = index;
  deaths_.joined(scope_of(index), slot_of(index), now);
  // A random time in the period, so that the heartbeats of all agents are spread over it.
  const auto period = static_cast<std::uint64_t>(options_.heartbeat.count());
  agent.next_due = now + Nanos(static_cast<std::int64_t>(rng_.below(period) + 1));
  // An agent that the server forgot has missed events meanwhile.
  if (!std::exchange(agent.forgotten, false)) return done(index);
  agent.chain_sent = agent.sent;
  resync(index);
}

void CtrlLoad::resync(std::uint32_t index) {
  ++figures_.resyncs;
  agents_[index].list = std::make_unique<PeerPage>();
  begin(index, Doing::kList, clock_.now());
}

void CtrlLoad::on_news(std::uint32_t index, std::string_view body) {
  Agent& agent = agents_[index];
  const auto news = parse_news(body);
  if (!news) return on_malformed(index);
  const TimePoint now = clock_.now();
  const bool counted = counts(agent);
  if (agent.doing == Doing::kHeartbeat && counted) {
    figures_.heartbeat.add(now - agent.due);
    figures_.heartbeat_sent.add(now - agent.sent);
  }
  if (counted) figures_.events += news->events;
  agent.renewed_sent = agent.sent;
  agent.renewed_answered = now;
  for (const std::uint64_t incarnation : news->expired) {
    if (living_.contains(incarnation)) {
      lose(incarnation);
    } else if (!deaths_.heard(scope_of(index), slot_of(index), incarnation, now) &&
               !lost_.contains(incarnation)) {
      ++figures_.unknown;
    }
  }
  if (news->resync) return resync(index);
  agent.since = news->revision;
  if (news->more) {
    ++figures_.follow_ups;
    return begin(index, Doing::kFollowUp, now);
  }
  deaths_.caught_up(scope_of(index), slot_of(index), agent.chain_sent);
  done(index);
}

void CtrlLoad::on_list(std::uint32_t index, std::string_view body) {
  Agent& agent = agents_[index];
  auto page = parse_peers(body);
  if (!page) return on_malformed(index);
  PeerPage& list = *agent.list;
  if (list.next.empty()) list.revision = page->revision;  // the first page's
  list.incarnations.insert(list.incarnations.end(), page->incarnations.begin(), page->incarnations.end());
  list.next = std::move(page->next);
  if (!list.next.empty()) return begin(index, Doing::kList, clock_.now());
  deaths_.listed(scope_of(index), slot_of(index), std::move(list.incarnations), clock_.now());
  deaths_.caught_up(scope_of(index), slot_of(index), agent.chain_sent);
  agent.since = list.revision;
  agent.list.reset();
  done(index);
}

void CtrlLoad::on_error(std::uint32_t index, int status) {
  Agent& agent = agents_[index];
  ++figures_.errors[std::to_string(status)];
  if (status == kUnavailable) return go_on_elsewhere(index);
  const bool beats = agent.doing == Doing::kHeartbeat || agent.doing == Doing::kFollowUp;
  if (beats && (status == kNotFound || status == kGone)) {
    lose(agent.incarnation);
    living_.erase(agent.incarnation);
    agent.incarnation = 0;
    agent.forgotten = true;
    return begin(index, Doing::kRegister, clock_.now());
  }
  if (agent.doing == Doing::kRegister) return set_timer(index, clock_.now() + kRefusedPause);
  done(index);
}

void CtrlLoad::on_malformed(std::uint32_t index) {
  ++figures_.errors["malformed"];
  go_on_elsewhere(index);
}

void CtrlLoad::lose(std::uint64_t incarnation) {
  lost_.insert(incarnation);
  figures_.lost = lost_.size();
}

// Plans the next heartbeat. All heartbeats that were due before this answer count as one.
void CtrlLoad::done(std::uint32_t index) {
  Agent& agent = agents_[index];
  agent.doing = Doing::kNothing;
  const TimePoint now = clock_.now();
  while (agent.next_due + options_.heartbeat <= now) {
    agent.next_due += options_.heartbeat;
    ++figures_.skipped;
  }
  set_timer(index, agent.next_due);
}

}  // namespace slime::bench
