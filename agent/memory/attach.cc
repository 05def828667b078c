#include <memory>

#include "agent/memory/devices.h"
#include "agent/memory/region.h"
#include "agent/peer_agent.h"
#include "rpc/attachment.h"

namespace slime {
namespace {

// A MemoryRegion for use in an attachment. Keeps the registration's record alive, but does not
// delay the region's closing.
class RegisteredRegion final : public rpc::Registered {
 public:
  explicit RegisteredRegion(agent::RegionState region) : region_(std::move(region)) {}
  [[nodiscard]] MutableBytes bytes() const override {
    const agent::Registrations& all = region_->registrations;
    return {all.data(), static_cast<std::size_t>(all.length_bytes())};
  }
  [[nodiscard]] Result<const transport::DeviceRegion*> on(const transport::Device& device) const override {
    if (region_->closed()) return Status(Code::kInvalidArgument, "the region of this attachment is closed");
    for (std::size_t i = 0; i < region_->devices->size(); ++i) {
      if (region_->devices->device(i) != &device) continue;
      SLIME_TRY(region_->registrations.missing(i));
      return &region_->registrations.on(i);
    }
    return Status(Code::kInvalidArgument, "the region of this attachment is another agent's");
  }

 private:
  const agent::RegionState region_;
};

template <class T>
Result<T> range_of(const MemoryRegion& region, std::uint64_t offset, std::uint64_t length_bytes) {
  if (!region.valid()) return Status(Code::kInvalidArgument, "a range of no region");
  if (length_bytes == kToTheEnd && offset <= region.length_bytes())
    length_bytes = region.length_bytes() - offset;
  return T::of(std::make_shared<const RegisteredRegion>(region.state()), offset, length_bytes);
}

}  // namespace

Result<Attachment> attach(const MemoryRegion& region, std::uint64_t offset, std::uint64_t length_bytes) {
  return range_of<Attachment>(region, offset, length_bytes);
}

Result<Destination> into(const MemoryRegion& region, std::uint64_t offset, std::uint64_t length_bytes) {
  return range_of<Destination>(region, offset, length_bytes);
}

}  // namespace slime
