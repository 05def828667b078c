#include "transport/shm/parameters.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/str.h"
#include "base/unique_fd.h"

namespace slime::transport::shm {
namespace {

constexpr std::size_t kBootIdText = 36;  // characters of a UUID

// Namespaces of one kernel have different numbers.
std::uint64_t number_of_namespace(const char* path) {
  struct stat out {};
  return ::stat(path, &out) == 0 ? out.st_ino : 0;
}

std::optional<Hint> decode_hint(Bytes bytes) {
  ByteReader reader(bytes);
  Hint out;
  const Bytes boot = reader.take(out.boot.bytes.size());
  std::copy(boot.begin(), boot.end(), out.boot.bytes.begin());
  out.network_namespace = reader.read<std::uint64_t>();
  out.user_namespace = reader.read<std::uint64_t>();
  out.uid = reader.read<std::uint32_t>();
  if (!reader.complete()) return std::nullopt;
  return out;
}

}  // namespace

Result<Hint> Hint::of_this_process() {
  const Result<InstanceId> boot = boot_id();
  if (!boot) return boot.error();
  return Hint{*boot, number_of_namespace("/proc/self/ns/net"), number_of_namespace("/proc/self/ns/user"),
              static_cast<std::uint32_t>(::geteuid())};
}

ByteVector Hint::encode() const {
  ByteVector out;
  ByteWriter writer(out);
  writer.append(boot.bytes);
  writer.write(network_namespace);
  writer.write(user_namespace);
  writer.write(uid);
  return out;
}

Status check_hints(Bytes our_bytes, std::string_view self_name, Bytes their_bytes,
                   std::string_view peer_name) {
  const std::optional<Hint> ours = decode_hint(our_bytes);
  const std::optional<Hint> theirs = decode_hint(their_bytes);
  if (!ours || !theirs)
    return Status(Code::kUnimplemented,
                  str("'", peer_name, "' and '", self_name, "' have shared memory of different versions"));
  if (ours->boot != theirs->boot) return Status(Code::kUnavailable, "other host");
  if (ours->user_namespace != theirs->user_namespace)
    return Status(Code::kPermissionDenied, "other user namespace");
  if (ours->uid != theirs->uid)
    return Status(Code::kPermissionDenied, str("other user: '", peer_name, "' has uid ", theirs->uid, ", '",
                                               self_name, "' has ", ours->uid));
  if (ours->network_namespace == 0 || theirs->network_namespace == 0)
    return Status(Code::kUnavailable,
                  "/proc/self/ns/net cannot be read, which tells whether local sockets reach the other");
  if (ours->network_namespace != theirs->network_namespace)
    return Status(Code::kUnavailable, "other network namespace: local sockets do not reach it");
  return {};
}

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
  constexpr const char* kPath = "/proc/sys/kernel/random/boot_id";
  const UniqueFd file(::open(kPath, O_RDONLY | O_CLOEXEC));
  if (!file.valid() && (errno == EMFILE || errno == ENFILE)) return from_errno(kPath, errno);
  std::string text(kBootIdText, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
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
