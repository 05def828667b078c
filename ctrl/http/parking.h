#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace slime::ctrl {

// Records which connections wait for which key, and the number of waiting requests per client
// address. Thread: one.
class Parking {
 public:
  Parking(std::size_t most, std::size_t most_of_client) : most_(most), most_of_client_(most_of_client) {}

  // Counts a waiting request of the client until leave(). If a limit is reached, counts nothing and
  // returns the reason.
  std::optional<std::string> enter(const std::string& client);
  void leave(const std::string& client);
  [[nodiscard]] std::size_t waiting() const { return waiting_; }

  void add(const std::string& key, std::uint64_t connection);
  void remove(const std::string& key, std::uint64_t connection);
  [[nodiscard]] std::vector<std::uint64_t> connections(const std::string& key) const;
  [[nodiscard]] std::vector<std::string> keys() const;

 private:
  const std::size_t most_;
  const std::size_t most_of_client_;
  std::size_t waiting_ = 0;
  std::unordered_map<std::string, std::size_t> by_client_;
  std::unordered_map<std::string, std::unordered_set<std::uint64_t>> by_key_;
};

}  // namespace slime::ctrl
