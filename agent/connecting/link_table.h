#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/connecting/link.h"
#include "agent/connecting/named_peer.h"

namespace slime::agent {

// The links of an agent, by the name or address that the user gave. Thread: the loop.
class LinkTable {
 public:
  // Returns the link; null: none.
  [[nodiscard]] Link* find(std::string_view key) const {
    const auto it = links_.find(key);
    return it == links_.end() ? nullptr : it->second.get();
  }
  // Like find(peer.name), but searches only if links were forgotten since the last search.
  Link* find(NamedPeer& peer) const {
    if (peer.link_ == nullptr || peer.links_ != generation_) {
      peer.link_ = find(std::string_view(peer.name));
      peer.links_ = generation_;
    }
    return peer.link_;
  }
  Link& add(const std::string& key, std::unique_ptr<Link> link) {
    return *links_.emplace(key, std::move(link)).first->second;
  }
  void forget_unused() {
    ++generation_;
    std::erase_if(links_, [this](const auto& entry) {
      Link& link = *entry.second;
      if (!link.forgettable()) return false;
      drop_instance(link);
      return true;
    });
  }
  // Must be called before the instance of link.identity() changes to `next`.
  void on_new_instance(Link& link, const InstanceId& next) {
    drop_instance(link);
    if (!next.is_zero()) by_instance_.emplace(next, &link);
  }
  // Returns the links whose identity is this instance of a peer.
  [[nodiscard]] std::vector<Link*> of_instance(const InstanceId& instance) const {
    std::vector<Link*> out;
    const auto [first, last] = by_instance_.equal_range(instance);
    for (auto it = first; it != last; ++it) out.push_back(it->second);
    return out;
  }
  [[nodiscard]] std::size_t size() const { return links_.size(); }
  [[nodiscard]] auto begin() const { return links_.begin(); }
  [[nodiscard]] auto end() const { return links_.end(); }

 private:
  void drop_instance(Link& link) {
    const auto [first, last] = by_instance_.equal_range(link.identity().instance);
    const auto it = std::find_if(first, last, [&](const auto& entry) { return entry.second == &link; });
    if (it != last) by_instance_.erase(it);
  }

  std::map<std::string, std::unique_ptr<Link>, std::less<>> links_;
  std::multimap<InstanceId, Link*> by_instance_;  // by link.identity(); none for links without one
  std::uint64_t generation_ = 1;                  // grows when links are forgotten
};

}  // namespace slime::agent
