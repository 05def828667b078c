#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/bytes.h"

struct XXH3_state_s;

namespace slime::cache {

// The 64-bit checksum of an object: XXH3 over its bytes, with a seed that XXH3 derives from
// version, namespace and key. Bytes of another object, or of another version, do not match. Takes
// pieces of any size, in order. Thread: one at a time.
class Checksum {
 public:
  Checksum();
  // Starts over for another object.
  void start(std::string_view space, std::string_view key, std::uint64_t version);
  void update(Bytes bytes);
  [[nodiscard]] std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::uint64_t checksum(std::string_view space, std::string_view key, std::uint64_t version, Bytes bytes);

}  // namespace slime::cache
