#include "ctrl/http/parking.h"

#include "base/str.h"

namespace slime::ctrl {

std::optional<std::string> Parking::enter(const std::string& client) {
  if (waiting_ >= most_) return str(most_, " requests wait already, the most there may be");
  const auto of_client = by_client_.find(client);
  if (of_client != by_client_.end() && of_client->second >= most_of_client_)
    return str(of_client->second, " requests of ", client,
               " wait already, the most there may be of one address");
  ++by_client_[client];
  ++waiting_;
  return std::nullopt;
}

void Parking::leave(const std::string& client) {
  --waiting_;
  const auto of_client = by_client_.find(client);
  if (--of_client->second == 0) by_client_.erase(of_client);
}

void Parking::add(const std::string& key, std::uint64_t connection) { by_key_[key].insert(connection); }

void Parking::remove(const std::string& key, std::uint64_t connection) {
  const auto at = by_key_.find(key);
  at->second.erase(connection);
  if (at->second.empty()) by_key_.erase(at);
}

std::vector<std::uint64_t> Parking::connections(const std::string& key) const {
  const auto at = by_key_.find(key);
  if (at == by_key_.end()) return {};
  return {at->second.begin(), at->second.end()};
}

std::vector<std::string> Parking::keys() const {
  std::vector<std::string> out;
  out.reserve(by_key_.size());
  for (const auto& [key, connections] : by_key_) out.push_back(key);
  return out;
}

}  // namespace slime::ctrl
