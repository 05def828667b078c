#include "ctrl/api/prober.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <climits>
#include <memory>

#include "base/bytes.h"
#include "base/probe.h"
#include "base/unique_fd.h"
#include "ctrl/types.h"

namespace slime::ctrl {
namespace {

// Waits until `fd` is ready for `events`, such as POLLIN. Returns false if `deadline` passes first.
bool wait_ready(int fd, short events, TimePoint deadline) {
  while (true) {
    const Nanos left = deadline - steady_clock().now();
    if (left <= Nanos::zero()) return false;
    pollfd entry{fd, events, 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int ready = ::poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(ms, INT_MAX)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

struct AddressDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

std::unique_ptr<addrinfo, AddressDeleter> numeric_address(const std::string& address) {
  std::optional<HostPort> target = parse_host_port(address);
  if (!target) return nullptr;
  if (target->host == "localhost") target->host = "127.0.0.1";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (::getaddrinfo(target->host.c_str(), std::to_string(target->port).c_str(), &hints, &list) != 0)
    return nullptr;
  return std::unique_ptr<addrinfo, AddressDeleter>(list);
}

}  // namespace

ProbeResult probe_instance(const std::string& address, const InstanceId& instance, Nanos timeout) {
  const TimePoint deadline = deadline_after(steady_clock().now(), timeout);
  const auto target = numeric_address(address);
  if (target == nullptr) return ProbeResult::kSilent;
  const UniqueFd fd(::socket(target->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ProbeResult::kSilent;
  if (::connect(fd.get(), target->ai_addr, target->ai_addrlen) != 0 && errno != EINPROGRESS)
    return errno == ECONNREFUSED ? ProbeResult::kGone : ProbeResult::kSilent;
  if (!wait_ready(fd.get(), POLLOUT, deadline)) return ProbeResult::kSilent;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return error == ECONNREFUSED ? ProbeResult::kGone : ProbeResult::kSilent;

  // The request fits into any socket buffer, so send() never sends only a part of it.
  const ProbeRequest request{kProbeMagic, instance.bytes};
  if (::send(fd.get(), &request, sizeof request, MSG_NOSIGNAL) != sizeof request) return ProbeResult::kSilent;
  ProbeReply reply;
  std::size_t received = 0;
  while (received < sizeof reply) {
    if (!wait_ready(fd.get(), POLLIN, deadline)) return ProbeResult::kSilent;
    const ssize_t n =
        ::recv(fd.get(), reinterpret_cast<char*>(&reply) + received, sizeof reply - received, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    // A listener that closes the connection is not a Slime listener, so the result is unknown.
    if (n <= 0) return ProbeResult::kSilent;
    received += static_cast<std::size_t>(n);
  }
  if (reply.magic != kProbeMagic) return ProbeResult::kSilent;
  return reply.same == 1 ? ProbeResult::kSame : ProbeResult::kGone;
}

}  // namespace slime::ctrl
