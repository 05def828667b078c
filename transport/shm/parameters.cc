#include "transport/shm/parameters.h"

#include <algorithm>
#include <fstream>

#include "base/str.h"

namespace slime::transport::shm {

ByteVector Parameters::encode() const {
  ByteVector out;
  ByteWriter writer(out);
  writer.write(version);
  writer.write(uid);
  writer.write(pid);
  for (const InstanceId* id : {&boot, &socket_name, &cookie}) writer.append(id->bytes);
  return out;
}

Result<Parameters> Parameters::decode(Bytes bytes) {
  ByteReader reader(bytes);
  Parameters out;
  out.version = reader.read<std::uint32_t>();
  out.uid = reader.read<std::uint32_t>();
  out.pid = reader.read<std::uint32_t>();
  for (InstanceId* id : {&out.boot, &out.socket_name, &out.cookie}) {
    const Bytes raw = reader.take(id->bytes.size());
    std::copy(raw.begin(), raw.end(), id->bytes.begin());
  }
  if (!reader.complete())
    return Status(Code::kCorrupt, "the peer's parameters for shared memory have a wrong size");
  if (out.version != kVersion)
    return Status(Code::kCorrupt, str("the peer's shared memory is of version ", out.version,
                                      ", this is version ", kVersion));
  return out;
}

std::string local_socket_name(const InstanceId& id) { return str("slime-", id.to_string()); }

Result<InstanceId> boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  std::erase(text, '-');
  const std::optional<InstanceId> id = InstanceId::parse(text);
  if (!id)
    return Status(
        Code::kUnavailable,
        "/proc/sys/kernel/random/boot_id cannot be read: shared memory needs it to tell hosts apart");
  return *id;
}

Status check_same_host(const Parameters& ours, const Parameters& theirs, const std::string& peer_name) {
  if (ours.boot != theirs.boot)
    return Status(Code::kUnavailable, str(peer_name,
                                          " is on another host: shared memory works within one; "
                                          "use verbs or tcp for this peer"));
  if (ours.uid != theirs.uid)
    return Status(Code::kPermissionDenied,
                  str("shared memory is for processes of one user: ", peer_name, " has uid ", theirs.uid,
                      ", this process ", ours.uid, "; use tcp for this peer"));
  return {};
}

}  // namespace slime::transport::shm
