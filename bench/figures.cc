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

void Figures::add_limit(double value, const std::string& variant) {
  limits_.push_back(value);
  variants_.push_back(variant);
}

void Figures::put(json& out, const Limit& limit) const {
  json spread = json::object();
  for (const auto& [name, values] : values_) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    out[name] = median(values);
    spread[name] = {*least, *most};
  }
  out["spread"] = std::move(spread);
  const std::vector<double>& ours = values_.at(limit.figure);
  const double value = median(limits_);
  const auto [least, most] = std::minmax_element(limits_.begin(), limits_.end());
  out["limit"] = {{"name", limit.name},     {"kind", limit_word(limit.kind)},
                  {"figure", limit.figure}, {"less_is_better", limit.less_is_better},
                  {"value", value},         {"spread", {*least, *most}}};
  // The way that was best in the round in the middle.
  const auto middle = std::min_element(limits_.begin(), limits_.end(), [value](double a, double b) {
    return std::abs(a - value) < std::abs(b - value);
  });
  const std::string& variant = variants_[static_cast<std::size_t>(middle - limits_.begin())];
  if (variant != "only") out["limit"]["variant"] = variant;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.size(); ++i) ratios.push_back(limits_[i] > 0 ? ours[i] / limits_[i] : 0);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  out["ratio_to_limit"] = value > 0 ? median(ours) / value : 0;
  out["ratio_spread"] = {*low, *high};
}

}  // namespace slime::bench
