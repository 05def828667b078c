#include "transport/verbs/operations.h"

#include "base/check.h"
#include "transport/endpoint/post_checks.h"

namespace slime::transport::verbs {

OneSided& OneSidedTable::add(Operation& operation, Kind kind, std::span<const CopyBlock> copies) {
  const auto [handle, stored] = records_.emplace();
  SLIME_CHECK(stored != nullptr);
  stored->self = handle;
  stored->operation = &operation;
  stored->kind = kind;
  stored->batch = copies;
  stored->sequence = next_sequence_++;
  return *stored;
}

Operation& OneSidedTable::take(OneSided& done) {
  Operation& operation = *done.operation;
  PostChecks::drop_uses(done.copies());
  records_.erase(done.self);
  return operation;
}

void OneSidedTable::let_go() {
  records_.for_each([](Handle, OneSided& operation) {
    PostChecks::drop_uses(operation.copies());
    operation.batch = {};
    operation.left = true;
  });
}

bool OneSidedTable::use(const RegionUses* uses) {
  bool found = false;
  records_.for_each(
      [&](Handle, const OneSided& operation) { found = found || PostChecks::use(operation.copies(), uses); });
  return found;
}

bool OneSidedTable::at_device() {
  bool found = false;
  records_.for_each([&](Handle, const OneSided& operation) {
    found = found || (operation.in_flight > 0 && !operation.left);
  });
  return found;
}

bool OneSidedTable::none_before(std::uint64_t barrier) {
  bool passed = true;
  records_.for_each(
      [&](Handle, const OneSided& operation) { passed = passed && operation.sequence >= barrier; });
  return passed;
}

}  // namespace slime::transport::verbs
