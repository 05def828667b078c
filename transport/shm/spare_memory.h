#pragma once

#include <utility>

namespace slime::transport::shm {

// Which memory a wire has that it can give back: pages of its ring, which are spare once no write
// came between two calls of age(), and windows onto regions of the peer, which are spare once the
// regions are closed.
class SpareMemory {
 public:
  // Note that the wire wrote, or asked for a window. Return true for the first of them: age() has to
  // be called from now on.
  bool note_write() {
    wrote_ = true;
    return !std::exchange(has_pages_, true);
  }
  bool note_window() { return !std::exchange(has_windows_, true); }
  // Gives back what is spare: `trim()` frees the pages, and returns false where it could not;
  // `sweep()` closes windows, and returns whether any are left. Returns whether anything is left.
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
