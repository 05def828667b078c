#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace slime::transport::verbs {

// Device memory as a dma-buf, which an adapter can register without a look at its address.
struct Dmabuf {
  UniqueFd fd;
  std::uint64_t offset = 0;  // of the first byte of the range within it
};

// Turns a range of device memory into a dma-buf. Thread: any.
class DmabufExporter {
 public:
  virtual ~DmabufExporter() = default;
  // kUnimplemented with the reason where this cannot be done at all, kInvalidArgument for a range that is not
  // inside one allocation of device memory.
  virtual Result<Dmabuf> export_range(const std::byte* data, std::size_t bytes) const = 0;
};

// CUDA's, through libcuda.so.1, which is loaded when it is first asked.
const DmabufExporter& cuda_dmabuf_exporter();

}  // namespace slime::transport::verbs
