// Shards of several owners, collected into whole tensors.
#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "kv/gather.h"
#include "tests/kv/broadcasts.h"
#include "tests/support/process.h"

namespace slime::kv::gather_test {
namespace {

using namespace slime::kv::test;
using slime::test::patient;
using std::chrono::milliseconds;
using std::chrono::seconds;

const Nanos kSoon = patient(seconds(20));

Tensor tensor(std::string name, std::vector<std::uint64_t> shape, std::uint32_t item_bytes = 2) {
  return {std::move(name), std::move(shape), item_bytes};
}

Shard shard_of(const Tensor& whole, std::uint32_t dim, std::uint32_t rank, std::uint32_t degree) {
  auto out = Shard::of_rank(whole, dim, rank, degree);
  INFO(out.status().to_string());
  REQUIRE(out.has_value());
  return *out;
}

// The byte that belongs at a place of a whole tensor.
std::byte tensor_byte(std::uint64_t number, std::uint64_t at) {
  return static_cast<std::byte>(1 + (at * 7 + at / 251 + number * 31) % 251);
}

// Fills the memory of a shard item by item: by the index of each item in all dimensions, which the
// layer does not use.
std::vector<std::byte> shard_memory(const Shard& shard, std::uint64_t number) {
  std::vector<std::uint64_t> shape = shard.tensor.shape;
  shape[shard.dim] = shard.count;
  std::vector<std::byte> out;
  std::vector<std::uint64_t> index(shape.size());
  const std::uint64_t items =
      std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  for (std::uint64_t item = 0; item < items; ++item) {
    std::uint64_t rest = item;
    for (std::size_t i = shape.size(); i-- > 0; rest /= shape[i]) index[i] = rest % shape[i];
    std::uint64_t place = 0;
    for (std::size_t i = 0; i < shape.size(); ++i)
      place = place * shard.tensor.shape[i] + index[i] + (i == shard.dim ? shard.first : 0);
    for (std::uint32_t byte = 0; byte < shard.tensor.item_bytes; ++byte)
      out.push_back(tensor_byte(number, place * shard.tensor.item_bytes + byte));
  }
  return out;
}

struct Owner {
  // `numbers`: of the tensors, for their contents.
  Owner(std::vector<Shard> its_shards, const std::vector<std::uint64_t>& numbers)
      : agent(broadcast_agent()), list(std::move(its_shards)) {
    for (std::size_t i = 0; i < list.size(); ++i) memory.push_back(shard_memory(list[i], numbers[i]));
    const std::vector<MutableBytes> bytes(memory.begin(), memory.end());
    auto made = Shards::over(*agent, list, bytes);
    INFO(made.status().to_string());
    REQUIRE(made.has_value());
    shards = std::move(*made);
  }
  std::unique_ptr<PeerAgent> agent;
  std::vector<Shard> list;
  std::vector<std::vector<std::byte>> memory;
  Shards shards;
};

struct Collector {
  explicit Collector(std::vector<Tensor> its_tensors)
      : agent(broadcast_agent()), tensors(std::move(its_tensors)) {
    for (const Tensor& each : tensors) memory.emplace_back(each.bytes());
  }
  Result<Gather> connect(const std::vector<Owner*>& owners, Nanos timeout = kSoon) {
    std::vector<Peer> peers;
    peers.reserve(owners.size());
    for (const Owner* owner : owners) peers.push_back(agent->peer(owner->agent->address()));
    const std::vector<MutableBytes> bytes(memory.begin(), memory.end());
    return Gather::connect(*agent, peers, tensors, bytes, {.timeout = timeout});
  }
  [[nodiscard]] std::uint64_t wrong_bytes(const std::vector<std::uint64_t>& numbers) const {
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < memory.size(); ++i)
      for (std::uint64_t at = 0; at < memory[i].size(); ++at)
        wrong += memory[i][at] != tensor_byte(numbers[i], at) ? 1 : 0;
    return wrong;
  }
  std::unique_ptr<PeerAgent> agent;
  std::vector<Tensor> tensors;
  std::vector<std::vector<std::byte>> memory;
};

void check_refused(const Status& status, std::string_view text) {
  INFO(status.to_string());
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.text().find(text) != std::string::npos);
}

Status plan(const std::vector<Tensor>& tensors, const std::vector<std::vector<Shard>>& owners) {
  return plan_gather(tensors, owners).status();
}

}  // namespace

TEST_CASE("rows, columns and a middle dimension of three owners become whole tensors") {
  const Tensor rows = tensor("rows", {9, 40});
  const Tensor columns = tensor("columns", {50, 12}, 4);
  const Tensor middle = tensor("middle", {5, 6, 7}, 1);
  std::vector<std::unique_ptr<Owner>> owners;
  for (std::uint32_t rank = 0; rank < 3; ++rank)
    owners.push_back(
        std::make_unique<Owner>(std::vector<Shard>{shard_of(columns, 1, rank, 3),
                                                   shard_of(middle, 1, rank, 3), shard_of(rows, 0, rank, 3)},
                                std::vector<std::uint64_t>{2, 3, 1}));
  Collector collector({rows, columns, middle});
  // The owners are given in another order than their ranks.
  auto gather = collector.connect({owners[2].get(), owners[0].get(), owners[1].get()});
  INFO(gather.status().to_string());
  REQUIRE(gather.has_value());
  Move move = gather->read(kSoon);
  REQUIRE(move.wait(kSoon).has_value());
  CHECK(collector.wrong_bytes({1, 2, 3}) == 0);
  const MoveProgress progress = move.progress();
  CHECK(progress.bytes_done == rows.bytes() + columns.bytes() + middle.bytes());
  CHECK(progress.bytes_total == progress.bytes_done);
  CHECK(progress.layers_done == progress.layers_total);
}

TEST_CASE("unequal shards, and more runs than one operation has, become a whole tensor") {
  const Tensor columns = tensor("w", {40'000, 7}, 1);
  Owner left({{columns, 1, 0, 5}}, {4});
  Owner right({{columns, 1, 5, 2}}, {4});
  Collector collector({columns});
  auto gather = collector.connect({&left, &right});
  REQUIRE(gather.has_value());
  Move move = gather->read(kSoon);
  REQUIRE(move.wait(kSoon).has_value());
  CHECK(collector.wrong_bytes({4}) == 0);
  CHECK(move.progress().layers_total == 6);
}

TEST_CASE("tensors that every owner has whole come from one owner each, in turn") {
  const std::vector<Tensor> tensors{tensor("a", {8}), tensor("b", {8}), tensor("c", {8}), tensor("d", {8})};
  std::vector<Shard> wholes;
  wholes.reserve(tensors.size());
  for (const Tensor& each : tensors) wholes.push_back(shard_of(each, 0, 0, 1));
  const auto pieces = plan_gather(tensors, std::vector<std::vector<Shard>>{wholes, wholes});
  REQUIRE(pieces.has_value());
  CHECK(*pieces == std::vector<GatherPiece>{{0, 0, 0}, {1, 1, 1}, {2, 0, 2}, {3, 1, 3}});
}

TEST_CASE("shards that do not make up the tensor are refused before a byte moves") {
  const Tensor w = tensor("w", {8, 4});
  const auto rows = [&](std::uint64_t first, std::uint64_t count) {
    return std::vector<Shard>{{w, 0, first, count}};
  };
  CHECK(plan({w}, {rows(0, 4), rows(4, 4)}).ok());
  CHECK(plan({w}, {rows(0, 4), rows(4, 4), rows(4, 4)}).ok());  // a replica
  check_refused(plan({w}, {rows(0, 4), rows(5, 3)}), "leave a gap at index 4");
  check_refused(plan({w}, {rows(0, 4), rows(3, 5)}), "overlap at index 3");
  check_refused(plan({w}, {rows(0, 4)}), "end at index 4 of 8");
  check_refused(plan({w}, {rows(4, 4)}), "leave a gap at index 0");
  check_refused(plan({w, w}, {rows(0, 8)}), "two tensors");
  check_refused(plan({tensor("x", {8, 4})}, {rows(0, 8)}), "no owner has x");
  check_refused(plan({tensor("w", {4, 8})}, {rows(0, 8)}), "this process has w of 4 x 8 items");
  check_refused(plan({tensor("w", {8, 4}, 4)}, {rows(0, 8)}), "items of 4 bytes");
  check_refused(plan({w}, {rows(0, 4), {{w, 1, 0, 2}}}), "split along dimension");
}

TEST_CASE("a shard that lies is refused") {
  const auto refused = [](const Shard& wrong, std::string_view text) {
    const std::vector<Shard> list{wrong};
    check_refused(decode_shards(encode_shards(list)).status(), text);
  };
  const Tensor w = tensor("w", {8, 4});
  refused({w, 2, 0, 1}, "no dimension 2");
  refused({w, 0, 4, 5}, "5 indices from 4 on");
  refused({w, 0, UINT64_MAX, 2}, "indices from");
  refused({w, 0, 0, 0}, "0 indices");
  refused({tensor("w", {8, 0}), 0, 0, 1}, "empty");
  refused({tensor("w", {UINT64_MAX, UINT64_MAX}), 0, 0, 1}, "more than");
  refused({tensor("w", {}), 0, 0, 1}, "0 dimensions");
  refused({tensor("w", {8}, 0), 0, 0, 1}, "items of 0 bytes");
  refused({tensor("w w", {8}), 0, 0, 1}, "no name");
  const std::vector<Shard> twice{{w, 0, 0, 4}, {w, 0, 4, 4}};
  check_refused(decode_shards(encode_shards(twice)).status(), "two have the name w");
  const std::vector<Shard> good{{w, 1, 2, 2}};
  const auto again = decode_shards(encode_shards(good));
  REQUIRE(again.has_value());
  CHECK(*again == good);
}

TEST_CASE("memory of a wrong size is refused at owner and reader") {
  const Tensor w = tensor("w", {8, 4});
  Collector collector({w});
  std::vector<std::byte> memory(w.bytes() - 1);
  const std::vector<Shard> whole{shard_of(w, 0, 0, 1)};
  const std::vector<MutableBytes> bytes{memory};
  check_refused(Shards::over(*collector.agent, whole, bytes).status(), "has 63 bytes, its shard 64");
  Owner owner(whole, {1});
  const std::vector<Peer> peers{collector.agent->peer(owner.agent->address())};
  check_refused(Gather::connect(*collector.agent, peers, collector.tensors, bytes).status(), "has 63 bytes");
}

TEST_CASE("a gather whose owner is dead fails, and reads no success") {
  const Tensor w = tensor("w", {8, 4});
  Owner first({shard_of(w, 0, 0, 2)}, {1});
  auto second =
      std::make_unique<Owner>(std::vector<Shard>{shard_of(w, 0, 1, 2)}, std::vector<std::uint64_t>{1});
  Collector collector({w});
  const std::string address = second->agent->address();
  auto gather = collector.connect({&first, second.get()});
  REQUIRE(gather.has_value());
  second.reset();
  const Status status = gather->read(kSoon).wait(kSoon).status();
  INFO(status.to_string());
  CHECK(status.code() == Code::kUnavailable);
  const std::vector<Peer> peers{collector.agent->peer(first.agent->address()),
                                collector.agent->peer(address)};
  const std::vector<MutableBytes> bytes(collector.memory.begin(), collector.memory.end());
  CHECK(Gather::connect(*collector.agent, peers, collector.tensors, bytes, {.timeout = patient(seconds(1))})
            .status()
            .code() == Code::kUnavailable);
}

TEST_CASE("closed shards are neither told nor read") {
  const Tensor w = tensor("w", {8, 4});
  Owner owner({shard_of(w, 0, 0, 1)}, {1});
  Collector collector({w});
  auto gather = collector.connect({&owner});
  REQUIRE(gather.has_value());
  REQUIRE(owner.shards.close().ok());
  CHECK(!gather->read(kSoon).wait(kSoon).has_value());
  CHECK(collector.connect({&owner}).status().code() == Code::kUnavailable);
}

}  // namespace slime::kv::gather_test
