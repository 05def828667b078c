#pragma once

#include <cstdint>
#include <utility>

namespace slime::transport::shm {

// Lets a peer write memory of this process by its address, until the gate is closed. A gate is two
// pages of this process, at an address where no other process has memory. Each of the peer's system
// calls writes a word to the first page, then its bytes, then the word to the second page, in this
// order, and ends at a page that is not mapped. So a call has written nothing if it finds the gate
// closed (first page unmapped), or if it reaches another process that has got this process's id.
// The second page shows which call ended last, even if the peer's thread has not run since.
// Movable. Thread: one at a time.
class Gate {
 public:
  Gate() = default;  // none
  // Makes an open gate. Returns an empty Gate if no address was free, or this process has too many
  // gates.
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

  // Returns the address of the first page; 0: none.
  [[nodiscard]] std::uint64_t address() const { return address_; }
  // Closes the gate: later calls of the peer do not pass it. A call that has passed already may
  // still write.
  void close();
  // Returns the word of the peer's last call that passed the gate and has ended.
  [[nodiscard]] std::uint64_t over() const;
  // Returns the address to which a peer's call writes its word at the end.
  static std::uint64_t last_word(std::uint64_t gate);

 private:
  explicit Gate(std::uint64_t address) : address_(address) {}

  std::uint64_t address_ = 0;
  bool closed_ = false;
};

// Returns whether a thread of another process is stopped by a signal or a debugger. A stopped
// thread is not inside a system call that copies. Returns false if the state is unknown.
bool is_stopped(int process, int thread);

}  // namespace slime::transport::shm
