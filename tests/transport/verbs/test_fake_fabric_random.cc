#include <algorithm>
#include <cerrno>

#include "base/random.h"
#include "tests/transport/verbs/fake_node.h"

namespace slime::transport::testing {
namespace {

// One side's requests in the order of their effects; they access one half of both regions.
struct ModelSide {
  FakeNode* node = nullptr;
  FakeNode* peer = nullptr;
  MutableBytes mine;  // the half that this side's requests access
  MutableBytes theirs;
  const ibv_mr* my_mr = nullptr;
  const ibv_mr* their_mr = nullptr;
  ByteVector model_mine;
  ByteVector model_theirs;
  std::uint64_t posted = 0;
  std::uint64_t freed = 0;
  std::vector<std::uint64_t> expected;  // wr_ids of signaled requests, in order; each is its sequence number
  std::size_t seen = 0;
};

void poll_side(ModelSide& side) {
  for (const ibv_wc& wc : side.node->poll()) {
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    if ((wc.opcode & IBV_WC_RECV) != 0) {
      CHECK(wc.byte_len == static_cast<std::uint32_t>(wc.wr_id & 0xffff));
      continue;
    }
    REQUIRE(side.seen < side.expected.size());
    CHECK(wc.wr_id == side.expected[side.seen++]);
    side.freed = wc.wr_id + 1;
  }
}

void post_random(ModelSide& side, Rng& rng, std::uint32_t sends) {
  const std::size_t length = rng.chance(1, 8) ? rng.below(32 * 1024) : rng.below(200);
  const std::size_t here = rng.below(side.mine.size() - length);
  const std::size_t there = rng.below(side.theirs.size() - length);
  const std::size_t cut = rng.below(length + 1);
  const std::uint64_t kind = rng.below(3);
  const bool signaled = rng.chance(1, 3) || side.posted - side.freed + 1 >= sends;
  const ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
  const unsigned flags = signaled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0;
  const ibv_send_wr wr =
      make_work(side.posted, opcodes[kind], side.theirs.data() + there, side.their_mr->rkey, flags);
  const std::vector<ibv_sge> sges{sge_of(side.mine.subspan(here, cut), side.my_mr),
                                  sge_of(side.mine.subspan(here + cut, length - cut), side.my_mr)};
  if (side.posted - side.freed >= sends) {
    CHECK(side.node->post(wr, sges) == ENOMEM);
    return;
  }
  if (opcodes[kind] == IBV_WR_SEND) {
    const int error =
        side.peer->post_receive(length, {sge_of(side.theirs.subspan(there, length), side.their_mr)});
    if (error == ENOMEM) return;  // until the peer polls
    REQUIRE(error == 0);
  }
  REQUIRE(side.node->post(wr, sges) == 0);
  if (signaled) side.expected.push_back(side.posted);
  ++side.posted;
  std::byte* model_here = side.model_mine.data() + here;
  std::byte* model_there = side.model_theirs.data() + there;
  if (opcodes[kind] == IBV_WR_RDMA_READ) {
    std::memcpy(model_here, model_there, length);
  } else {
    std::memcpy(model_there, model_here, length);
  }
}

TEST_CASE("random requests of both sides leave what the same requests leave one by one") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Rng rng(seed);
    FakeOptions options = FakeOptions::roce();
    options.bytes_per_step = std::size_t{1} << rng.below(18);
    options.step_on_calls = rng.chance(1, 2);
    FakeFabric fabric(options);
    const FakeNode::Sizes sizes;
    FakeLink link(fabric, sizes);
    rng.fill(link.bytes_a);
    rng.fill(link.bytes_b);
    const std::size_t half = FakeLink::kBytes / 2;
    const auto make = [&](bool first) {
      ModelSide side;
      const std::size_t offset = first ? 0 : half;
      const MutableBytes a = MutableBytes(link.bytes_a).subspan(offset, half);
      const MutableBytes b = MutableBytes(link.bytes_b).subspan(offset, half);
      side.node = first ? &link.a : &link.b;
      side.peer = first ? &link.b : &link.a;
      side.mine = first ? a : b;
      side.theirs = first ? b : a;
      side.my_mr = first ? link.mr_a : link.mr_b;
      side.their_mr = first ? link.mr_b : link.mr_a;
      side.model_mine.assign(side.mine.begin(), side.mine.end());
      side.model_theirs.assign(side.theirs.begin(), side.theirs.end());
      return side;
    };
    ModelSide sides[] = {make(true), make(false)};
    for (int i = 0; i < 400; ++i) {
      ModelSide& side = sides[rng.below(2)];
      if (rng.chance(1, 3)) poll_side(side);
      if (rng.chance(1, 4)) fabric.progress(static_cast<int>(rng.below(4)));
      post_random(side, rng, sizes.sends);
    }
    fabric.settle();
    for (ModelSide& side : sides) {
      poll_side(side);
      CHECK(side.seen == side.expected.size());
      CHECK(std::equal(side.mine.begin(), side.mine.end(), side.model_mine.begin()));
      CHECK(std::equal(side.theirs.begin(), side.theirs.end(), side.model_theirs.begin()));
    }
    CHECK(fabric.counters().rnr_events == 0);
  }
}

}  // namespace
}  // namespace slime::transport::testing
