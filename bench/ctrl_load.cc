#include "bench/ctrl_load.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/str.h"
#include "bench/process.h"

namespace slime::bench {
namespace {

// the time that agents wait, too (ctrl/client.h)
constexpr Nanos kAnswerTime = std::chrono::seconds(5);
constexpr Nanos kBackoff = std::chrono::milliseconds(100);  // pause after each server has refused
constexpr std::uint32_t kLongestBackoff = 10;               // of them
constexpr std::uint32_t kTimerTag = 0xFFFFFFFF;
constexpr std::size_t kReadBytes = 65536;
constexpr std::uint32_t kLooks = 64;  // tries to find an agent that may die now

std::string unlike_others() {
  std::uint64_t bits = 0;
  random_bytes({reinterpret_cast<std::byte*>(&bits), sizeof bits});
  return str("bench-", std::hex, bits & 0xFFFFFFFF);
}

timespec to_timespec(TimePoint at) {
  const std::int64_t nanos = std::max<std::int64_t>(1, at.time_since_epoch().count());
  return {.tv_sec = nanos / 1'000'000'000, .tv_nsec = nanos % 1'000'000'000};
}

}  // namespace

Result<std::unique_ptr<CtrlLoad>> CtrlLoad::create(const LoadOptions& options) {
  constexpr std::string_view kHttp = "http://";
  std::vector<Server> servers;
  for (const std::string& url : options.urls) {
    std::string_view rest = url;
    if (!rest.starts_with(kHttp)) return Status(Code::kInvalidArgument, str(url, ": not http://HOST:PORT"));
    rest.remove_prefix(kHttp.size());
    if (rest.ends_with('/')) rest.remove_suffix(1);
    const auto address = Address::parse(rest);
    if (!address) return address.error();
    const auto numeric = SocketAddress::numeric(*address);
    if (!numeric) return numeric.error();
    servers.push_back(
        {*numeric,
         {std::string(rest), options.token.empty() ? "" : "Bearer " + options.token, !options.kept}});
  }
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return from_errno("epoll", errno);
  UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) return from_errno("timerfd", errno);
  epoll_event event{.events = EPOLLIN, .data = {.u32 = kTimerTag}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, timer.get(), &event) != 0) return from_errno("epoll", errno);
  return std::unique_ptr<CtrlLoad>(
      new CtrlLoad(options, std::move(servers), std::move(epoll), std::move(timer)));
}

CtrlLoad::CtrlLoad(const LoadOptions& options, std::vector<Server> servers, UniqueFd epoll, UniqueFd timer)
    : options_(options),
      servers_(std::move(servers)),
      epoll_(std::move(epoll)),
      timer_(std::move(timer)),
      prefix_(unlike_others()),
      agents_(options.agents),
      rng_(20260101),
      deaths_(options.scopes, (options.agents + options.scopes - 1) / options.scopes, options.ttl,
              options.slack) {}

void CtrlLoad::register_all(double per_second) {
  const TimePoint now = clock_.now();
  for (std::uint32_t i = 0; i < agents_.size(); ++i) {
    become_new(i);
    set_timer(i, now + to_nanos(i / per_second));
  }
}

void CtrlLoad::set_churn(double per_second) {
  churn_gap_ = per_second > 0 ? to_nanos(1 / per_second) : Nanos::zero();
  next_churn_ = per_second > 0 ? clock_.now() + churn_gap_ : kNever;
}

void CtrlLoad::forget_latencies() {
  for (Latency* each : {&figures_.heartbeat, &figures_.heartbeat_sent, &figures_.registration,
                        &figures_.registration_sent, &figures_.lag})
    *each = {};
  figures_.answers = figures_.events = 0;
}

Status CtrlLoad::work_until(TimePoint end) {
  std::array<epoll_event, 256> events;
  while (clock_.now() < end) {
    if (interrupted()) return {Code::kCancelled, "interrupted"};
    TimePoint wake = std::min(end, next_churn_);
    if (!timers_.empty()) wake = std::min(wake, timers_.top().at);
    arm(wake);
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    for (int i = 0; i < count; ++i) {
      const std::uint32_t index = events[static_cast<std::size_t>(i)].data.u32;
      if (index == kTimerTag) continue;  // reading is not needed: arming the timer again clears it
      const std::uint32_t what = events[static_cast<std::size_t>(i)].events;
      if ((what & EPOLLOUT) != 0 && agents_[index].wants_room && (what & EPOLLERR) == 0) write(index);
      if ((what & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0 && agents_[index].connection.valid())
        read(index);
    }
    run_due();
  }
  return {};
}

void CtrlLoad::arm(TimePoint at) {
  const itimerspec when{.it_interval = {}, .it_value = to_timespec(at)};
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void CtrlLoad::set_timer(std::uint32_t index, TimePoint at) {
  timers_.push({at, index, ++agents_[index].timer});
}

void CtrlLoad::run_due() {
  TimePoint now = clock_.now();
  while (!timers_.empty() && timers_.top().at <= now) {
    const Timer timer = timers_.top();
    timers_.pop();
    Agent& agent = agents_[timer.agent];
    if (timer.number != agent.timer) continue;
    if (agent.doing != Doing::kNothing) {
      transmit(timer.agent);  // again, after a pause
    } else {
      const Nanos lag = clock_.now() - timer.at;
      figures_.lag_ever.add(lag);
      if (timer.at >= begin_ && timer.at < end_) figures_.lag.add(lag);
      begin(timer.agent, agent.incarnation == 0 ? Doing::kRegister : Doing::kHeartbeat, timer.at);
    }
  }
  now = clock_.now();
  while (next_churn_ <= now) {
    churn(next_churn_);
    next_churn_ += churn_gap_;
  }
  while (!patience_.empty() && patience_.front().end <= now) {
    const Patience patience = patience_.front();
    patience_.pop_front();
    const Agent& agent = agents_[patience.agent];
    if (agent.request != patience.request || !agent.asked) continue;
    // If the answer has arrived and this thread had no time to read it, the delay is not the
    // server's.
    char byte = 0;
    if (::recv(agent.connection.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
      patience_.push_back({now + kAnswerTime, patience.agent, patience.request});
      continue;
    }
    ++figures_.timeouts;
    broken(patience.agent);
  }
}

// Picks an agent between requests, which falls silent; another agent registers in its place.
void CtrlLoad::churn(TimePoint now) {
  for (std::uint32_t look = 0; look < kLooks; ++look) {
    const auto index = static_cast<std::uint32_t>(rng_.below(agents_.size()));
    Agent& agent = agents_[index];
    if (agent.doing != Doing::kNothing || agent.incarnation == 0) continue;
    living_.erase(agent.incarnation);
    deaths_.died(scope_of(index), slot_of(index), agent.incarnation, agent.renewed_sent,
                 agent.renewed_answered);
    if (now >= begin_ && now < end_) ++figures_.churned;
    close(agent);
    become_new(index);
    begin(index, Doing::kRegister, now);
    return;
  }
}

void CtrlLoad::transmit(std::uint32_t index) {
  Agent& agent = agents_[index];
  compose(index);
  agent.written = 0;
  agent.in.clear();
  ++agent.request;
  agent.asked = true;
  agent.sent = clock_.now();
  patience_.push_back({agent.sent + kAnswerTime, index, agent.request});
  if (!options_.kept) close(agent);
  if (!agent.connection.valid() && !open(index)) return broken(index);
  write(index);
}

bool CtrlLoad::open(std::uint32_t index) {
  Agent& agent = agents_[index];
  const SocketAddress& address = servers_[agent.server].address;
  agent.connection = UniqueFd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!agent.connection.valid()) return false;
  const int on = 1;
  ::setsockopt(agent.connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(agent.connection.get(), address.data(), address.length()) != 0 && errno != EINPROGRESS)
    return false;
  agent.watched = false;
  return true;
}

void CtrlLoad::write(std::uint32_t index) {
  Agent& agent = agents_[index];
  while (agent.written < agent.out.size()) {
    const ssize_t n = ::send(agent.connection.get(), agent.out.data() + agent.written,
                             agent.out.size() - agent.written, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return broken(index);
    if (n < 0) break;
    agent.written += static_cast<std::size_t>(n);
  }
  const bool wants_room = agent.written < agent.out.size();
  if (agent.watched && wants_room == agent.wants_room) return;
  // Over loopback a connection is made at once, so most requests are written before the socket is
  // added to epoll.
  epoll_event event{.events = EPOLLIN, .data = {.u32 = index}};
  if (wants_room) event.events |= EPOLLOUT;
  epoll_ctl(epoll_.get(), agent.watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, agent.connection.get(), &event);
  agent.watched = true;
  agent.wants_room = wants_room;
}

void CtrlLoad::read(std::uint32_t index) {
  Agent& agent = agents_[index];
  std::array<char, kReadBytes> chunk;
  const ssize_t n = ::recv(agent.connection.get(), chunk.data(), chunk.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (!agent.asked || n <= 0) {
    // Between requests the server may close the connection; at any other time a close breaks the
    // request.
    if (agent.asked) return broken(index);
    if (options_.kept) ++figures_.idle_closed;
    return close(agent);
  }
  // Most answers arrive whole, and are not copied.
  std::string_view all(chunk.data(), static_cast<std::size_t>(n));
  if (!agent.in.empty()) all = agent.in.append(all);
  HttpAnswer answer;
  const Parsed parsed = parse_answer(all, answer);
  if (parsed == Parsed::kPart) {
    if (agent.in.empty()) agent.in = all;
    return;
  }
  const std::string held = std::move(agent.in);  // the bytes in which the answer may lie
  agent.in.clear();
  if (parsed == Parsed::kBad) return on_malformed(index);
  on_answer(index, answer);
}

void CtrlLoad::close(Agent& agent) {
  agent.connection.reset();  // epoll forgets it
  agent.wants_room = false;
}

void CtrlLoad::broken(std::uint32_t index) {
  ++figures_.reconnects;
  go_on_elsewhere(index);
}

// Sends the request in flight to the next server; after a pause if all servers refused.
void CtrlLoad::go_on_elsewhere(std::uint32_t index) {
  Agent& agent = agents_[index];
  close(agent);
  agent.asked = false;
  ++agent.tries;
  const auto servers = static_cast<std::uint32_t>(servers_.size());
  agent.server = (agent.server + 1) % servers;
  const bool all_refused = agent.tries % servers == 0;
  const Nanos pause =
      all_refused ? kBackoff * std::min(agent.tries / servers, kLongestBackoff) : Nanos::zero();
  set_timer(index, clock_.now() + pause);
}

}  // namespace slime::bench
