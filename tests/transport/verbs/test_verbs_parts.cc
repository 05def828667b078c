// Parts of a verbs endpoint that only count or find, without a device.
#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

#include "transport/verbs/chain.h"
#include "transport/verbs/errors.h"
#include "transport/verbs/operations.h"

namespace slime::transport::testing::verbs_parts_test {
namespace {

using verbs::Kind;
using verbs::OneSided;

class Silent final : public Operation {
 public:
  void complete(Status) noexcept override {}
};

}  // namespace

// ------------------------------------------------------------------------------------------- Chain

TEST_CASE("a chain knows which of its owners a device refused") {
  auto chain = std::make_unique<verbs::Chain>();
  const Handle a{1, 1};
  const Handle b{2, 1};
  const Handle c{3, 1};
  for (const Handle owner : {a, a, a, b, c, c}) {
    chain->add(IBV_WR_RDMA_WRITE);
    chain->own(owner);
  }
  CHECK(chain->owner_count == 3);
  using Refused = std::vector<std::pair<Handle, std::uint32_t>>;
  const auto refused = [&](std::uint32_t accepted) {
    Refused out;
    chain->for_refused(accepted, [&](Handle owner, std::uint32_t count) { out.emplace_back(owner, count); });
    return out;
  };
  CHECK(refused(6).empty());
  CHECK(refused(5) == Refused{{c, 1}});
  CHECK(refused(1) == Refused{{a, 2}, {b, 1}, {c, 2}});
  CHECK(refused(0) == Refused{{a, 3}, {b, 1}, {c, 2}});
  chain->clear();
  CHECK(refused(0).empty());
}

// ----------------------------------------------------------------------------------- OneSidedTable

TEST_CASE("a barrier is passed once all operations before it have completed") {
  verbs::OneSidedTable table;
  Silent operation;
  CHECK(table.barrier_passed(table.barrier()));
  const Handle write = table.add(operation, Kind::kWrite, {}).self;
  const Handle read = table.add(operation, Kind::kRead, {}).self;
  const std::uint64_t barrier = table.barrier();
  table.add(operation, Kind::kWrite, {});
  CHECK(table.barrier_passed(0));
  CHECK_FALSE(table.barrier_passed(barrier));
  CHECK(&table.take(*table.find(read)) == &operation);
  CHECK_FALSE(table.barrier_passed(barrier));
  table.take(*table.find(write));
  CHECK(table.find(write) == nullptr);
  CHECK(table.barrier_passed(barrier));
  CHECK_FALSE(table.barrier_passed(table.barrier()));
  CHECK(table.size() == 1);
}

TEST_CASE("memory is at the device while work is in flight and the queue pairs are there") {
  verbs::OneSidedTable table;
  Silent operation;
  const Handle handle = table.add(operation, Kind::kWrite, {}).self;
  CHECK_FALSE(table.at_device());
  table.find(handle)->in_flight = 1;
  CHECK(table.at_device());
  table.let_go();
  CHECK_FALSE(table.at_device());
  CHECK(table.find(handle)->copies().empty());
}

TEST_CASE("an operation has succeeded once all of it was posted and came back without an error") {
  OneSided operation;
  CHECK_FALSE(operation.succeeded());
  operation.posted = true;
  CHECK(operation.succeeded());
  operation.in_flight = 1;
  CHECK_FALSE(operation.succeeded());
  operation.in_flight = 0;
  operation.failure = Status(Code::kUnavailable, "refused");
  CHECK_FALSE(operation.succeeded());
}

// ---------------------------------------------------------------------------------------- counters

TEST_CASE("an error completion counts once, and for what is to blame") {
  EndpointCounters counters;
  verbs::count_error(counters, IBV_WC_WR_FLUSH_ERR);
  verbs::count_error(counters, IBV_WC_REM_ACCESS_ERR);
  verbs::count_error(counters, IBV_WC_RETRY_EXC_ERR);
  verbs::count_error(counters, IBV_WC_RNR_RETRY_EXC_ERR);
  verbs::count_error(counters, IBV_WC_LOC_PROT_ERR);
  CHECK(counters.error_completions == 5);
  CHECK(counters.errors_victim == 1);
  CHECK(counters.errors_remote == 1);
  CHECK(counters.errors_path == 1);
  CHECK(counters.errors_peer == 1);
  CHECK(counters.errors_local == 1);
  CHECK(counters.errors_device == 0);
  CHECK(counters.receiver_not_ready == 1);
}

}  // namespace slime::transport::testing::verbs_parts_test
