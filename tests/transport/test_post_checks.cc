// What a post may name, and what it uses, without an endpoint.
#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "transport/endpoint/post_checks.h"
#include "transport/region_uses.h"

namespace slime::transport::testing {
namespace {

constexpr std::uint64_t kEndpoint = 7;
const int kOurDevice = 0;
const int kOtherDevice = 0;

class PlainRegion final : public DeviceRegion::Impl {
 public:
  PlainRegion(const void* at, std::span<std::byte> bytes) {
    device = at;
    uses = &counted;
    data = bytes.data();
    length_bytes = bytes.size();
    rights = Rights::kReadWrite;
  }
  Status close(Nanos) override { return {}; }
  RegionDescriptor describe() const override { return {}; }

  RegionUses counted;
};

struct Side {
  explicit Side(const void* device = &kOurDevice)
      : impl(new PlainRegion(device, memory)), region(std::unique_ptr<DeviceRegion::Impl>(impl)) {}
  std::array<std::byte, 64> memory{};
  PlainRegion* impl;
  DeviceRegion region;
};

RegionDescriptor descriptor(Rights rights = Rights::kReadWrite) {
  RegionDescriptor out;
  out.id = Handle{1, 1};
  out.length_bytes = 32;
  out.rights = rights;
  return out;
}

PostChecks checks() { return {&kOurDevice, kEndpoint, "peer"}; }

Code code_of(const CopyBlock& copy, Rights need = Rights::kRemoteWrite) {
  return checks().copies({&copy, 1}, need).code();
}

}  // namespace

TEST_CASE("a copy is within both regions, which are the device's and the endpoint's") {
  Side side;
  const RemoteRegion remote(descriptor(Rights::kRemoteRead), {}, kEndpoint);
  const RemoteRegion elsewhere(descriptor(), {}, kEndpoint + 1);
  CHECK(code_of({&side.region, 32, &remote, 0, 32}, Rights::kRemoteRead) == Code::kOk);
  CHECK(code_of({&side.region, 33, &remote, 0, 32}, Rights::kRemoteRead) == Code::kInvalidArgument);
  CHECK(code_of({&side.region, 0, &remote, 1, 32}, Rights::kRemoteRead) == Code::kInvalidArgument);
  CHECK(code_of({&side.region, 0, &remote, 0, 32}, Rights::kRemoteWrite) == Code::kPermissionDenied);
  CHECK(code_of({&side.region, 0, &elsewhere, 0, 32}) == Code::kAborted);
  CHECK(code_of({nullptr, 0, &remote, 0, 32}) == Code::kInvalidArgument);
  Side other(&kOtherDevice);
  CHECK(code_of({&other.region, 0, &remote, 0, 32}, Rights::kRemoteRead) == Code::kInvalidArgument);
}

TEST_CASE("every copy of a batch is checked") {
  Side first;
  Side second;
  const RemoteRegion remote(descriptor(), {}, kEndpoint);
  std::array<CopyBlock, 3> batch{CopyBlock{&first.region, 0, &remote, 0, 8},
                                 CopyBlock{&first.region, 8, &remote, 8, 8},
                                 CopyBlock{&second.region, 0, &remote, 16, 8}};
  CHECK(checks().copies(batch, Rights::kRemoteWrite).ok());
  second.impl->counted.revoke();
  CHECK(checks().copies(batch, Rights::kRemoteWrite).code() == Code::kInvalidArgument);
  CHECK(checks().copies({batch.data(), 2}, Rights::kRemoteWrite).ok());
}

TEST_CASE("a batch is known to name one pair of regions, and each of its blocks is checked") {
  Side first;
  Side second;
  const RemoteRegion remote(descriptor(), {}, kEndpoint);
  const RemoteRegion twin(descriptor(), {}, kEndpoint);
  std::array<CopyBlock, 3> batch{CopyBlock{&first.region, 0, &remote, 0, 8},
                                 CopyBlock{&first.region, 8, &remote, 8, 8},
                                 CopyBlock{&first.region, 16, &remote, 16, 8}};
  bool one_pair = false;
  CHECK(checks().check(batch, Rights::kRemoteWrite, one_pair).ok());
  CHECK(one_pair);
  for (CopyBlock wrong :
       {CopyBlock{&first.region, 8, &remote, 25, 8}, CopyBlock{&first.region, 57, &remote, 8, 8}}) {
    std::swap(batch[1], wrong);
    CHECK(checks().copies(batch, Rights::kRemoteWrite).code() == Code::kInvalidArgument);
    std::swap(batch[1], wrong);
  }
  batch[2].local = &second.region;
  CHECK(checks().check(batch, Rights::kRemoteWrite, one_pair).ok());
  CHECK_FALSE(one_pair);
  batch[2] = {&first.region, 16, &twin, 16, 8};
  CHECK(checks().check(batch, Rights::kRemoteWrite, one_pair).ok());
  CHECK_FALSE(one_pair);
}

TEST_CASE("a run of copies uses its region once, and a batch that is refused uses none") {
  Side first;
  Side second;
  const RemoteRegion remote(descriptor(), {}, kEndpoint);
  const std::array<CopyBlock, 3> batch{CopyBlock{&first.region, 0, &remote, 0, 8},
                                       CopyBlock{&first.region, 8, &remote, 8, 8},
                                       CopyBlock{&second.region, 0, &remote, 16, 8}};
  CHECK(PostChecks::add_uses(batch));
  CHECK_FALSE(first.impl->counted.unused());
  CHECK(PostChecks::use(batch, &second.impl->counted));
  CHECK_FALSE(PostChecks::use({batch.data(), 2}, &second.impl->counted));
  PostChecks::drop_uses(batch);
  CHECK(first.impl->counted.unused());
  CHECK(second.impl->counted.unused());
  second.impl->counted.revoke();
  CHECK_FALSE(PostChecks::add_uses(batch));
  CHECK(first.impl->counted.unused());
}

TEST_CASE("a descriptor binds to its endpoint if the provider could unpack its key") {
  const Result<RemoteRegion> bound = checks().import(descriptor(), RemoteAccess{});
  REQUIRE(bound.has_value());
  CHECK(bound->endpoint_id() == kEndpoint);
  CHECK(checks().import(descriptor(), std::nullopt).status().code() == Code::kInvalidArgument);
  RegionDescriptor empty = descriptor();
  empty.length_bytes = 0;
  CHECK_FALSE(checks().import(empty, RemoteAccess{}).has_value());
  CHECK_FALSE(checks().import(descriptor(static_cast<Rights>(9)), RemoteAccess{}).has_value());
}

}  // namespace slime::transport::testing
