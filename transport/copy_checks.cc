#include "transport/copy_checks.h"

#include <atomic>

#include "base/str.h"

namespace slime::transport {

std::string not_inside(std::uint64_t offset, std::uint64_t length, std::string_view region,
                       std::uint64_t size) {
  return str(length, " bytes at ", offset, " are not inside the ", region, " region of ", size, " bytes");
}

Status explain_copy(const CopyBlock& copy, Rights need, std::uint64_t endpoint_id,
                    std::string_view peer_name) {
  if (copy.local == nullptr || !copy.local->valid() || copy.remote == nullptr)
    return {Code::kInvalidArgument, "a copy names no region"};
  if (copy.remote->endpoint_id() != endpoint_id)
    return {Code::kAborted,
            str("the remote region was asked for over another connection; ask ", peer_name, " again")};
  if (!in_bounds(copy.local_offset, copy.length_bytes, copy.local->length_bytes()))
    return {Code::kInvalidArgument,
            not_inside(copy.local_offset, copy.length_bytes, "local", copy.local->length_bytes())};
  if (!in_bounds(copy.remote_offset, copy.length_bytes, copy.remote->length_bytes()))
    return {Code::kInvalidArgument,
            str(not_inside(copy.remote_offset, copy.length_bytes, "remote", copy.remote->length_bytes()),
                " of ", peer_name)};
  if (!allows(copy.remote->rights(), need)) {
    const std::string_view what = need == Rights::kReadWrite
                                      ? "both reading and writing, which atomics need, on"
                                  : need == Rights::kRemoteRead ? "reading"
                                                                : "writing";
    return {Code::kPermissionDenied, str(peer_name, " does not allow ", what, " the remote region")};
  }
  return {};
}

std::uint64_t new_endpoint_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace slime::transport
