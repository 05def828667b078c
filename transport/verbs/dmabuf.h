#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport::verbs {

// A range of device memory as a dma-buf. An adapter can register it by the dma-buf's descriptor.
struct Dmabuf {
  UniqueFd fd;
  std::uint64_t offset = 0;  // of the range's first byte within the dma-buf, in bytes
};

// Exports ranges of device memory as dma-bufs. Thread: any.
class DmabufExporter {
 public:
  virtual ~DmabufExporter() = default;
  // Errors: kUnimplemented with the reason (this machine cannot export), kInvalidArgument (the
  // range is not inside one allocation of device memory).
  virtual Result<Dmabuf> export_range(const std::byte* data, std::size_t bytes) const = 0;
};

// Returns the exporter for CUDA memory, which loads libcuda.so.1 at the first export. Its exports
// return kUnimplemented also if the GPU's driver cannot export.
const DmabufExporter& cuda_dmabuf_exporter();

// The functions of libcuda that the exporter calls, by their names in libcuda. Each returns a
// CUresult: 0 for success.
struct CudaFunctions {
  int (*init)(unsigned flags) = nullptr;
  int (*get_error_name)(int error, const char** out) = nullptr;
  int (*pointer_get_attribute)(void* out, int attribute, std::uintptr_t pointer) = nullptr;
  int (*device_get_attribute)(int* out, int attribute, int device) = nullptr;
  int (*device_primary_context_retain)(void** context, int device) = nullptr;
  int (*device_primary_context_release)(int device) = nullptr;
  int (*context_push)(void* context) = nullptr;
  int (*context_pop)(void** context) = nullptr;
  int (*mem_get_address_range)(std::uintptr_t* base, std::size_t* bytes, std::uintptr_t pointer) = nullptr;
  int (*mem_get_handle_for_address_range)(void* out, std::uintptr_t pointer, std::size_t bytes, int type,
                                          unsigned long long flags) = nullptr;
};
Result<Dmabuf> export_cuda_range(const CudaFunctions& cuda, const std::byte* data, std::size_t bytes);

}  // namespace slime::transport::verbs
