#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/doctor_checks.h"
#include "cli/values.h"

namespace slime::cli {
namespace {

void print_text(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size());
  for (const Finding& finding : findings) {
    std::printf("%-7s %-*s  %s\n", std::string(verdict_name(finding.verdict)).c_str(),
                static_cast<int>(width), finding.name.c_str(), finding.value.c_str());
    if (!finding.advice.empty()) {
      std::printf("%-7s %-*s  -> %s\n", "", static_cast<int>(width), "", finding.advice.c_str());
    }
  }
}

void print_json(const std::vector<Finding>& findings, bool usable) {
  nlohmann::ordered_json out;
  out["version"] = SLIME_VERSION;
  out["usable"] = usable;
  out["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json entry;
    entry["name"] = finding.name;
    entry["verdict"] = verdict_name(finding.verdict);
    entry["value"] = finding.value;
    entry["advice"] = finding.advice;
    out["findings"].push_back(std::move(entry));
  }
  std::printf("%s\n", print(out, 2).c_str());
}

}  // namespace

int doctor(const DoctorOptions& options) {
  std::vector<Finding> findings;
  const auto add = [&](std::vector<Finding> more) {
    for (Finding& finding : more) findings.push_back(std::move(finding));
  };
  add(check_providers());
  add(check_processor());
  add(check_memory());
  add(check_limits());
  add(check_isolation());
  add(check_network());
  add(check_verbs());
  add(check_runtime_dir());
  add(check_ctrl(options.ctrl_url));
  const bool usable = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::kBroken;
  });
  if (options.json) {
    print_json(findings, usable);
  } else {
    print_text(findings);
  }
  return usable ? kExitOk : kExitFailed;
}

}  // namespace slime::cli
