#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

// The load, and the printed figures, of the programs that Slime is compared with.
namespace peer {

using Clock = std::chrono::steady_clock;

struct Load {
  std::size_t size = 64;
  std::size_t inflight = 1;
  double seconds = 1;
  double warmup = 0.3;
};

inline Load load_of(char** arguments) {
  Load out;
  out.size = std::strtoull(arguments[0], nullptr, 10);
  out.inflight = std::strtoull(arguments[1], nullptr, 10);
  out.seconds = std::strtod(arguments[2], nullptr);
  return out;
}

// Keeps the times of all operations after the warm-up.
class Meter {
 public:
  explicit Meter(const Load& load)
      : begin_(Clock::now() +
               std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(load.warmup))),
        end_(begin_ +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(load.seconds))) {
    spent_.reserve(1 << 20);
  }
  // Adds an operation that ends now; returns false when the time is over.
  bool add(Clock::time_point started) {
    const auto now = Clock::now();
    if (now >= begin_ && spent_.size() < kMost)
      spent_.push_back(std::chrono::duration<double, std::micro>(now - started).count());
    if (now >= begin_) ++count_;
    last_ = now;
    return now < end_;
  }
  // Adds the operations of another thread, whose load began at the same time.
  void add(const Meter& other) {
    spent_.insert(spent_.end(), other.spent_.begin(), other.spent_.end());
    count_ += other.count_;
    last_ = std::max(last_, other.last_);
  }
  // Prints one JSON object on one line.
  void print() {
    std::sort(spent_.begin(), spent_.end());
    const double seconds = std::chrono::duration<double>(last_ - begin_).count();
    const auto at = [this](double part) {
      return spent_.empty() ? 0
                            : spent_[static_cast<std::size_t>(part * static_cast<double>(spent_.size() - 1))];
    };
    std::printf("{\"p50_us\": %.4f, \"p99_us\": %.4f, \"ops_per_s\": %.1f}\n", at(0.5), at(0.99),
                static_cast<double>(count_) / seconds);
    std::fflush(stdout);
  }

 private:
  static constexpr std::size_t kMost = 50'000'000;
  Clock::time_point begin_;
  Clock::time_point end_;
  Clock::time_point last_;
  std::vector<double> spent_;
  std::size_t count_ = 0;
};

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

}  // namespace peer
