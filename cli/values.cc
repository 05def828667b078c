#include "cli/values.h"

#include <utility>

#include "base/str.h"

namespace slime::cli {
namespace {

using nlohmann::json;

constexpr const char* kBytesKey = "$bytes";
// Deepest nesting of a value: bounds the recursion of to_wire() and its inverse, whose input comes
// from people and peers.
constexpr int kMaxDepth = 64;

Status to_wire(json& value, int depth) {
  if (depth > kMaxDepth) return {Code::kInvalidArgument, "nested too deeply"};
  if (value.is_object() && value.size() == 1 && value.contains(kBytesKey) && value[kBytesKey].is_string()) {
    const auto& hex = value[kBytesKey].get_ref<const std::string&>();
    ByteVector bytes(hex.size() / 2);
    if (!from_hex(hex, bytes))
      return {Code::kInvalidArgument, str(kBytesKey, " takes pairs of hexadecimal digits")};
    const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
    value = json::binary(std::vector<std::uint8_t>(first, first + bytes.size()));
    return {};
  }
  if (value.is_structured()) {
    for (auto& element : value) SLIME_TRY(to_wire(element, depth + 1));
  }
  return {};
}

Status from_wire(json& value, int depth) {
  if (depth > kMaxDepth) return {Code::kCorrupt, "the reply is nested too deeply to show"};
  if (value.is_binary()) {
    const auto& binary = value.get_binary();
    if (binary.has_subtype()) {
      return {Code::kCorrupt, str("the reply has a msgpack extension of type ", binary.subtype(),
                                  ", which JSON cannot show")};
    }
    std::string hex = to_hex(std::as_bytes(std::span(binary.data(), binary.size())));
    value = json{{kBytesKey, std::move(hex)}};
    return {};
  }
  if (value.is_structured()) {
    for (auto& element : value) SLIME_TRY(from_wire(element, depth + 1));
  }
  return {};
}

}  // namespace

Result<ByteVector> encode_json_arguments(const std::vector<std::string>& arguments) {
  json array = json::array();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    json value = json::parse(arguments[i], nullptr, false);
    if (value.is_discarded()) {
      return Status(Code::kInvalidArgument, str("argument ", i + 1, " is not JSON: ", arguments[i],
                                                "  (a string needs its quotes: '\"text\"')"));
    }
    if (Status status = to_wire(value, 0); !status.ok()) {
      return std::move(status).with_context(str("argument ", i + 1));
    }
    array.push_back(std::move(value));
  }
  const std::vector<std::uint8_t> packed = json::to_msgpack(array);
  const Bytes bytes = std::as_bytes(std::span(packed));
  return ByteVector(bytes.begin(), bytes.end());
}

Result<json> decode_to_json(Bytes bytes) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  json value = json::from_msgpack(first, first + bytes.size(), true, false);
  if (value.is_discarded()) {
    return Status(Code::kCorrupt,
                  "the reply is not msgpack that JSON can show (a map's keys must be strings)");
  }
  SLIME_TRY(from_wire(value, 0));
  return value;
}

}  // namespace slime::cli
