#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

// Converts between JSON (arguments and output of the command line) and msgpack (bodies of calls).
namespace slime::cli {

// Encodes the arguments, each a JSON text, as one msgpack array. {"$bytes": "0aff"} stands for a
// binary value. kInvalidArgument names the first argument that cannot be encoded.
Result<ByteVector> encode_json_arguments(const std::vector<std::string>& arguments);

// Decodes a msgpack value as JSON; a binary value becomes {"$bytes": "<hex>"}. kCorrupt if the
// bytes are not msgpack or contain a value without a JSON form, such as an extension type.
Result<nlohmann::json> decode_to_json(Bytes bytes);

// Formats JSON as text for output. Replaces invalid UTF-8 with replacement characters.
template <class Json>
std::string print(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace slime::cli
