#include "bench/figures.h"

#include <algorithm>

namespace slime::bench {

using nlohmann::json;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

void Figures::add_limit(double value, const std::string& variant) { limits_[variant].push_back(value); }

// Returns the variant with the best median over the rounds. The best value of each round would be
// the luckiest of many.
const std::pair<const std::string, std::vector<double>>& Figures::best(const Limit& limit) const {
  return *std::max_element(limits_.begin(), limits_.end(), [&limit](const auto& a, const auto& b) {
    const double difference = median(a.second) - median(b.second);
    return limit.less_is_better ? difference > 0 : difference < 0;
  });
}

void Figures::put(json& out, const Limit& limit) const {
  json spread = json::object();
  for (const auto& [name, values] : values_) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    out[name] = median(values);
    spread[name] = {*least, *most};
  }
  out["spread"] = std::move(spread);
  if (limits_.empty()) return;
  const std::vector<double>& ours = values_.at(limit.figure);
  const auto& [variant, limits] = best(limit);
  const double value = median(limits);
  const auto [least, most] = std::minmax_element(limits.begin(), limits.end());
  out["limit"] = {{"name", limit.name},     {"kind", limit_word(limit.kind)},
                  {"figure", limit.figure}, {"less_is_better", limit.less_is_better},
                  {"value", value},         {"spread", {*least, *most}}};
  if (variant != "only") out["limit"]["variant"] = variant;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(limits[i] > 0 ? ours[i] / limits[i] : 0);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  out["ratio_to_limit"] = value > 0 ? median(ours) / value : 0;
  out["ratio_spread"] = {*low, *high};
}

}  // namespace slime::bench
