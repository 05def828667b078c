#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

// JSON on the command line, msgpack on the wire.
namespace slime::cli {

// The msgpack array of arguments given as JSON values. {"$bytes": "0aff"} stands for a binary value.
// kInvalidArgument with the number of the argument that is not JSON.
Result<ByteVector> encode_json_arguments(const std::vector<std::string>& arguments);

// A msgpack value as JSON; binaries as {"$bytes": "<hex>"}. kCorrupt when it is not msgpack, or has a value
// that JSON cannot show, such as an extension type.
Result<nlohmann::json> decode_to_json(Bytes bytes);

// For output: text that is not UTF-8 is shown with replacement characters.
template <class Json>
std::string print(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace slime::cli
