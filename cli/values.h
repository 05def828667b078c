#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

// Converts between JSON on the command line and msgpack on the wire.
namespace slime::cli {

// Encodes arguments given as JSON values as a msgpack array. {"$bytes": "0aff"} stands for a binary
// value. kInvalidArgument names the first argument that is not JSON.
Result<ByteVector> encode_json_arguments(const std::vector<std::string>& arguments);

// Decodes a msgpack value as JSON; binaries become {"$bytes": "<hex>"}. Returns kCorrupt if the
// bytes are not msgpack or hold a value that JSON cannot show, such as an extension type.
Result<nlohmann::json> decode_to_json(Bytes bytes);

// Formats JSON for output; invalid UTF-8 becomes replacement characters.
template <class Json>
std::string print(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace slime::cli
