#pragma once

#include <utility>

namespace slime::transport::shm {

// Notes what memory a wire can give back: pages of its ring, if no write came between two calls of
// age(), and windows onto regions of the peer, once these regions are closed.
class SpareMemory {
 public:
  // Note that the wire wrote, or asked for a window. Return true at the first note: then age() has
  // to be called from now on.
  bool note_write() {
    wrote_ = true;
    return !std::exchange(has_pages_, true);
  }
  bool note_window() { return !std::exchange(has_windows_, true); }
  // Gives spare memory back: `trim()` frees the pages, and returns false if it could not; `sweep()`
  // closes windows, and returns whether any are left. Returns whether any spare memory is left.
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
