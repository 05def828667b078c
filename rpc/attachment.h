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

// Registered memory that attachments lie in. Thread: the loop, and the thread that makes the
// object.
class Registered {
 public:
  Registered() = default;
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  virtual ~Registered() = default;
  [[nodiscard]] virtual MutableBytes bytes() const = 0;
  // Returns the memory's registration with `device`, or an error. The registration lives as long as
  // this object.
  [[nodiscard]] virtual Result<const transport::DeviceRegion*> on(const transport::Device& device) const = 0;
  // Returns whether the peer of endpoint `endpoint` (Endpoint::id) may get this registration. If
  // not, the sender registers the bytes again, for one call.
  [[nodiscard]] virtual bool shown_to(std::uint64_t endpoint) const {
    static_cast<void>(endpoint);
    return true;
  }
  // Gives the memory's pages back to the operating system, so that the memory reads as zeros.
  // Returns false if the memory does not support this.
  virtual bool discard() const { return false; }
};

// Element type and shape of an attachment that is an array. `dtype` is the sender's text ("<f4").
// The receiver gets both unchecked.
struct ArrayType {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  bool operator==(const ArrayType&) const = default;
};

// Bytes sent beside the msgpack body of a request or a reply: an argument, a result, or a part of
// an argument or result. Large attachments are lent without a copy: the receiver reads them into
// its own memory, or into a Destination. Small attachments travel inline.
//
// An Attachment is a value type. Copies share the memory, which lives until the last copy is
// destroyed or released. Memory of a sent attachment must not change until the peer has read it or
// the connection has ended, which may be after the end of the call. Until then the channel keeps a
// copy of `keeper`. Thread: any, one object on one thread at a time.
class Attachment {
 public:
  Attachment() = default;  // no bytes
  explicit Attachment(ByteVector bytes) {
    auto owned = std::make_shared<const ByteVector>(std::move(bytes));
    bytes_ = *owned;
    keeper_ = std::move(owned);
  }
  // `keeper` owns the bytes. It is destroyed, on any thread, when nothing needs the bytes any more.
  Attachment(Bytes bytes, std::shared_ptr<const void> keeper) : bytes_(bytes), keeper_(std::move(keeper)) {}
  // Returns an attachment of a range of registered memory. The memory needs Rights::kRemoteRead to
  // be sent. kInvalidArgument if the range is not inside the memory.
  static Result<Attachment> of(std::shared_ptr<const Registered> memory, std::uint64_t offset,
                               std::uint64_t length_bytes);
  // Returns an attachment of bytes that came from a peer. `block`: the registered block that the
  // bytes lie in, or null if they lie in memory of make_received().
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

  // Returns an attachment of a part of these bytes, which shares the memory. kInvalidArgument if
  // the range is not inside the bytes.
  [[nodiscard]] Result<Attachment> part(std::uint64_t offset, std::uint64_t length_bytes) const;
  // Gives the pages of large received memory back to the operating system. Afterwards the memory
  // reads as zeros, or stays unchanged if a device pins the pages. Does nothing if other copies of
  // the attachment exist, if the bytes are to be sent, or if they are in a Destination.
  void discard() const;

  // Returns the type and shape of the array; null if the attachment is not an array.
  [[nodiscard]] const ArrayType* array() const { return array_.get(); }
  void set_array(ArrayType type) { array_ = std::make_shared<const ArrayType>(std::move(type)); }

  // Returns the registered memory that the bytes lie in; null if the memory is not registered.
  [[nodiscard]] const Registered* memory() const { return memory_; }
  // Returns false for a part of a user's region: that memory exists independently of the
  // attachment.
  [[nodiscard]] bool owns_memory() const { return memory_ == nullptr || received_; }

 private:
  Bytes bytes_;
  std::shared_ptr<const void> keeper_;
  const Registered* memory_ = nullptr;  // owned by keeper_
  bool received_ = false;               // made by received()
  std::shared_ptr<const ArrayType> array_;
};
using Attachments = std::vector<Attachment>;

// Memory of the caller that an attachment of the reply is read into, instead of new memory. Nothing
// is written to it after the call has ended. The received attachment is a view of the memory's
// beginning.
class Destination {
 public:
  // `keeper` owns the bytes. It is destroyed, on any thread, when neither the call nor the received
  // attachment needs the bytes.
  explicit Destination(MutableBytes bytes, std::shared_ptr<const void> keeper = nullptr)
      : bytes_(bytes), keeper_(std::move(keeper)) {}
  static Result<Destination> of(std::shared_ptr<const Registered> memory, std::uint64_t offset,
                                std::uint64_t length_bytes);

  [[nodiscard]] MutableBytes bytes() const { return bytes_; }
  [[nodiscard]] const Registered* memory() const { return memory_; }
  // Returns the received attachment: the first `length` bytes of this memory.
  [[nodiscard]] Attachment filled(std::size_t length) const { return {Bytes(bytes_.first(length)), keeper_}; }

 private:
  MutableBytes bytes_;
  std::shared_ptr<const void> keeper_;
  const Registered* memory_ = nullptr;
};
using Destinations = std::vector<Destination>;

// A body and its attachments. A request may also name destinations for the attachments of its
// reply, in their order. Attachments without a destination get new memory.
struct AttachedBody {
  ByteVector body;
  Attachments attachments{};
  Destinations into{};
  // True for a request to a method that takes plain bytes, without attachments and destinations.
  bool raw = false;
};

}  // namespace slime::rpc
