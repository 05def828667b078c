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
class MemoryRegion;
}  // namespace slime::transport

namespace slime::rpc {

// Registered memory that attachments lie in, or that is to receive them. Thread: the loop, and whoever makes
// it.
class Registered {
 public:
  Registered() = default;
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;
  virtual ~Registered() = default;
  [[nodiscard]] virtual MutableBytes bytes() const = 0;
  // Its registration with this device, there as long as this object; or why there is none.
  [[nodiscard]] virtual Result<const transport::MemoryRegion*> on(const transport::Device& device) const = 0;
  // Whether the peer of that endpoint (Endpoint::id) may be told the registration. Else the bytes are
  // registered for one call.
  [[nodiscard]] virtual bool shown_to(std::uint64_t endpoint) const {
    static_cast<void>(endpoint);
    return true;
  }
  // Gives its pages back, so that it reads as zeros; false: it is not for that.
  virtual bool discard() const { return false; }
};

// What an attachment is an array of, for those who know arrays: the dtype as its sender spells it ("<f4"),
// and the shape. Told, never looked at on the way.
struct ArrayType {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  bool operator==(const ArrayType&) const = default;
};

// Bytes that travel beside the msgpack of a request or a reply, as an argument, a result, or inside of one:
// lent where they lie, or inline where they are few. Nobody copies them: the receiver reads them straight
// into memory that is its own, or that it named (Destination).
//
// A value; copies share the memory, which is held until the last of them is gone or was release()d. Of what
// is sent it is held, besides, and must not change, until the peer has read it or its connection is over,
// which may be after the call has ended: on that ground bytes are given together with what keeps them alive.
// Thread: any, one object from one at a time.
class Attachment {
 public:
  Attachment() = default;  // of no bytes
  explicit Attachment(ByteVector bytes) {
    auto owned = std::make_shared<const ByteVector>(std::move(bytes));
    bytes_ = *owned;
    keeper_ = std::move(owned);
  }
  // `keeper` goes when nobody needs the bytes any more, on any thread.
  Attachment(Bytes bytes, std::shared_ptr<const void> keeper) : bytes_(bytes), keeper_(std::move(keeper)) {}
  // A range of registered memory, which needs Rights::kRemoteRead to be sent. kInvalidArgument for one that
  // is not inside.
  static Result<Attachment> of(std::shared_ptr<const Registered> memory, std::uint64_t offset,
                               std::uint64_t length_bytes);
  // Of memory that was made for what comes: a block, or what make_received() made.
  static Attachment received(Bytes bytes, std::shared_ptr<const void> keeper, const Registered* block) {
    Attachment out(bytes, std::move(keeper));
    out.memory_ = block;
    out.received_ = true;
    return out;
  }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  // Gives the memory up now.
  void release() { *this = Attachment(); }

  // A range of it, which shares the memory. kInvalidArgument for one that is not inside.
  [[nodiscard]] Result<Attachment> part(std::uint64_t offset, std::uint64_t length_bytes) const;
  // Gives the pages of large memory that was received back now, while it is still there: it reads as zeros
  // from then on, or, where a device pins them, stays what it was. Nothing happens while others have it,
  // which the peer may that it is lent to, and to memory that a call named.
  void discard() const;

  // Null where it is only bytes.
  [[nodiscard]] const ArrayType* array() const { return array_.get(); }
  void set_array(ArrayType type) { array_ = std::make_shared<const ArrayType>(std::move(type)); }

  // Where the memory is registered; null: nowhere that is known.
  [[nodiscard]] const Registered* memory() const { return memory_; }
  // False for a range of a user's region, whose memory exists without the attachment.
  [[nodiscard]] bool owns_memory() const { return memory_ == nullptr || received_; }

 private:
  Bytes bytes_;
  std::shared_ptr<const void> keeper_;
  const Registered* memory_ = nullptr;  // kept by keeper_
  bool received_ = false;               // into memory that was made for it
  std::shared_ptr<const ArrayType> array_;
};
using Attachments = std::vector<Attachment>;

// Memory of the caller's that an attachment of the reply is to be read into, instead of into memory that is
// made for it. It is written only while its call is under way: not any more once the call has ended, however
// it ended. The attachment that is handed out then is a view of the beginning of it.
class Destination {
 public:
  // `keeper` goes when neither the call nor the attachment needs the bytes any more, on any thread.
  explicit Destination(MutableBytes bytes, std::shared_ptr<const void> keeper = nullptr)
      : bytes_(bytes), keeper_(std::move(keeper)) {}
  static Result<Destination> of(std::shared_ptr<const Registered> memory, std::uint64_t offset,
                                std::uint64_t length_bytes);

  [[nodiscard]] MutableBytes bytes() const { return bytes_; }
  [[nodiscard]] const Registered* memory() const { return memory_; }
  // What was read into it.
  [[nodiscard]] Attachment filled(std::size_t length) const { return {Bytes(bytes_.first(length)), keeper_}; }

 private:
  MutableBytes bytes_;
  std::shared_ptr<const void> keeper_;
  const Registered* memory_ = nullptr;
};
using Destinations = std::vector<Destination>;

// A body and what travels beside it; of a request also where the attachments of its reply go, in their order:
// the others go into memory of their own.
struct AttachedBody {
  ByteVector body;
  Attachments attachments{};
  Destinations into{};
  // Of a request: the body is bytes for a method that takes such, and no msgpack. Nothing is beside it.
  bool raw = false;
};

}  // namespace slime::rpc
