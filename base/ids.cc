#include "base/ids.h"

#include "base/random.h"

namespace slime {

InstanceId InstanceId::random() {
  InstanceId id;
  random_bytes(id.bytes);
  return id;
}

std::optional<InstanceId> InstanceId::parse(std::string_view hex) {
  InstanceId id;
  if (!from_hex(hex, id.bytes)) return std::nullopt;
  return id;
}

}  // namespace slime
