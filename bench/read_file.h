#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "base/str.h"

namespace slime::bench {

// kNotFound, kInvalidArgument for what is no JSON object.
inline Result<nlohmann::json> read_json(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Status(Code::kNotFound, str("cannot read ", path));
  nlohmann::json out = nlohmann::json::parse(in, nullptr, false);
  if (!out.is_object()) return Status(Code::kInvalidArgument, str(path, ": no JSON object"));
  return out;
}

}  // namespace slime::bench
