#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/machine_limits.h"

namespace slime::bench {

// Returns 0 for no values.
double median(std::vector<double> values);

// The figures of all rounds, by name.
class Figures {
 public:
  void add(const std::string& name, double value) { values_[name].push_back(value); }
  // Adds the limit of the same round, measured by `variant`.
  void add_limit(double value, const std::string& variant);

  // Puts into `out` each figure's median, and in "spread" its least and largest round; the limit
  // with its spread, if it was measured; the ratio of the medians, and the least and largest ratio
  // of single rounds.
  void put(nlohmann::json& out, const Limit& limit) const;

 private:
  [[nodiscard]] const std::pair<const std::string, std::vector<double>>& best(const Limit& limit) const;
  std::map<std::string, std::vector<double>> values_;
  std::map<std::string, std::vector<double>> limits_;  // by variant
};

// Returns facts about this machine, and the time.
nlohmann::json machine_facts();

}  // namespace slime::bench
