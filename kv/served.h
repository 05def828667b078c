#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/result.h"
#include "kv/arrivals.h"

namespace slime {
class PeerAgent;
}  // namespace slime

namespace slime::kv {

namespace limits {

// Connections that a name remembers whose peers know its present cache. Beyond them all have to
// connect() again.
inline constexpr std::size_t kToldConnections = 65536;

}  // namespace limits

// The service of one cache name of an agent. It stays with the agent: a closed cache leaves it, and
// the next cache of that name takes it. A peer that has not asked for the geometry since then means
// the closed cache: what it says is refused, so that none of its layers counts for the new one.
// Thread: any.
class Served {
 public:
  // Lets peers find a cache. Errors: kAlreadyExists if an open cache of the agent has the name.
  static Status serve(PeerAgent& agent, const std::string& name, ByteVector geometry,
                      std::shared_ptr<Arrivals> arrivals);

 private:
  struct Known;

  // Serves another cache in place of a closed one.
  Status take(const std::string& name, ByteVector geometry, std::shared_ptr<Arrivals> arrivals);
  Result<ByteVector> tell(std::uint64_t connection);
  Status arrived(std::uint64_t connection, std::uint64_t request, std::uint32_t layer, Heads heads);

  Mutex mutex_;
  std::shared_ptr<Arrivals> arrivals_ SLIME_GUARDED_BY(mutex_);
  ByteVector geometry_ SLIME_GUARDED_BY(mutex_);
  bool again_ SLIME_GUARDED_BY(mutex_) = false;  // this is not the first cache of the name
  std::unordered_set<std::uint64_t> told_ SLIME_GUARDED_BY(mutex_);
};

}  // namespace slime::kv
