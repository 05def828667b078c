#include "transport/verbs/dmabuf.h"

#include <dlfcn.h>
#include <unistd.h>

#include "base/str.h"

namespace slime::transport::verbs {
namespace {

// Of cuda.h.
constexpr int kPointerMemoryType = 2;
constexpr int kPointerDeviceOrdinal = 9;
constexpr unsigned kMemoryTypeDevice = 2;
constexpr int kDeviceDmabufSupported = 124;
constexpr int kRangeHandleDmabuf = 1;

Status cuda_error(const CudaFunctions& cuda, std::string_view call, int error, Code code) {
  const char* name = nullptr;
  if (cuda.get_error_name(error, &name) != 0 || name == nullptr) name = "an unknown error";
  return Status(code, str(call, ": ", name, " (", error, ")"));
}

// Makes the CUDA context of a device current while this object lives, because the calling thread
// may have no context, or that of another device.
class CurrentDevice {
 public:
  static Result<CurrentDevice> enter(const CudaFunctions& cuda, int device) {
    void* context = nullptr;
    if (const int error = cuda.device_primary_context_retain(&context, device))
      return cuda_error(cuda, "cuDevicePrimaryCtxRetain", error, Code::kUnavailable);
    if (const int error = cuda.context_push(context)) {
      cuda.device_primary_context_release(device);
      return cuda_error(cuda, "cuCtxPushCurrent", error, Code::kUnavailable);
    }
    return CurrentDevice(cuda, device);
  }
  CurrentDevice(CurrentDevice&& other) noexcept
      : cuda_(std::exchange(other.cuda_, nullptr)), device_(other.device_) {}
  CurrentDevice& operator=(CurrentDevice&&) = delete;
  ~CurrentDevice() {
    if (cuda_ == nullptr) return;
    void* context = nullptr;
    cuda_->context_pop(&context);
    cuda_->device_primary_context_release(device_);
  }

 private:
  CurrentDevice(const CudaFunctions& cuda, int device) : cuda_(&cuda), device_(device) {}
  const CudaFunctions* cuda_;
  int device_;
};

template <class F>
void load(void* library, const char* name, F& out, std::string& missing) {
  out = reinterpret_cast<F>(dlsym(library, name));
  if (out == nullptr && missing.empty()) missing = name;
}

Result<CudaFunctions> load_cuda() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // CUDA cannot be unloaded
  if (library == nullptr)
    return Status(Code::kUnimplemented,
                  str("no CUDA on this machine, so no memory of it can be registered: ", dlerror()));
  CudaFunctions out;
  std::string missing;
  load(library, "cuInit", out.init, missing);
  load(library, "cuGetErrorName", out.get_error_name, missing);
  load(library, "cuPointerGetAttribute", out.pointer_get_attribute, missing);
  load(library, "cuDeviceGetAttribute", out.device_get_attribute, missing);
  load(library, "cuDevicePrimaryCtxRetain", out.device_primary_context_retain, missing);
  load(library, "cuDevicePrimaryCtxRelease_v2", out.device_primary_context_release, missing);
  load(library, "cuCtxPushCurrent_v2", out.context_push, missing);
  load(library, "cuCtxPopCurrent_v2", out.context_pop, missing);
  load(library, "cuMemGetAddressRange_v2", out.mem_get_address_range, missing);
  load(library, "cuMemGetHandleForAddressRange", out.mem_get_handle_for_address_range, missing);
  if (!missing.empty())
    return Status(Code::kUnimplemented,
                  str("libcuda.so.1 of this machine has no ", missing,
                      ": registering CUDA memory needs a driver of CUDA 11.7 or newer"));
  if (const int error = out.init(0)) return cuda_error(out, "cuInit", error, Code::kUnimplemented);
  return out;
}

class CudaExporter final : public DmabufExporter {
 public:
  Result<Dmabuf> export_range(const std::byte* data, std::size_t bytes) const override {
    static const Result<CudaFunctions> cuda = load_cuda();
    if (!cuda) return cuda.error();
    return export_cuda_range(*cuda, data, bytes);
  }
};

}  // namespace

Result<Dmabuf> export_cuda_range(const CudaFunctions& cuda, const std::byte* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  unsigned memory_type = 0;
  int device = 0;
  if (cuda.pointer_get_attribute(&memory_type, kPointerMemoryType, begin) != 0 ||
      memory_type != kMemoryTypeDevice ||
      cuda.pointer_get_attribute(&device, kPointerDeviceOrdinal, begin) != 0)
    return Status(Code::kInvalidArgument, "the address is not of CUDA device memory");
  int supported = 0;
  if (cuda.device_get_attribute(&supported, kDeviceDmabufSupported, device) != 0 || supported == 0)
    return Status(Code::kUnimplemented,
                  str("CUDA device ", device,
                      " exports no dma-bufs: it takes NVIDIA's open kernel modules and a "
                      "kernel of 5.12 or newer"));
  Result<CurrentDevice> current = CurrentDevice::enter(cuda, device);
  if (!current) return std::move(current).error();
  std::uintptr_t base = 0;
  std::size_t size = 0;
  if (const int error = cuda.mem_get_address_range(&base, &size, begin))
    return cuda_error(cuda, "cuMemGetAddressRange", error, Code::kInvalidArgument);
  if (begin < base || begin - base > size || bytes > size - (begin - base))
    return Status(
        Code::kInvalidArgument,
        str("a region of ", bytes, " bytes is not inside one CUDA allocation: ", size - (begin - base),
            " bytes of it are left at this address. Allocators that join pieces, such as PyTorch's "
            "expandable_segments, make ranges that must be registered piece by piece"));
  // Exports whole pages. CUDA allocations consist of whole pages, even if they report another
  // length.
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = begin & ~(page - 1);
  const std::uintptr_t last = (begin + bytes + page - 1) & ~(page - 1);
  int fd = -1;
  if (const int error =
          cuda.mem_get_handle_for_address_range(&fd, first, last - first, kRangeHandleDmabuf, 0))
    return cuda_error(cuda, str("cuMemGetHandleForAddressRange of ", last - first, " bytes"), error,
                      Code::kUnimplemented);
  Dmabuf out;
  out.fd = UniqueFd(fd);
  out.offset = begin - first;
  return out;
}

const DmabufExporter& cuda_dmabuf_exporter() {
  static const CudaExporter exporter;
  return exporter;
}

}  // namespace slime::transport::verbs
