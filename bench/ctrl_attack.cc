// The hostile tenant of `slime bench ctrl --hostile`.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/address.h"
#include "base/random.h"
#include "base/str.h"
#include "base/unique_fd.h"
#include "bench/bench.h"
#include "bench/ctrl_http.h"
#include "bench/process.h"
#include "ctrl/client.h"
#include "ctrl/limits.h"

namespace slime::bench {
namespace {

using nlohmann::json;

constexpr std::size_t kScanners = 200;
constexpr std::size_t kFlooders = 32;  // half of them without a token
// least number of requests that a flooder has in flight
constexpr std::size_t kPipelined = 64;
constexpr std::size_t kRecordsMost = 192;      // records of a megabyte each: more than a share
constexpr std::size_t kRegionNameBytes = 180;  // a name this long; 4096 names are a megabyte
constexpr std::uint32_t kStdin = 0xFFFFFFFF;
constexpr Nanos kLease = std::chrono::hours(1);  // longer than any run
constexpr std::size_t kScanReadBytes = std::size_t{256} << 10;

ctrl::Registration large_record(const std::string& scope, std::size_t number) {
  ctrl::Registration out;
  out.name = str("large-", number);
  out.scope = scope;
  random_bytes(out.instance.bytes);
  out.address = "127.0.0.1:1";
  out.ttl = kLease;
  for (std::size_t i = 0; i < ctrl::limits::kRegionsPerPeer; ++i)
    out.regions.push_back({str(std::string(kRegionNameBytes, 'r'), i), 4096, ctrl::RegionRights::kRead});
  return out;
}

class Attack {
 public:
  Attack(const SocketAddress& address, const std::string& host, const std::string& token,
         const std::string& scope)
      : address_(address), epoll_(epoll_create1(EPOLL_CLOEXEC)), scratch_(kScanReadBytes) {
    const RequestHead member{host, "Bearer " + token, false};
    const RequestHead nobody{host, "", false};
    const std::string list = "/v1/peers?scope=" + scope;
    scans_ = {get_text(member, list), get_text(member, list + "&kind=none"),
              get_text(member, "/v1/regions?scope=" + scope + "&name=none")};
    for (std::size_t i = 0; i < kScanners; ++i) links_.emplace_back().scans = true;
    for (std::size_t i = 0; i < kFlooders; ++i) {
      Link& link = links_.emplace_back();
      const bool known = i % 2 == 0;
      const std::string one =
          known ? post_text(member, "/v1/peers/large-0/heartbeat?scope=" + scope, "{\"incarnation\":1}")
                : get_text(nobody, "/v1/status");
      for (std::size_t k = 0; k < kPipelined; ++k) link.request += one;
    }
  }

  // Until stdin ends.
  int run() {
    epoll_event event{.events = EPOLLIN, .data = {.u32 = kStdin}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (std::uint32_t i = 0; i < links_.size(); ++i) closed_.push_back(i);
    std::array<epoll_event, 64> events;
    while (true) {
      // Opens one connection a round: a server that closes it at once must not keep this loop busy.
      if (!closed_.empty()) open();
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(), closed_.empty() ? -1 : 1);
      for (int i = 0; i < count; ++i) {
        const epoll_event& one = events[static_cast<std::size_t>(i)];
        if (one.data.u32 != kStdin) {
          work(one.data.u32, one.events);
        } else if (!obey()) {
          return 0;
        }
      }
    }
  }

 private:
  struct Link {
    bool scans = false;
    std::string request;  // the requests of a flooder, many in one text
    UniqueFd connection;
    std::size_t next = 0;  // of the scans
    std::size_t written = 0;
    std::size_t body_left = 0;
    std::string head;  // head of an answer, as far as it has come
  };

  bool obey() {
    const auto line = read_command();
    if (!line) return false;
    answer(str("COUNT ", json({{"scans", scans_answered_},
                               {"scan_bytes", scan_bytes_},
                               {"scans_refused", scans_refused_},
                               {"flood_bytes", flood_bytes_},
                               {"closed", closed_count_}})
                             .dump()));
    return true;
  }

  void open() {
    const std::uint32_t index = closed_.front();
    closed_.pop_front();
    Link& link = links_[index];
    link.connection = UniqueFd(::socket(address_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    link.written = link.body_left = 0;
    link.head.clear();
    if (link.scans) link.request = scans_[link.next++ % scans_.size()];
    // Connects from another address than the agents, which the server would otherwise refuse
    // together with it.
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    const int later = 1;  // chooses the port in connect(), so that there are enough ports
    ::setsockopt(link.connection.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later, sizeof later);
    if (::bind(link.connection.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) != 0)
      return close(index);
    if (::connect(link.connection.get(), address_.data(), address_.length()) != 0 && errno != EINPROGRESS)
      return close(index);
    epoll_event event{.events = EPOLLIN | EPOLLOUT, .data = {.u32 = index}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link.connection.get(), &event);
  }

  void close(std::uint32_t index) {
    links_[index].connection.reset();
    closed_.push_back(index);
    ++closed_count_;
  }

  void watch(std::uint32_t index, bool room) {
    epoll_event event{.events = EPOLLIN, .data = {.u32 = index}};
    if (room) event.events |= EPOLLOUT;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, links_[index].connection.get(), &event);
  }

  void work(std::uint32_t index, std::uint32_t events) {
    Link& link = links_[index];
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !read(index)) return close(index);
    if ((events & EPOLLOUT) == 0 || link.written == link.request.size()) return;
    const ssize_t n = ::send(link.connection.get(), link.request.data() + link.written,
                             link.request.size() - link.written, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN) return close(index);
    if (n < 0) return;
    link.written += static_cast<std::size_t>(n);
    if (link.scans) {
      if (link.written == link.request.size()) watch(index, false);
      return;
    }
    flood_bytes_ += static_cast<std::size_t>(n);
    if (link.written == link.request.size()) link.written = 0;  // and again
  }

  bool read(std::uint32_t index) {
    Link& link = links_[index];
    const ssize_t n = ::recv(link.connection.get(), scratch_.data(), scratch_.size(), 0);
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    if (!link.scans) return true;  // the answer is ignored
    std::string_view in(scratch_.data(), static_cast<std::size_t>(n));
    scan_bytes_ += in.size();
    if (link.body_left == 0) {
      link.head.append(in);
      HttpAnswer answer;
      if (link.head.find("\r\n\r\n") == std::string::npos) return true;
      if (parse_answer(link.head, answer) == Parsed::kBad || answer.bytes < link.head.size()) return false;
      link.body_left = answer.bytes - link.head.size();
      link.head.clear();
      if (answer.status != 200) ++scans_refused_;
    } else {
      if (in.size() > link.body_left) return false;
      link.body_left -= in.size();
    }
    if (link.body_left > 0) return true;
    ++scans_answered_;
    link.request = scans_[link.next++ % scans_.size()];
    link.written = 0;
    watch(index, true);
    return true;
  }

  const SocketAddress address_;
  const UniqueFd epoll_;
  std::vector<std::string> scans_;
  std::deque<Link> links_;
  std::deque<std::uint32_t> closed_;
  std::vector<char> scratch_;
  std::size_t scans_answered_ = 0;
  std::size_t scans_refused_ = 0;
  std::size_t scan_bytes_ = 0;
  std::size_t flood_bytes_ = 0;
  std::size_t closed_count_ = 0;
};

// Returns how many records of a megabyte the scope has accepted.
Result<std::size_t> fill_share(const std::string& url, const std::string& token, const std::string& scope,
                               bool& refused) {
  auto client = ctrl::Client::create({.url = url, .token = token});
  if (!client) return client.error();
  for (std::size_t i = 0; i < kRecordsMost; ++i) {
    const auto lease = (*client)->register_peer(large_record(scope, i));
    if (lease) continue;
    refused = lease.error().code() == Code::kResourceExhausted;
    if (refused && i > 0) return i;
    return lease.error();
  }
  return kRecordsMost;
}

}  // namespace

int run_hostile(const std::string& url, const std::string& scope) {
  // Takes only processor time that neither the server nor the agents want, as if it ran on another
  // machine.
  const sched_param none{};
  (void)::sched_setscheduler(0, SCHED_IDLE, &none);
  const auto token = read_command();
  if (!token) return 0;
  const std::string host = url.substr(url.find("//") + 2);
  const auto address = Address::parse(host);
  const auto numeric = address ? SocketAddress::numeric(*address) : Result<SocketAddress>(address.error());
  if (!numeric) return answer("ERROR " + numeric.status().to_string()), 1;
  bool refused = false;
  const auto filled = fill_share(url, *token, scope, refused);
  if (!filled) return answer("ERROR " + filled.status().to_string()), 1;
  answer(str("READY ", json({{"records", *filled}, {"share_is_full", refused}}).dump()));
  return Attack(*numeric, host, *token, scope).run();
}

}  // namespace slime::bench
