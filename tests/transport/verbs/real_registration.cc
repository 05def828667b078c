// Registration with a real driver: a part of test_transport_verbs, for machines with an RDMA
// device.
#include <doctest/doctest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <memory>

#include "tests/transport/verbs/verbs_keys.h"
#include "transport/verbs/device.h"
#include "transport/verbs/regions.h"

namespace slime::transport::testing {
namespace {

constexpr std::size_t kMiB = 1 << 20;

// The machine's functions, with a device that registers only a limited size at once.
verbs::Functions small_registrations() {
  auto real = verbs::load_functions();
  REQUIRE_MESSAGE(real.has_value(), real.status().text());
  static const verbs::Functions* functions = nullptr;
  functions = *real;
  verbs::Functions out = *functions;
  out.query_device = [](ibv_context* context, ibv_device_attr* attributes) {
    const int error = functions->query_device(context, attributes);
    attributes->max_mr_size = 4 * kMiB;
    return error;
  };
  return out;
}

std::unique_ptr<Device> open(const verbs::Functions& functions, std::shared_ptr<verbs::DeviceState>& state) {
  auto context = verbs::Context::open(functions, {});
  REQUIRE_MESSAGE(context.has_value(), context.status().text());
  state = std::make_shared<verbs::DeviceState>(std::move(*context));
  return std::make_unique<verbs::VerbsDevice>(state);
}

// A thread without CAP_IPC_LOCK and with a small limit of locked memory, while this object lives.
class LittleLockedMemory {
 public:
  LittleLockedMemory() {
    REQUIRE(getrlimit(RLIMIT_MEMLOCK, &limit_) == 0);
    REQUIRE(syscall(SYS_capget, &header_, rights_.data()) == 0);
    auto fewer = rights_;
    fewer[0].effective &= ~(1U << CAP_IPC_LOCK);
    REQUIRE(syscall(SYS_capset, &header_, fewer.data()) == 0);
    const rlimit little{64 * 1024, limit_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_MEMLOCK, &little) == 0);
  }
  ~LittleLockedMemory() {
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit_) == 0);
    CHECK(syscall(SYS_capset, &header_, rights_.data()) == 0);
  }

 private:
  rlimit limit_{};
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> rights_{};
};

}  // namespace

TEST_CASE("the driver takes what regions of all rights and parts ask for, and gives it back") {
  const verbs::Functions functions = small_registrations();
  std::shared_ptr<verbs::DeviceState> state;
  const auto device = open(functions, state);
  for (const Rights rights :
       {Rights::kLocal, Rights::kRemoteRead, Rights::kRemoteWrite, Rights::kReadWrite}) {
    auto region = device->allocate(10 * kMiB + 5, rights);
    REQUIRE_MESSAGE(region.has_value(), region.status().text());
    const std::vector<std::uint64_t> keys = verbs_keys(region->describe()).keys;
    REQUIRE(keys.size() == 3);
    auto part = device->register_memory(region->data() + 1, 5 * kMiB, Rights::kLocal);
    REQUIRE_MESSAGE(part.has_value(), part.status().text());
    if (rights != Rights::kLocal) {  // keys without remote rights may all be 0
      CHECK(keys[0] != keys[1]);
      CHECK(keys[1] != keys[2]);
      for (int i = 0; i < 3; ++i) CHECK(verbs_keys(part->describe()).keys[0] != keys[i]);
    }
    CHECK(part->close().ok());
    CHECK(region->close().ok());
  }
  CHECK(state->usable().ok());
}

TEST_CASE("memory that is mapped read-only can be registered for peers to read") {
  const verbs::Functions functions = small_registrations();
  std::shared_ptr<verbs::DeviceState> state;
  const auto device = open(functions, state);
  // Private: kernels before 6.2 refuse shared mappings.
  void* const page = mmap(nullptr, kMiB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  {
    auto region = device->register_memory(page, kMiB, Rights::kRemoteRead);
    CHECK_MESSAGE(region.has_value(), region.status().text());
    CHECK(device->register_memory(page, kMiB, Rights::kReadWrite).status().code() == Code::kInvalidArgument);
  }
  munmap(page, kMiB);
}

TEST_CASE("more memory than this process may lock is an error that says ulimit -l") {
  const verbs::Functions functions = small_registrations();
  std::shared_ptr<verbs::DeviceState> state;
  const auto device = open(functions, state);
  Status status;
  {
    const LittleLockedMemory little;
    status = device->allocate(kMiB, Rights::kReadWrite).status();
  }
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK(status.text().find("64 KiB (ulimit -l)") != std::string::npos);
  CHECK(device->allocate(kMiB, Rights::kReadWrite).has_value());
}

TEST_CASE("CUDA memory that is none is refused, whatever this machine has") {
  const verbs::Functions functions = small_registrations();
  std::shared_ptr<verbs::DeviceState> state;
  const auto device = open(functions, state);
  std::byte byte{};
  const Code code = device->register_memory(&byte, 1, Rights::kLocal, MemoryKind::kCuda).status().code();
  CHECK((code == Code::kUnimplemented || code == Code::kInvalidArgument));
}

}  // namespace slime::transport::testing
