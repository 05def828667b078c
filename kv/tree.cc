#include "kv/tree.h"

#include <algorithm>
#include <tuple>

#include "base/str.h"

namespace slime::kv {
namespace {

Status no_place() { return Status(Code::kResourceExhausted, "no reader has a free place now"); }

}  // namespace

Result<Place> Tree::join(std::uint64_t connection, std::string address, TimePoint now) {
  if (!may_be_address(address)) return Status(Code::kInvalidArgument, "a reader without an address");
  expire(now);
  if (nodes_.size() >= limits::kReaders)
    return Status(Code::kResourceExhausted, str("the broadcast has ", nodes_.size(), " readers"));
  const std::uint64_t ticket = next_++;
  Node& node = nodes_[ticket];
  node.connection = connection;
  node.address = std::move(address);
  node.heard = now;
  auto placed = place(ticket, node);
  if (!placed) nodes_.erase(ticket);
  return placed;
}

Result<Place> Tree::move(std::uint64_t connection, std::uint64_t ticket, std::uint64_t failed,
                         TimePoint now) {
  const auto found = find(connection, ticket);
  if (!found) return found.status();
  Node& node = **found;
  node.heard = now;
  expire(now);
  if (node.complete) return Status(Code::kInvalidArgument, "this reader has all bytes");
  if (node.holds_place && node.parent == failed) {
    if (const auto parent = nodes_.find(failed); parent != nodes_.end()) {
      parent->second.suspect = true;
      // It reads no more, so its own place is free at once. The place of a reader that has not all
      // bytes stays until its time is over, because it may go on reading.
      if (parent->second.complete) take_place_back(parent->second);
      if (node.avoided.size() >= limits::kAvoided) node.avoided.erase(node.avoided.begin());
      node.avoided.push_back(failed);
    }
  }
  take_place_back(node);
  return place(ticket, node);
}

Status Tree::report(std::uint64_t connection, std::uint64_t ticket, std::uint64_t ready, bool complete,
                    TimePoint now) {
  expire(now);
  const auto found = find(connection, ticket);
  if (!found) return found.status();
  Node& node = **found;
  node.heard = now;
  node.ready = std::max(node.ready, ready);
  node.complete = node.complete || complete;
  node.suspect = false;
  return {};
}

void Tree::leave(std::uint64_t connection, std::uint64_t ticket) {
  const auto node = nodes_.find(ticket);
  if (node != nodes_.end() && node->second.connection == connection) forget(node);
}

void Tree::drop(std::uint64_t connection) {
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    const auto next = std::next(node);
    if (node->second.connection == connection) forget(node);
    node = next;
  }
}

void Tree::clear() {
  nodes_.clear();
  owner_children_ = 0;
}

std::size_t Tree::complete() const {
  return static_cast<std::size_t>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& each) { return each.second.complete; }));
}

std::uint32_t Tree::children(std::uint64_t ticket) const {
  if (ticket == 0) return owner_children_;
  const auto node = nodes_.find(ticket);
  return node == nodes_.end() ? 0 : node->second.children;
}

Result<Tree::Node*> Tree::find(std::uint64_t connection, std::uint64_t ticket) {
  const auto node = nodes_.find(ticket);
  if (node != nodes_.end() && node->second.connection == connection) return &node->second;
  return Status(Code::kAborted,
                str("this reader has no place any more: the owner heard nothing of it for too long, or has a "
                    "new version; fetch again"));
}

bool Tree::feeds(std::uint64_t ticket, std::uint64_t reader) const {
  for (std::size_t steps = 0; steps <= nodes_.size(); ++steps) {
    if (ticket == 0) return true;
    if (ticket == reader) return false;
    const auto node = nodes_.find(ticket);
    if (node == nodes_.end() || node->second.suspect) return false;
    if (node->second.complete) return true;
    if (!node->second.holds_place) return false;
    ticket = node->second.parent;
  }
  return false;
}

Result<Place> Tree::place(std::uint64_t ticket, Node& node) {
  Node* best = nullptr;
  std::uint64_t parent = 0;
  if (owner_children_ >= fan_out_) {
    // Near the owner first, then evenly, then the one that has most.
    const auto rank = [](const Node& each) { return std::tuple(each.level, each.children, ~each.ready); };
    for (auto& [candidate, each] : nodes_) {
      if (each.children >= fan_out_ || (best != nullptr && rank(*best) <= rank(each))) continue;
      if (std::find(node.avoided.begin(), node.avoided.end(), candidate) != node.avoided.end()) continue;
      if (!feeds(candidate, ticket)) continue;
      best = &each;
      parent = candidate;
    }
    if (best == nullptr) return no_place();
  }
  node.parent = parent;
  node.holds_place = true;
  node.level = best == nullptr ? 1 : best->level + 1;
  ++(best == nullptr ? owner_children_ : best->children);
  return Place{ticket, parent, best == nullptr ? std::string() : best->address};
}

void Tree::take_place_back(Node& node) {
  if (!node.holds_place) return;
  node.holds_place = false;
  if (node.parent == 0) {
    --owner_children_;
  } else if (const auto parent = nodes_.find(node.parent); parent != nodes_.end()) {
    --parent->second.children;
  }
}

void Tree::forget(Nodes::iterator node) {
  take_place_back(node->second);
  nodes_.erase(node);
}

void Tree::expire(TimePoint now) {
  for (auto node = nodes_.begin(); node != nodes_.end();) {
    const auto next = std::next(node);
    if (!node->second.complete && now - node->second.heard > patience_) forget(node);
    node = next;
  }
}

}  // namespace slime::kv
