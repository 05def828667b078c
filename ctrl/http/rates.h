#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/clock.h"

namespace slime::ctrl {

// Token buckets that limit the request rate of each sender (a client address, or the id of a
// token). A bucket holds the requests of two seconds. To bound memory, senders beyond `senders_max`
// share one bucket. Thread: one.
class Rates {
 public:
  // `per_second` 0: no limit.
  Rates(double per_second, std::size_t senders_max);
  // Removes one request from the sender's bucket. Returns false if the bucket is empty.
  bool take(const std::string& sender, TimePoint now);

 private:
  struct Bucket {
    double tokens = 0;
    TimePoint at;
  };
  Bucket& bucket(const std::string& sender, TimePoint now);
  void drop_full(TimePoint now);

  const double per_second_;
  const std::size_t senders_max_;
  std::unordered_map<std::string, Bucket> buckets_;
  Bucket others_;
  TimePoint swept_at_;
};

}  // namespace slime::ctrl
