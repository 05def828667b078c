#include "transport/soft/operations.h"

#include "base/str.h"
#include "transport/endpoint/post_checks.h"
#include "transport/soft/device.h"

namespace slime::transport::soft {

RegionRecord& record_of(const CopyBlock& copy) { return *shared_record_of(copy); }

const std::shared_ptr<RegionRecord>& shared_record_of(const CopyBlock& copy) {
  return static_cast<SoftRegion*>(copy.local->impl())->shared_record();
}

void OneSidedTable::add(OneSided& record) {
  record.sequence = next_sequence_++;
  const std::optional<Handle> handle = records_.insert(record);
  SLIME_CHECK(handle.has_value());
  if (record.kind == Kind::kWrite) {
    writes_.push_back(*handle);
  } else {
    requests_.push_back(*handle);
    open_requests_.push_back(*handle);
  }
}

Operation& OneSidedTable::take(Handle handle) {
  const std::optional<OneSided> done = records_.take(handle);
  SLIME_CHECK(done.has_value());
  PostChecks::drop_uses(done->regions());
  return *done->operation;
}

void OneSidedTable::let_go() {
  records_.for_each([](Handle, OneSided& operation) {
    PostChecks::drop_uses(operation.regions());
    operation.copies = {};
    operation.one_pair = false;
    operation.number.reset();
  });
}

bool OneSidedTable::use(const RegionUses& uses) {
  bool found = false;
  records_.for_each([&](Handle, const OneSided& operation) {
    found = found || PostChecks::use(operation.regions(), &uses);
  });
  return found;
}

bool OneSidedTable::none_before(std::uint64_t barrier) {
  const auto oldest_passed = [&](Queue<Handle>& queue) {
    while (!queue.empty()) {
      const OneSided* operation = records_.find(queue.front());
      if (operation != nullptr) return operation->sequence >= barrier;
      queue.pop_front();
    }
    return true;
  };
  return oldest_passed(writes_) && oldest_passed(open_requests_);
}

Status refused_by_peer(const OneSided& operation, std::string_view peer_name) {
  const std::string_view what = operation.atomic()              ? "remote atomic"
                                : operation.kind == Kind::kRead ? "read"
                                                                : "write";
  if (operation.failure == Code::kNotFound)
    return Status(Code::kNotFound, str(peer_name, " refused a ", what,
                                       ": the region is not registered there (any more); ask for it again"));
  if (operation.failure == Code::kPermissionDenied)
    return Status(Code::kPermissionDenied,
                  str(peer_name, " refused a ", what, ": wrong key, rights or bounds"));
  if (operation.failure == Code::kInvalidArgument && !operation.atomic())
    return Status(
        Code::kInvalidArgument,
        str("a ", what, " with ", peer_name,
            " met memory that is not there: a region's pages were unmapped on one side, or the kernel "
            "reads them for no other process"));
  if (operation.failure == Code::kUnimplemented && operation.kind == Kind::kWrite)
    return Status(Code::kUnavailable, str(peer_name,
                                          " may not read the memory of this process any more; "
                                          "the next write brings its bytes along"));
  if (operation.failure == Code::kInvalidArgument)
    return Status(Code::kInvalidArgument,
                  str(peer_name, " refused a remote atomic: the address of its region plus offset ",
                      operation.number->remote_offset, " is not a multiple of 8"));
  return Status(operation.failure, str(peer_name, " refused a ", what));
}

}  // namespace slime::transport::soft
