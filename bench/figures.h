#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/limits.h"

namespace slime::bench {

// The middle one, or the mean of the two in the middle; 0 of none.
double median(std::vector<double> values);

// What each round of a measurement found, by name; and how it is told.
class Figures {
 public:
  void add(const std::string& name, double value) { values_[name].push_back(value); }
  // One variant of the limit, as it was in the same round.
  void add_limit(double value, const std::string& variant);

  // Into `out`: each figure's median by its name; under "spread" the least and the largest of the rounds; the
  // limit, its spread, and the ratio of the medians with the least and the largest of single rounds.
  void put(nlohmann::json& out, const Limit& limit) const;

 private:
  [[nodiscard]] const std::pair<const std::string, std::vector<double>>& best(const Limit& limit) const;
  std::map<std::string, std::vector<double>> values_;
  std::map<std::string, std::vector<double>> limits_;  // of each variant
};

// This machine and moment, for whoever reads the figures later.
nlohmann::json machine_facts();

}  // namespace slime::bench
