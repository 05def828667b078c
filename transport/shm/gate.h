#pragma once

#include <cstdint>
#include <utility>

namespace slime::transport::shm {

// What a peer's writes into memory of ours pass: two pages of this process, at an address that no other
// process has anything at. Each call of the kernel's writes a word to the first page, then the bytes, then
// the word to the second page. The kernel takes them in this order, and ends the call where a page is not
// there. So a call that finds the gate closed has written nothing, whichever process it reaches; and the
// second page says which calls are over, even if the peer's thread has not run since. Movable. Thread: one at
// a time.
class Gate {
 public:
  Gate() = default;  // none
  // None where there is no room for it, or this process has many.
  static Gate open();
  Gate(Gate&& other) noexcept
      : address_(std::exchange(other.address_, 0)), closed_(std::exchange(other.closed_, false)) {}
  Gate& operator=(Gate&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(closed_, other.closed_);
    return *this;
  }
  ~Gate();
  explicit operator bool() const { return address_ != 0; }

  // Of the first page; 0: none.
  [[nodiscard]] std::uint64_t address() const { return address_; }
  // No call passes it any more. One that has passed may still write.
  void close();
  // The word of the last call that is over.
  [[nodiscard]] std::uint64_t over() const;
  // Where a peer writes the word last.
  static std::uint64_t last_word(std::uint64_t gate);

 private:
  explicit Gate(std::uint64_t address) : address_(address) {}

  std::uint64_t address_ = 0;
  bool closed_ = false;
};

// Whether a thread of another process is stopped, by a signal or a debugger: then it is inside of no call of
// the kernel's that copies. False also where nobody can tell.
bool is_stopped(int process, int thread);

}  // namespace slime::transport::shm
