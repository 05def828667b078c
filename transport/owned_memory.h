#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/memory.h"

namespace slime::transport {

// Page-aligned zeroed memory in a memfd that can neither shrink nor grow. Movable; empty if default
// constructed. Thread: one at a time.
class OwnedMemory {
 public:
  OwnedMemory() = default;
  // Allocates memory whose pages all exist: touching a page never fails, neither here nor in
  // another mapping of the memfd. With huge pages, the size of the memfd is a multiple of their
  // size, even if `bytes` is not. Errors: kInvalidArgument for no bytes or too many;
  // kResourceExhausted, with what to do, if the pool has too few huge pages; kUnimplemented if the
  // kernel has no huge pages; otherwise the code for the errno.
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

  // Replaces the pages by private pages with the same bytes, at the same address. Other mappings of
  // the memfd keep the old pages and see no later write. On an error (the code for the errno)
  // nothing has changed. With huge pages, this takes as many pages again from the pool, and needs
  // Linux 5.16.
  Status part();
  // Unmaps it.
  void reset();
  // Forgets the memory for ever without unmapping it, because hardware may still write to it.
  void leak();

 private:
  [[nodiscard]] Status check_filled() const;
  Status show_privately();

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  // size of the memfd and of the mapping: `bytes_`, rounded up to a multiple of a huge page
  std::size_t mapped_ = 0;
  std::size_t page_ = 0;
};

}  // namespace slime::transport
