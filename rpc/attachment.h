#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace slime::transport {
class Device;
class DeviceRegion;
}  // namespace slime::transport

namespace slime::rpc {

// Registered memory of attachments. Thread: the loop, and the thread that makes the object.
class Registered {
 public:
  Registered() = default;
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  virtual ~Registered() = default;
  [[nodiscard]] virtual MutableBytes bytes() const = 0;
  // Returns the registration with this device, which lives as long as this object; or an error.
  [[nodiscard]] virtual Result<const transport::DeviceRegion*> on(const transport::Device& device) const = 0;
  // Returns whether the peer of this endpoint (Endpoint::id) may get the registration. If not, the
  // bytes are registered again for one call.
  [[nodiscard]] virtual bool shown_to(std::uint64_t endpoint) const {
    static_cast<void>(endpoint);
    return true;
  }
  // Gives the pages back, so that the memory reads as zeros. Returns false if the memory does not
  // support it.
  virtual bool discard() const { return false; }
};

// Type and shape of an attachment that is an array. `dtype` is the sender's text ("<f4"). Passed on
// unchecked.
struct ArrayType {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  bool operator==(const ArrayType&) const = default;
};

// Bytes beside the msgpack of a request or a reply: an argument, a result, or a part of one. Large
// ones are lent without a copy: the receiver reads them into its own memory, or into a Destination.
// Small ones travel inline.
//
// A value; copies share the memory, which lives until the last copy is destroyed or released.
// Memory of a sent attachment must not change until the peer has read it or the connection has
// ended, which may be after the end of the call; until then the channel holds `keeper`. Thread:
// any, one object on one thread at a time.
class Attachment {
 public:
  Attachment() = default;  // no bytes
  explicit Attachment(ByteVector bytes) {
    auto owned = std::make_shared<const ByteVector>(std::move(bytes));
    bytes_ = *owned;
    keeper_ = std::move(owned);
  }
  // `keeper` is destroyed when the bytes are not needed any more, on any thread.
  Attachment(Bytes bytes, std::shared_ptr<const void> keeper) : bytes_(bytes), keeper_(std::move(keeper)) {}
  // Returns a range of registered memory, which needs Rights::kRemoteRead to be sent.
  // kInvalidArgument if the range is not inside the memory.
  static Result<Attachment> of(std::shared_ptr<const Registered> memory, std::uint64_t offset,
                               std::uint64_t length_bytes);
  // Returns an attachment whose bytes came from a peer. They are in a block, or in memory of
  // make_received().
  static Attachment received(Bytes bytes, std::shared_ptr<const void> keeper, const Registered* block) {
    Attachment out(bytes, std::move(keeper));
    out.memory_ = block;
    out.received_ = true;
    return out;
  }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  // Drops the bytes.
  void release() { *this = Attachment(); }

  // Returns a range, which shares the memory. kInvalidArgument if the range is not inside the
  // bytes.
  [[nodiscard]] Result<Attachment> part(std::uint64_t offset, std::uint64_t length_bytes) const;
  // Gives the pages of large received memory back: it then reads as zeros, or stays unchanged if a
  // device pins the pages. Does nothing if other copies exist, if the bytes are lent, or if they
  // are in a Destination.
  void discard() const;

  // Returns null if the attachment is no array.
  [[nodiscard]] const ArrayType* array() const { return array_.get(); }
  void set_array(ArrayType type) { array_ = std::make_shared<const ArrayType>(std::move(type)); }

  // Returns the registered memory of the bytes; null: none.
  [[nodiscard]] const Registered* memory() const { return memory_; }
  // Returns false for a range of a user's region, whose memory exists without the attachment.
  [[nodiscard]] bool owns_memory() const { return memory_ == nullptr || received_; }

 private:
  Bytes bytes_;
  std::shared_ptr<const void> keeper_;
  const Registered* memory_ = nullptr;  // owned by keeper_
  bool received_ = false;               // made by received()
  std::shared_ptr<const ArrayType> array_;
};
using Attachments = std::vector<Attachment>;

// Memory of a caller that an attachment of the reply is read into, instead of new memory. Written
// only until the call has ended. The received attachment is a view of its beginning.
class Destination {
 public:
  // `keeper` is destroyed when neither the call nor the attachment needs the bytes, on any thread.
  explicit Destination(MutableBytes bytes, std::shared_ptr<const void> keeper = nullptr)
      : bytes_(bytes), keeper_(std::move(keeper)) {}
  static Result<Destination> of(std::shared_ptr<const Registered> memory, std::uint64_t offset,
                                std::uint64_t length_bytes);

  [[nodiscard]] MutableBytes bytes() const { return bytes_; }
  [[nodiscard]] const Registered* memory() const { return memory_; }
  // Returns the attachment that was read into this memory.
  [[nodiscard]] Attachment filled(std::size_t length) const { return {Bytes(bytes_.first(length)), keeper_}; }

 private:
  MutableBytes bytes_;
  std::shared_ptr<const void> keeper_;
  const Registered* memory_ = nullptr;
};
using Destinations = std::vector<Destination>;

// A body and its attachments. A request may also have destinations for the attachments of its
// reply, in their order; attachments without one get new memory.
struct AttachedBody {
  ByteVector body;
  Attachments attachments{};
  Destinations into{};
  // Set for a request to a method of bytes, which has no attachments or destinations.
  bool raw = false;
};

}  // namespace slime::rpc
