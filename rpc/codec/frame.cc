#include "rpc/codec/frame.h"

#include <array>
#include <cstring>
#include <string>

#include "base/str.h"

namespace slime::rpc::wire {
namespace {

enum Field : unsigned {
  kHasCode = 1,          // may have an error code; then the frame has a text and no body
  kHasMethod = 2,        // may have a method id
  kHasId = 4,            // must have an id
  kHasValue = 8,         // may have a value
  kHasName = 16,         // the text is a name
  kHasBody = 32,         // may have a body of any length
  kMayRendezvous = 64,   // the body may be an offer
  kMayOpenStream = 128,  // may have kFlagStream
  kOfStream = 256,       // may have kFlagFromHandler
  kNoType = 512,
  kMayExtend = 1024  // may have metadata or times
};

// The fields that a frame of each type has; all other fields must be zero.
constexpr std::array<std::uint16_t, 18> kFields{
    kNoType,
    /* kHello */ kHasBody,
    /* kRequest */ kHasMethod | kHasId | kHasValue | kHasBody | kMayRendezvous | kMayOpenStream | kMayExtend,
    /* kReply */ kHasCode | kHasMethod | kHasId | kHasBody | kMayRendezvous | kMayExtend,
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
    /* kData */ kHasId | kHasBody | kMayRendezvous | kOfStream,
    /* kCredit */ kHasId | kHasValue | kOfStream,
    /* kEnd */ kHasId | kOfStream,
    /* kProof */ kHasCode | kHasBody,
};

// The flags that a frame of each type may have: [0] without an error code, [1] with one.
constexpr auto kFlags = [] {
  std::array<std::array<std::uint8_t, 2>, kFields.size()> out{};
  for (std::size_t type = 1; type < kFields.size(); ++type) {
    for (const bool failed : {false, true}) {
      unsigned flags = 0;
      if ((kFields[type] & kMayExtend) != 0) flags |= kFlagMetadata;  // or kFlagTiming
      if ((kFields[type] & kMayRendezvous) != 0 && !failed) flags |= kFlagRendezvous;
      if ((kFields[type] & kHasCode) != 0 && failed) flags |= kFlagMaybeExecuted;
      if ((kFields[type] & kMayOpenStream) != 0) flags |= kFlagStream;
      if ((kFields[type] & kOfStream) != 0) flags |= kFlagFromHandler;
      const bool may_attach = type == static_cast<std::size_t>(FrameType::kRequest) ||
                              type == static_cast<std::size_t>(FrameType::kReply) ||
                              type == static_cast<std::size_t>(FrameType::kUserMessage);
      if (may_attach && !failed) flags |= kFlagAttachments;
      const FrameType one_way = failed ? FrameType::kReply : FrameType::kRequest;
      if (type == static_cast<std::size_t>(one_way)) flags |= kFlagOneWay;
      if (type == static_cast<std::size_t>(FrameType::kRequest)) flags |= kFlagRaw;
      out[type][failed ? 1 : 0] = static_cast<std::uint8_t>(flags);
    }
  }
  return out;
}();

Status corrupt(const FrameHeader& header, std::string_view what) {
  return Status(Code::kCorrupt, str("frame type ", static_cast<int>(header.type), ": ", what));
}

Status parse_names(Frame& frame, ByteReader& in) {
  const auto name = [&in] { return as_text(in.take(in.read<std::uint16_t>())); };
  frame.service = name();
  frame.method = name();
  const auto good = [](std::string_view text) { return !text.empty() && text.size() <= limits::kNameBytes; };
  if (in.failed() || !good(frame.service) || !good(frame.method))
    return corrupt(frame.header, "the names of the method");
  return {};
}

// Parses the text of a request: the two names if the method has no number, then optional metadata
// and an optional signature.
[[gnu::noinline]] Status parse_request_text(Frame& frame) {
  ByteReader in(frame.text);
  if (frame.header.method == 0) {
    if ((frame.header.flags & kFlagOneWay) != 0) return corrupt(frame.header, "one-way, by name");
    SLIME_TRY(parse_names(frame, in));
  }
  if ((frame.header.flags & kFlagMetadata) != 0) SLIME_TRY(decode_extras(in, nullptr));
  if (frame.header.method == 0 && in.remaining() == sizeof(std::uint64_t) && in.read<std::uint64_t>() == 0)
    return corrupt(frame.header, "a signature of nothing");
  if (!in.complete()) return corrupt(frame.header, "more text than there should be");
  return {};
}

// Checks the text of a reply with kFlagTiming: the server's times, then the text of an error, if
// any.
Status check_timed_text(const Frame& frame) {
  const std::size_t most = sizeof(ServerTimes) + (frame.header.code != 0 ? limits::kErrorTextBytes : 0);
  if (frame.text.size() < sizeof(ServerTimes) || frame.text.size() > most)
    return corrupt(frame.header, "a text of a wrong length");
  return {};
}

// Checks the text of a frame other than a request: times, an error text, or both.
[[gnu::noinline]] Status check_rare_text(const Frame& frame) {
  if ((frame.header.flags & kFlagTiming) != 0) return check_timed_text(frame);
  if (frame.header.code == 0) return corrupt(frame.header, "an unexpected text");
  if (frame.text.size() > limits::kErrorTextBytes)
    return corrupt(frame.header, "an error text that is too long");
  return {};
}

Status check_text(const Frame& frame, unsigned fields) {
  const std::size_t size = frame.text.size();
  if ((fields & kHasName) != 0) {
    if (size == 0 || size > limits::kNameBytes) return corrupt(frame.header, "a name of a wrong length");
    return {};
  }
  const bool bare = (size | frame.header.code | (frame.header.flags & kFlagTiming)) == 0;
  return bare ? Status() : check_rare_text(frame);
}

// Returns whether flags exclude each other.
bool contradict(std::uint8_t flags) {
  const auto both = [flags](unsigned pair) { return (flags & pair) == pair; };
  return both(kFlagOneWay | kFlagStream) || both(kFlagRaw | kFlagStream) || both(kFlagRaw | kFlagAttachments);
}

// Most frames have no such flag.
[[gnu::noinline]] Status check_marks(const Frame& frame, unsigned fields) {
  const FrameHeader& h = frame.header;
  const unsigned flags = kFlags[static_cast<std::size_t>(h.type)][h.code != 0 ? 1 : 0];
  if ((h.flags & ~flags) != 0 || contradict(h.flags)) return corrupt(h, "unexpected flags");
  if (h.reserved != 0) return corrupt(h, "a reserved field is not zero");
  if (h.code != 0 && (fields & kHasCode) == 0) return corrupt(h, "an unexpected code");
  if (h.code != 0 && !frame.body.empty()) return corrupt(h, "an unexpected body");
  return {};
}

Status check_fields(const Frame& frame, unsigned fields) {
  const FrameHeader& h = frame.header;
  if ((h.flags | h.code | h.reserved) != 0) SLIME_TRY(check_marks(frame, fields));
  if (h.method != 0 && (fields & kHasMethod) == 0) return corrupt(h, "an unexpected method");
  if (h.value != 0 && (fields & kHasValue) == 0) return corrupt(h, "an unexpected value");
  const bool has_id = Handle::unpack(h.id).generation != 0;
  if ((fields & kHasId) != 0 ? !has_id : h.id != 0) return corrupt(h, "a wrong id");
  if (!frame.body.empty() && (fields & kHasBody) == 0) return corrupt(h, "an unexpected body");
  return {};
}

}  // namespace

Status decode_frame(Bytes message, Frame& frame) {
  if (message.size() < sizeof frame.header)
    return Status(Code::kCorrupt, str("a frame of ", message.size(), " bytes"));
  // Copies the header before checking it: the peer may still write to the memory of the message.
  std::memcpy(&frame.header, message.data(), sizeof frame.header);
  const FrameHeader& header = frame.header;
  const std::size_t rest = message.size() - sizeof header;
  if (std::uint64_t{header.text_bytes} + header.body_bytes != rest)
    return corrupt(header, "lengths that do not add up");
  frame.text = message.subspan(sizeof header, header.text_bytes);
  frame.body = message.subspan(sizeof header + header.text_bytes);
  const auto type = static_cast<std::size_t>(header.type);
  const unsigned fields = type < kFields.size() ? kFields[type] : static_cast<unsigned>(kNoType);
  if (fields == kNoType) return corrupt(header, "unknown");
  SLIME_TRY(check_fields(frame, fields));
  if (header.type != FrameType::kRequest) return check_text(frame, fields);
  const bool plain = header.method != 0 && frame.text.empty() && (header.flags & kFlagMetadata) == 0;
  return plain ? Status() : parse_request_text(frame);
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

Extras extras_of(const Frame& frame) {
  Extras out;
  ByteReader in(frame.text);
  if (frame.header.method == 0)
    in.take(2 * sizeof(std::uint16_t) + frame.service.size() + frame.method.size());
  decode_extras(in, &out).ignore();  // decode_frame() has checked the bytes
  return out;
}

// Returns the hash of the signature, which follows the names and the metadata in frame.text; 0 if
// there is none. Does not check frame.text, because decode_frame() has done so.
std::uint64_t signature_of(const Frame& frame) {
  if (frame.header.type != FrameType::kRequest || frame.header.method != 0) return 0;
  ByteReader in(frame.text);
  in.take(2 * sizeof(std::uint16_t) + frame.service.size() + frame.method.size());
  if ((frame.header.flags & kFlagMetadata) != 0) in.take(in.read<std::uint16_t>());
  return in.remaining() == sizeof(std::uint64_t) ? in.read<std::uint64_t>() : 0;
}

ServerTimes times_of(const Frame& frame) { return ByteReader(frame.text).read<ServerTimes>(); }

std::string_view error_text_of(const Frame& frame) {
  const bool timed = frame.header.type == FrameType::kReply && (frame.header.flags & kFlagTiming) != 0;
  return as_text(frame.text.subspan(timed ? sizeof(ServerTimes) : 0));
}

Status error_of(const Frame& frame) {
  Status status(error_code_from_wire(frame.header.code), std::string(error_text_of(frame)));
  return std::move(status).with_maybe_executed((frame.header.flags & kFlagMaybeExecuted) != 0);
}

ByteVector encode_names(std::string_view service, std::string_view method) {
  ByteVector bytes;
  ByteWriter out(bytes);
  out.text(service);
  out.text(method);
  return bytes;
}

}  // namespace slime::rpc::wire
