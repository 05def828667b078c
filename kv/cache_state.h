#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/limits.h"
#include "base/status.h"
#include "kv/arrivals.h"
#include "kv/cache.h"

namespace slime::kv {

namespace limits {

// Bound of the closes in destructors of what has many regions. It is half of that of one region:
// after it, memory that a frozen peer may still use is moved out of its reach, region by region.
inline constexpr Nanos kDestructorBound = agent::limits::kDestructorBound / 2;

}  // namespace limits

// Names on the wire; kv/README.md describes them.
std::string service_name(std::string_view cache);
std::string region_name(std::string_view cache, std::uint32_t layer, std::string_view region);
Status check_cache_name(std::string_view name);
// Closes all regions within `timeout`. Returns the first error.
Status close_all(std::vector<MemoryRegion>& regions, Nanos timeout);

// The parts of a Cache. Operations in flight keep them alive.
struct Cache::State {
  State(PeerAgent& agent, const Geometry& its_geometry, std::string its_name)
      : geometry(its_geometry),
        name(std::move(its_name)),
        shapes(geometry.regions()),
        driver(agent.driver()),
        arrivals(std::make_shared<Arrivals>(geometry, driver)) {}

  Status add_region(PeerAgent& agent, Result<MemoryRegion> region);  // the next one, in order
  Status serve(PeerAgent& agent) const;
  Status close(Nanos timeout);
  [[nodiscard]] const MemoryRegion& region(std::uint32_t layer, std::uint32_t number) const {
    return regions[std::size_t{layer - geometry.first_layer} * shapes.size() + number];
  }

  const Geometry geometry;
  const std::string name;
  const std::vector<RegionShape> shapes;
  const std::shared_ptr<Driver> driver;
  const std::shared_ptr<Arrivals> arrivals;
  std::vector<MemoryRegion> regions;  // by layer, then by shape; does not change after creation
};

}  // namespace slime::kv
