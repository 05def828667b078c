// Tables of several measurements.
#include <nlohmann/json.hpp>

#include "base/child.h"
#include "base/str.h"
#include "bench/bench.h"

namespace slime::bench {

using nlohmann::json;

Result<std::string> measure_sweep(const Sweep& sweep,
                                  const std::function<Result<json>(const Options&, const json&)>& row) {
  // All rows are checked before the first is measured.
  for (const Options& options : sweep.options) SLIME_TRY(options.validate());
  json out = {
      {"bench", sweep.bench}, {"columns", sweep.columns}, {"rows", json::array()}, {"verified", true}};
  for (const Options& options : sweep.options) {
    auto report = measure_one(options);
    if (!report)
      return std::move(report).error().with_context(str(options.operation, " of ", options.size, " bytes"));
    if (interrupted()) return Status(Code::kCancelled, "interrupted");
    for (const char* fact : {"provider", "mode", "face", "machine", "to", "server_machine"}) {
      if (report->contains(fact)) out[fact] = (*report)[fact];
    }
    if (report->contains("limit")) out["limit"] = {{"name", (*report)["limit"]["name"]}};
    auto made = row(options, *report);
    if (!made) return std::move(made).error();
    made->emplace("verified", (*report)["verified"]);
    out["verified"] = out["verified"].get<bool>() && (*report)["verified"].get<bool>();
    out["rows"].push_back(std::move(*made));
  }
  return out.dump();
}

}  // namespace slime::bench
