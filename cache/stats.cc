#include "cache/stats.h"

namespace slime::cache {
namespace {

template <class Stats>
std::string fields_of(const Stats& stats) {
  std::string out;
  for_each_field(stats, [&](const char* name, std::uint64_t value) {
    if (!out.empty()) out += ", ";
    out.append("\"").append(name).append("\": ").append(std::to_string(value));
  });
  return out;
}

}  // namespace

std::string to_json(const StoreStats& stats) {
  std::string out = "{" + fields_of(stats) + ", \"classes\": [";
  const char* comma = "";
  for (const ClassStats& size : stats.classes) {
    out.append(comma).append("{").append(fields_of(size)).append("}");
    comma = ", ";
  }
  return out + "]}";
}

}  // namespace slime::cache
