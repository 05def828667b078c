#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/result.h"
#include "rpc/limits.h"
#include "rpc/metadata.h"
#include "transport/memory.h"

// The byte format of the mailbox protocol: docs/wire-format.md, section "RPC". Each message of the
// endpoint is one frame: a FrameHeader, then text_bytes of text, then body_bytes of body.
namespace slime::rpc::wire {

// version 1 had eight 64-bit keys in a region descriptor
inline constexpr std::uint32_t kProtocolMajor = 2;
// One bit for each feature. Frames and flags of a feature are sent only to a peer that has the
// feature.
inline constexpr std::uint64_t kFeatureCancel = 1;       // kCancel
inline constexpr std::uint64_t kFeatureOneWay = 2;       // kFlagOneWay
inline constexpr std::uint64_t kFeatureSignatures = 4;   // a hash behind the names: rpc/signature.h
inline constexpr std::uint64_t kFeatureAttachments = 8;  // kFlagAttachments
inline constexpr std::uint64_t kFeatureStreams = 16;     // kFlagStream, kData, kCredit, kEnd
inline constexpr std::uint64_t kFeatureMetadata = 32;    // kFlagMetadata and kFlagTiming
inline constexpr std::uint64_t kFeatureRaw = 64;         // kFlagRaw
// A sender with this feature never uses its last credits for notifications, but keeps them for its
// messages.
inline constexpr std::uint64_t kFeatureMessageCredits = 128;
inline constexpr std::uint64_t kFeatureProofs = 256;  // kProof
// Takes kRequest and kReply in long messages (transport/endpoint.h).
inline constexpr std::uint64_t kFeatureLongMessages = 512;
// Takes kUserMessage with kFlagAttachments, and kCancel of one.
inline constexpr std::uint64_t kFeatureLentMessages = 1024;
// kRequiredFeatures: features that the peer must have. kOptionalFeatures: all features of this
// build.
inline constexpr std::uint64_t kRequiredFeatures = 0;
inline constexpr std::uint64_t kOptionalFeatures = kFeatureCancel | kFeatureOneWay | kFeatureSignatures |
                                                   kFeatureAttachments | kFeatureStreams | kFeatureMetadata |
                                                   kFeatureRaw | kFeatureMessageCredits | kFeatureProofs |
                                                   kFeatureLongMessages | kFeatureLentMessages;

// Numbers of frame types. Only add types at the end: a number never changes its meaning.
enum class FrameType : std::uint8_t {
  kHello = 1,          // the first frame of each side, once
  kRequest = 2,        // a call
  kReply = 3,          // its answer
  kUserMessage = 4,    // a message to the inbox
  kUserAck = 5,        // acknowledges a kUserMessage: the message is in the inbox, or was refused
  kRelease = 6,        // the receiver of an offer has read the offered memory, or will not read it
  kRegionLookup = 7,   // asks for a region by name
  kRegionReply = 8,    // the region's descriptor, or an error
  kRegionRevoked = 9,  // a described region is gone
  kPing = 10,
  kPong = 11,
  // the caller has cancelled the request, or the sender the message; it still has to be answered
  kCancel = 12,
  kClosing = 13,  // the sender makes no more requests
  kData = 14,     // one message of a stream
  kCredit = 15,   // total number of messages of a stream that the receiver accepts
  kEnd = 16,      // the sender writes no more messages to the stream
  // Without a code: proves that the sender has a newer key. With a code: the sender ends the
  // connection for that reason.
  kProof = 17,
};

inline constexpr std::uint8_t kFlagRendezvous = 1;  // the body is an Offer
// of an error: the handler may have run before it
inline constexpr std::uint8_t kFlagMaybeExecuted = 2;
// In a request: the request is one-way. It names its method by number, and is answered only if it
// fails. In a reply: the reply answers a one-way request.
inline constexpr std::uint8_t kFlagOneWay = 16;
inline constexpr std::uint8_t kFlagMetadata = 32;  // kRequest: Extras follow the names
inline constexpr std::uint8_t kFlagTiming = 32;    // kReply: ServerTimes precede the text
inline constexpr std::uint8_t kFlagStream = 8;     // kRequest: opens a stream
// of kData, kCredit and kEnd: the handler's side of the stream is the sender
inline constexpr std::uint8_t kFlagFromHandler = 64;
// The body begins with a table. In a kUserMessage: the table is the message, which is answered once
// a receive has read it.
inline constexpr std::uint8_t kFlagAttachments = 4;
inline constexpr std::uint8_t kFlagRaw = 128;  // kRequest: bodies are not msgpack

struct FrameHeader {
  FrameType type{};
  std::uint8_t flags = 0;
  // of kReply, kUserAck, kRegionReply and kProof: an error Code, 0: OK; in other frames 0
  std::uint8_t code = 0;
  std::uint8_t reserved = 0;
  // kRequest: the method's number; 0: the text has the method's names. kReply: the number to use in
  // later requests; 0: none.
  std::uint32_t method = 0;
  std::uint64_t id = 0;  // id of the request: a packed Handle of the side that made the request
  // kRequest: nanoseconds to the deadline; kUserMessage: tag; kCredit: number of messages
  std::uint64_t value = 0;
  std::uint32_t text_bytes = 0;
  std::uint32_t body_bytes = 0;
};
static_assert(sizeof(FrameHeader) == 32 && std::is_trivially_copyable_v<FrameHeader>);
static_assert(offsetof(FrameHeader, flags) == 1 && offsetof(FrameHeader, code) == 2);
static_assert(offsetof(FrameHeader, method) == 4 && offsetof(FrameHeader, id) == 8);
static_assert(offsetof(FrameHeader, value) == 16 && offsetof(FrameHeader, text_bytes) == 24);
static_assert(offsetof(FrameHeader, body_bytes) == 28);

// `value` of a request without a deadline.
inline constexpr std::uint64_t kNoDeadline = ~std::uint64_t{0};

// The body of kHello.
struct Hello {
  std::uint32_t major = kProtocolMajor;
  // Most unanswered requests, messages, look-ups and pings that the sender of the hello accepts.
  std::uint32_t max_requests = 0;
  std::uint64_t required_features = kRequiredFeatures;  // the peer must know them all
  std::uint64_t optional_features = kOptionalFeatures;
  std::uint64_t max_payload_bytes = 0;  // larger bodies are refused
};
static_assert(sizeof(Hello) == 32 && std::is_trivially_copyable_v<Hello>);

// The body of a frame with kFlagRendezvous: memory of the sender, which the receiver reads and then
// releases.
struct Offer {
  Handle lease;  // what kRelease names
  std::uint64_t length_bytes = 0;
  transport::RegionDescriptor region;

  [[nodiscard]] std::size_t encoded_bytes() const { return 16 + region.encoded_bytes(); }
  [[nodiscard]] ByteVector encode() const;
};

// A decoded frame. Its members are views into the peer's message.
struct Frame {
  FrameHeader header;
  Bytes text;
  Bytes body;
  std::string_view service;  // of a request that names its method
  std::string_view method;
};

// Decodes a frame. Returns kCorrupt if the bytes are not exactly a frame: an unknown type, a field
// that the type must not have, wrong lengths, an id of generation 0.
Status decode_frame(Bytes message, Frame& out);
inline Result<Frame> decode_frame(Bytes message) {
  Frame frame;
  SLIME_TRY(decode_frame(message, frame));
  return frame;
}
Result<Hello> decode_hello(Bytes body);
Result<Offer> decode_offer(Bytes body);
Result<transport::RegionDescriptor> decode_region(Bytes body);

// Returns the metadata and flags of a decoded request with kFlagMetadata.
Extras extras_of(const Frame& frame);
// Returns the hash of the signature that the request's caller requires; 0: any signature.
std::uint64_t signature_of(const Frame& frame);
// Returns the server's times of a decoded reply with kFlagTiming.
ServerTimes times_of(const Frame& frame);
// Returns the error text of an answer whose code is not 0.
std::string_view error_text_of(const Frame& frame);
// Returns the error of a failed answer.
Status error_of(const Frame& frame);

// Encodes the names of a method as the text of a request.
ByteVector encode_names(std::string_view service, std::string_view method);

}  // namespace slime::rpc::wire
