// Decodes any bytes as a body: msgpack-c can unpack everything that the validator accepts,
// conversions to all kinds of types fail cleanly, and the decoder without msgpack-c returns the
// same values as msgpack-c.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "rpc/codec.h"
#include "rpc/reflection.h"

namespace {

struct Point {
  int x = 0;
  std::string label;
  std::vector<double> weights;
  MSGPACK_DEFINE_MAP(x, label, weights)
};

template <class T>
void check_flat(slime::Bytes bytes) {
  using namespace slime::rpc;
  T flat{};
  detail::FlatReader reader(bytes);
  if (!reader.read(flat) || !reader.done()) return;
  const auto unpacked = detail::unpack(bytes);
  SLIME_CHECK(unpacked.has_value());
  SLIME_CHECK(unpacked->get().as<T>() == flat);
}

void check_flat_arguments(slime::Bytes bytes) {
  using namespace slime::rpc;
  const auto flat = detail::flat_arguments<int, std::string, bool>(bytes);
  if (!flat) return;
  const auto unpacked = decode_arguments<int, std::string, bool>(bytes, "fuzz");
  SLIME_CHECK(unpacked && *unpacked == *flat);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace slime;
  using namespace slime::rpc;
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  const bool valid = validate_msgpack(bytes).ok();
  SLIME_CHECK(decode_value<None>(bytes).has_value() == valid);
  decode_value<std::int64_t>(bytes).status().ignore();
  decode_value<std::map<std::string, std::vector<std::string>>>(bytes).status().ignore();
  decode_value<std::vector<std::optional<Point>>>(bytes).status().ignore();
  decode_value<std::tuple<int, ByteVector, std::string>>(bytes).status().ignore();
  decode_value<std::vector<ServiceInfo>>(bytes).status().ignore();
  decode_arguments<int, std::string_view, Bytes>(bytes, "fuzz").status().ignore();
  check_flat<bool>(bytes);
  check_flat<std::int8_t>(bytes);
  check_flat<std::uint16_t>(bytes);
  check_flat<std::int64_t>(bytes);
  check_flat<std::uint64_t>(bytes);
  check_flat<std::string>(bytes);
  check_flat<ByteVector>(bytes);
  check_flat_arguments(bytes);
  const auto text = decode_value<std::string>(bytes);
  if (text) SLIME_CHECK(*decode_value<std::string>(encode_value(*text)) == *text);
  return 0;
}
