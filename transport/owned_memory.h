#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/memory.h"

namespace slime::transport {

// Page-aligned zeroed memory in a memfd that can neither shrink nor grow. Movable; empty when
// default made. Thread: one at a time.
class OwnedMemory {
 public:
  OwnedMemory() = default;
  // Makes memory whose pages all exist: touching a page never fails, here or where the memfd is
  // mapped. With huge pages, the memfd is a multiple of their size, whatever `bytes` is. Errors:
  // kInvalidArgument for no bytes or too many; kResourceExhausted, with what to do, if the pool has
  // too few huge pages; kUnimplemented if the kernel has no huge pages; else by errno.
  static Result<OwnedMemory> create(std::size_t bytes, Pages pages = Pages::kDefault);
  OwnedMemory(OwnedMemory&& other) noexcept
      : fd_(std::move(other.fd_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapped_(std::exchange(other.mapped_, 0)),
        page_(other.page_) {}
  OwnedMemory& operator=(OwnedMemory&& other) noexcept;
  ~OwnedMemory() { reset(); }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }
  [[nodiscard]] int fd() const { return fd_.get(); }  // borrowed; -1 when empty
  explicit operator bool() const { return data_ != nullptr; }

  // Gives the memory pages of its own at the same address, with the same bytes. Other mappings of
  // the memfd then no longer share bytes with it. Errors: by errno; then nothing has changed. Huge
  // pages need as many pages again from the pool, and Linux 5.16.
  Status part();
  // Unmaps it.
  void reset();
  // Gives up the memory for ever without unmapping it, because hardware may still write to it.
  void leak();

 private:
  [[nodiscard]] Status check_filled() const;
  Status show_privately();

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t mapped_ = 0;  // of the memfd and the mapping: `bytes_`, rounded up where pages are huge
  std::size_t page_ = 0;
};

}  // namespace slime::transport
