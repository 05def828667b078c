#include "rpc/frame.h"

#include <array>
#include <cstring>

#include "base/str.h"

namespace slime::rpc::wire {
namespace {

enum Field : unsigned {
  kHasCode = 1,        // may have a code; then it has a text and no body
  kHasMethod = 2,      // may have a method id
  kHasId = 4,          // must have an id
  kHasValue = 8,       // may have a value
  kHasName = 16,       // the text is a name
  kHasBody = 32,       // may have a body of any length
  kMayRendezvous = 64  // the body may be an offer
};

// The fields of each type; everything else must be zero.
constexpr unsigned kNoType = 128;
constexpr std::array<std::uint8_t, 14> kFields{
    kNoType,
    /* kHello */ kHasBody,
    /* kRequest */ kHasMethod | kHasId | kHasValue | kHasBody | kMayRendezvous,
    /* kReply */ kHasCode | kHasMethod | kHasId | kHasBody | kMayRendezvous,
    /* kUserMessage */ kHasId | kHasValue | kHasBody | kMayRendezvous,
    /* kUserAck */ kHasCode | kHasId,
    /* kRelease */ kHasId,
    /* kRegionLookup */ kHasId | kHasName,
    /* kRegionReply */ kHasCode | kHasId | kHasBody,
    /* kRegionRevoked */ kHasName,
    /* kPing */ kHasId,
    /* kPong */ kHasId,
    /* kCancel */ kHasId,
    /* kClosing */ 0,
};

Status corrupt(const FrameHeader& header, std::string_view what) {
  return Status(Code::kCorrupt, str("frame type ", static_cast<int>(header.type), ": ", what));
}

// A request that names its method has two texts; others have none.
Status parse_names(Frame& frame) {
  if (frame.header.method != 0) {
    return frame.text.empty() ? Status() : corrupt(frame.header, "a method id and names");
  }
  ByteReader in(frame.text);
  const auto name = [&in] { return as_text(in.take(in.read<std::uint16_t>())); };
  frame.service = name();
  frame.method = name();
  const auto good = [](std::string_view text) { return !text.empty() && text.size() <= limits::kNameBytes; };
  if (!in.complete() || !good(frame.service) || !good(frame.method))
    return corrupt(frame.header, "the names of the method");
  return {};
}

Status check_text(const Frame& frame, unsigned fields) {
  const std::size_t size = frame.text.size();
  if ((fields & kHasName) != 0) {
    if (size == 0 || size > limits::kNameBytes) return corrupt(frame.header, "a name of a wrong length");
  } else if (frame.header.code != 0) {
    if (size > limits::kErrorTextBytes) return corrupt(frame.header, "an error text that is too long");
  } else if (size != 0) {
    return corrupt(frame.header, "an unexpected text");
  }
  return {};
}

// Looked at only where there are flags that nothing else explains.
bool attaches(const FrameHeader& h, unsigned others) {
  return (h.flags & ~(others | kFlagAttachments)) == 0 && h.code == 0 &&
         (h.type == FrameType::kRequest || h.type == FrameType::kReply);
}

Status check_fields(const Frame& frame, unsigned fields) {
  const FrameHeader& h = frame.header;
  unsigned flags = 0;
  if ((fields & kMayRendezvous) != 0 && h.code == 0) flags |= kFlagRendezvous;
  if ((fields & kHasCode) != 0 && h.code != 0) flags |= kFlagMaybeExecuted;
  if ((h.flags & ~flags) != 0 && !attaches(h, flags)) return corrupt(h, "unexpected flags");
  if (h.reserved != 0) return corrupt(h, "a reserved field is not zero");
  if (h.code != 0 && (fields & kHasCode) == 0) return corrupt(h, "an unexpected code");
  if (h.method != 0 && (fields & kHasMethod) == 0) return corrupt(h, "an unexpected method");
  if (h.value != 0 && (fields & kHasValue) == 0) return corrupt(h, "an unexpected value");
  const bool has_id = Handle::unpack(h.id).generation != 0;
  if ((fields & kHasId) != 0 ? !has_id : h.id != 0) return corrupt(h, "a wrong id");
  const bool may_have_body = (fields & kHasBody) != 0 && h.code == 0;
  if (!frame.body.empty() && !may_have_body) return corrupt(h, "an unexpected body");
  return {};
}

}  // namespace

Status decode_frame(Bytes message, Frame& frame) {
  if (message.size() < sizeof frame.header)
    return Status(Code::kCorrupt, str("a frame of ", message.size(), " bytes"));
  // Copied once: the peer may still write to where the message lies.
  std::memcpy(&frame.header, message.data(), sizeof frame.header);
  const FrameHeader& header = frame.header;
  const std::size_t rest = message.size() - sizeof header;
  if (std::uint64_t{header.text_bytes} + header.body_bytes != rest)
    return corrupt(header, "lengths that do not add up");
  frame.text = message.subspan(sizeof header, header.text_bytes);
  frame.body = message.subspan(sizeof header + header.text_bytes);
  const auto type = static_cast<std::size_t>(header.type);
  const unsigned fields = type < kFields.size() ? kFields[type] : kNoType;
  if (fields == kNoType) return corrupt(header, "unknown");
  SLIME_TRY(check_fields(frame, fields));
  return header.type == FrameType::kRequest ? parse_names(frame) : check_text(frame, fields);
}

Result<Hello> decode_hello(Bytes body) {
  ByteReader in(body);
  const auto hello = in.read<Hello>();
  if (!in.complete() || hello.max_requests == 0) return Status(Code::kCorrupt, "a malformed hello");
  return hello;
}

ByteVector Offer::encode() const {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.write(lease.packed());
  out.write(length_bytes);
  region.encode(out);
  return bytes;
}

Result<Offer> decode_offer(Bytes body) {
  ByteReader in(body);
  Offer offer;
  offer.lease = Handle::unpack(in.read<std::uint64_t>());
  offer.length_bytes = in.read<std::uint64_t>();
  const auto region = transport::RegionDescriptor::decode(in);
  if (!region || !in.complete()) return Status(Code::kCorrupt, "a malformed offer of memory");
  offer.region = *region;
  if (offer.lease.generation == 0 || offer.length_bytes == 0 || offer.length_bytes > region->length_bytes ||
      !transport::allows(region->rights, transport::Rights::kRemoteRead)) {
    return Status(Code::kCorrupt, "an offer of memory that cannot be read");
  }
  return offer;
}

Result<transport::RegionDescriptor> decode_region(Bytes body) {
  ByteReader in(body);
  const auto region = transport::RegionDescriptor::decode(in);
  if (!region || !in.complete()) return Status(Code::kCorrupt, "a malformed region descriptor");
  return *region;
}

ByteVector encode_names(std::string_view service, std::string_view method) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.text(service);
  out.text(method);
  return bytes;
}

}  // namespace slime::rpc::wire
