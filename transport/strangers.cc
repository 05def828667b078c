#include "transport/strangers.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "transport/limits.h"

namespace slime::transport {
namespace {

constexpr std::size_t kSiteBytes = 8;  // prefix of an IPv6 address

}  // namespace

Source source_of(const SocketAddress& peer) {
  Source out{};
  if (peer.family() == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, peer.data(), sizeof in);
    // ::ffff:a.b.c.d, the IPv4-mapped IPv6 address.
    out[10] = out[11] = std::byte{0xff};
    std::memcpy(&out[12], &in.sin_addr, sizeof in.sin_addr);
  } else if (peer.family() == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, peer.data(), sizeof in);
    const std::size_t bytes = IN6_IS_ADDR_V4MAPPED(&in.sin6_addr) ? out.size() : kSiteBytes;
    std::memcpy(out.data(), &in.sin6_addr, bytes);
  }
  return out;
}

void Strangers::add(const Stranger& stranger) { by_source_[stranger.source].push_back(&stranger); }

void Strangers::remove(const Stranger& stranger) {
  const auto found = by_source_.find(stranger.source);
  if (found == by_source_.end()) return;
  std::erase(found->second, &stranger);
  if (found->second.empty()) by_source_.erase(found);
}

Strangers::Choice Strangers::choose(TimePoint now) const {
  // Takes the source with the most strangers; among sources with equally many, the one with the
  // oldest stranger.
  const auto most = std::max_element(by_source_.begin(), by_source_.end(), [](const auto& a, const auto& b) {
    if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
    return a.second.front()->accepted > b.second.front()->accepted;
  });
  if (most == by_source_.end()) return {};
  const std::vector<const Stranger*>& all = most->second;
  const auto silent = [](const Stranger* one) { return !one->io->handshake().opened(); };
  const bool any_silent = std::any_of(all.begin(), all.end(), silent);
  const Nanos least = any_silent ? limits::kSilentLeastTime : limits::kAnswerLeastTime;
  for (const Stranger* one : all) {
    if (any_silent && !silent(one)) continue;
    const TimePoint due = deadline_after(one->accepted, least);
    if (due > now) return {nullptr, due};  // the following ones are younger
    if (!one->io->has_unread()) return {one, kNever};
  }
  return {nullptr, now};
}

}  // namespace slime::transport
