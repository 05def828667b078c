#pragma once

#include <utility>

namespace slime::transport::shm {

// Remembers which memory a wire may give back: the pages of its ring, if nothing was written
// between two calls of age(), and the windows of regions that the peer has closed.
class SpareMemory {
 public:
  // note_write(): the wire has written to its ring. note_window(): the wire has asked for a window.
  // Both return true at the first call: from then on, age() must be called at intervals.
  bool note_write() {
    wrote_ = true;
    return !std::exchange(has_pages_, true);
  }
  bool note_window() { return !std::exchange(has_windows_, true); }
  // Gives memory back. `trim()` frees the pages of the ring and returns false if it could not.
  // `sweep()` unmaps windows of closed regions and returns whether any windows are left. Returns
  // whether age() must be called again.
  template <class Trim, class Sweep>
  bool age(const Trim& trim, const Sweep& sweep) {
    if (has_pages_ && !std::exchange(wrote_, false) && trim()) has_pages_ = false;
    if (has_windows_) has_windows_ = sweep();
    return has_pages_ || has_windows_;
  }

 private:
  bool wrote_ = false;  // since age() was called
  bool has_pages_ = false;
  bool has_windows_ = false;
};

}  // namespace slime::transport::shm
