// Memory that the CPU must not access: its export as a dma-buf, and the registration.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/transport/verbs/verbs_keys.h"
#include "tests/transport/verbs/watched_device.h"

namespace slime::transport::testing::verbs_dmabuf_test {
namespace {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::size_t kPage = 4096;

// Device memory: addresses that must not be accessed, with a descriptor of the fabric.
class FakeGpu final : public verbs::DmabufExporter {
 public:
  explicit FakeGpu(std::size_t bytes) : bytes_(bytes) {
    address_ = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(address_ != MAP_FAILED);
  }
  ~FakeGpu() override { munmap(address_, bytes_); }
  void open(FakeFabric& fabric) {
    memory_ = fabric.make_dmabuf(bytes_);
    fd_ = UniqueFd(memory_.fd);
  }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(address_); }

  Result<verbs::Dmabuf> export_range(const std::byte* data, std::size_t bytes) const override {
    ++exports;
    if (!fd_.valid()) return Status(Code::kUnimplemented, "this GPU exports nothing");
    CHECK(data >= this->data());
    CHECK(data + bytes <= this->data() + bytes_);
    verbs::Dmabuf out;
    out.fd = UniqueFd(dup(fd_.get()));
    out.offset = static_cast<std::uint64_t>(data - this->data());
    return out;
  }

  mutable int exports = 0;

 private:
  const std::size_t bytes_;
  void* address_ = nullptr;
  FakeFabric::Dmabuf memory_;
  UniqueFd fd_;
};

// The results of CUDA's functions in the table.
struct FakeCuda {
  unsigned memory_type = 2;
  int dmabuf_supported = 1;
  std::uintptr_t base = 0;
  std::size_t size = 0;
  int export_error = 0;
  // Recorded arguments.
  std::uintptr_t exported = 0;
  std::size_t exported_bytes = 0;
  int contexts = 0;
  int retained = 0;
};
FakeCuda cuda;

verbs::CudaFunctions cuda_functions() {
  verbs::CudaFunctions out;
  out.get_error_name = [](int error, const char** name) {
    *name = error == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : nullptr;
    return 0;
  };
  out.pointer_get_attribute = [](void* value, int attribute, std::uintptr_t) {
    if (cuda.memory_type == 0) return 1;
    if (attribute == 2) *static_cast<unsigned*>(value) = cuda.memory_type;
    if (attribute == 9) *static_cast<int*>(value) = 3;
    return 0;
  };
  out.device_get_attribute = [](int* value, int, int device) {
    CHECK(device == 3);
    *value = cuda.dmabuf_supported;
    return 0;
  };
  out.device_primary_context_retain = [](void** context, int) {
    *context = &cuda;
    ++cuda.retained;
    return 0;
  };
  out.device_primary_context_release = [](int) { return --cuda.retained, 0; };
  out.context_push = [](void*) { return ++cuda.contexts, 0; };
  out.context_pop = [](void**) { return --cuda.contexts, 0; };
  out.mem_get_address_range = [](std::uintptr_t* base, std::size_t* size, std::uintptr_t) {
    CHECK(cuda.contexts == 1);
    *base = cuda.base;
    *size = cuda.size;
    return 0;
  };
  out.mem_get_handle_for_address_range = [](void* fd, std::uintptr_t pointer, std::size_t bytes, int type,
                                            unsigned long long flags) {
    CHECK(cuda.contexts == 1);
    CHECK(type == 1);
    CHECK(flags == 0);
    cuda.exported = pointer;
    cuda.exported_bytes = bytes;
    if (cuda.export_error != 0) return cuda.export_error;
    *static_cast<int*>(fd) = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    return 0;
  };
  return out;
}

Result<verbs::Dmabuf> export_range(std::uintptr_t address, std::size_t bytes) {
  return verbs::export_cuda_range(cuda_functions(), reinterpret_cast<const std::byte*>(address), bytes);
}

}  // namespace

TEST_CASE("CUDA memory is registered by its descriptor, and its bytes are never touched") {
  FakeOptions options = FakeOptions::roce(1);
  options.devices[0].attributes.max_mr_size = 4 * kMiB;
  FakeGpu gpu(16 * kMiB);
  WatchedDevice watched(options, {}, gpu);
  gpu.open(watched.fabric);
  DeviceRegion region =
      watched.add(gpu.data() + 3 * kPage + 5, 10 * kMiB, Rights::kReadWrite, MemoryKind::kCuda);
  CHECK(region.kind() == MemoryKind::kCuda);
  CHECK(gpu.exports == 1);
  REQUIRE(watched.registered.size() == 3);
  const auto base = reinterpret_cast<std::uintptr_t>(gpu.data());
  for (std::size_t i = 0; i < 3; ++i) {
    const Registered& made = watched.registered[i];
    CHECK(made.call == "ibv_reg_dmabuf_mr");
    CHECK(made.offset == 3 * kPage + 5 + i * 4 * kMiB);
    CHECK(made.address == base + made.offset);
    CHECK(made.bytes == (i < 2 ? 4 : 2) * kMiB);
    CHECK((made.access & IBV_ACCESS_REMOTE_WRITE) != 0);
    CHECK((made.access & IBV_ACCESS_REMOTE_ATOMIC) == 0);  // atomics are only supported in host
                                                           // memory
    CHECK((made.access & IBV_ACCESS_RELAXED_ORDERING) != 0);
    CHECK(verbs_keys(region.describe()).keys[i] == made.mr->rkey);
    CHECK(fcntl(made.fd, F_GETFD) == -1);  // the registration keeps the memory, not the descriptor
  }
  CHECK(region.close().ok());
  CHECK(watched.alive() == 0);
}

TEST_CASE("without an exporter or a library that can, CUDA memory is refused with the reason") {
  FakeGpu gpu(kMiB);
  SUBCASE("the GPU exports nothing") {
    WatchedDevice watched(FakeOptions::roce(1), {}, gpu);
    const Status status =
        watched.device->register_memory(gpu.data(), kMiB, Rights::kLocal, MemoryKind::kCuda).status();
    CHECK(status.code() == Code::kUnimplemented);
    CHECK(status.text() == "this GPU exports nothing");
  }
  SUBCASE("an old libibverbs") {
    FakeOptions options = FakeOptions::roce(1);
    options.has_dmabuf = false;
    WatchedDevice watched(options, {}, gpu);
    const Status status =
        watched.device->register_memory(gpu.data(), kMiB, Rights::kLocal, MemoryKind::kCuda).status();
    CHECK(status.code() == Code::kUnimplemented);
    CHECK(status.text().find("rdma-core") != std::string::npos);
    CHECK(gpu.exports == 0);
  }
  SUBCASE("allocating it") {
    WatchedDevice watched(FakeOptions::roce(1), {}, gpu);
    CHECK(watched.device->allocate(kMiB, Rights::kLocal, MemoryKind::kCuda).status().code() ==
          Code::kUnimplemented);
  }
}

TEST_CASE("this machine's CUDA refuses memory that is not its own") {
  std::byte byte{};
  const Status status = verbs::cuda_dmabuf_exporter().export_range(&byte, 1).status();
  // With and without CUDA.
  CHECK((status.code() == Code::kInvalidArgument || status.code() == Code::kUnimplemented));
  CHECK_FALSE(status.text().empty());
}

TEST_CASE("a range of a CUDA allocation is exported in whole pages around it") {
  cuda = {};
  cuda.base = 0x7f0000200000;
  cuda.size = 2 * kMiB;
  const auto whole = export_range(cuda.base, cuda.size);
  REQUIRE(whole.has_value());
  CHECK(cuda.exported == cuda.base);
  CHECK(cuda.exported_bytes == cuda.size);
  CHECK(whole->offset == 0);
  const auto middle = export_range(cuda.base + kPage + 100, 2 * kPage);
  REQUIRE(middle.has_value());
  CHECK(cuda.exported == cuda.base + kPage);
  CHECK(cuda.exported_bytes == 3 * kPage);
  CHECK(middle->offset == 100);
  CHECK(middle->fd.valid());
  CHECK(cuda.contexts == 0);
  CHECK(cuda.retained == 0);
}

TEST_CASE("what CUDA cannot export is refused with the reason") {
  cuda = {};
  cuda.base = 0x7f0000200000;
  cuda.size = 2 * kMiB;
  SUBCASE("host memory") {
    cuda.memory_type = 1;
    CHECK(export_range(cuda.base, 8).status().code() == Code::kInvalidArgument);
  }
  SUBCASE("an address that CUDA does not know") {
    cuda.memory_type = 0;
    CHECK(export_range(cuda.base, 8).status().code() == Code::kInvalidArgument);
  }
  SUBCASE("a range that goes on behind the allocation") {
    const Status status = export_range(cuda.base + kMiB, kMiB + 1).status();
    CHECK(status.code() == Code::kInvalidArgument);
    CHECK(status.text().find("expandable_segments") != std::string::npos);
  }
  SUBCASE("a driver without dma-bufs") {
    cuda.dmabuf_supported = 0;
    const Status status = export_range(cuda.base, 8).status();
    CHECK(status.code() == Code::kUnimplemented);
    CHECK(status.text().find("open kernel modules") != std::string::npos);
  }
  SUBCASE("an export that fails") {
    cuda.export_error = 801;
    const Status status = export_range(cuda.base, 8).status();
    CHECK(status.code() == Code::kUnimplemented);
    CHECK(status.text().find("CUDA_ERROR_NOT_SUPPORTED (801)") != std::string::npos);
  }
  CHECK(cuda.exported_bytes == (cuda.export_error != 0 ? kPage : 0));
  CHECK(cuda.contexts == 0);
  CHECK(cuda.retained == 0);
}

}  // namespace slime::transport::testing::verbs_dmabuf_test
