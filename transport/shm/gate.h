#pragma once

#include <cstdint>
#include <utility>

namespace slime::transport::shm {

// A gate that the writes of a peer into memory of this process pass: two pages of this process, at
// an address where no other process has anything. Each call of the kernel writes a word to the
// first page, then the bytes, then the word to the second page. The kernel takes them in this
// order, and ends the call at a page that is not there. So a call that finds the gate closed has
// written nothing, whatever process it reaches. The second page says which calls are over, even if
// the thread of the peer has not run since. Movable. Thread: one at a time.
class Gate {
 public:
  Gate() = default;  // none
  // Returns none if there is no room for a gate, or this process has too many.
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
  // Closes the gate: no later call passes it. A call that has passed may still write.
  void close();
  // Returns the word of the last call that is over.
  [[nodiscard]] std::uint64_t over() const;
  // Returns the address where a peer writes the word last.
  static std::uint64_t last_word(std::uint64_t gate);

 private:
  explicit Gate(std::uint64_t address) : address_(address) {}

  std::uint64_t address_ = 0;
  bool closed_ = false;
};

// Returns whether a thread of another process is stopped, by a signal or a debugger. A stopped
// thread is not inside a system call that copies. Returns false also if the state cannot be told.
bool is_stopped(int process, int thread);

}  // namespace slime::transport::shm
