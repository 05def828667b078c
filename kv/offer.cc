#include "kv/offer.h"

#include <algorithm>
#include <set>

#include "base/limits.h"
#include "base/str.h"
#include "rpc/codec.h"

namespace slime::kv {
namespace {

constexpr std::uint32_t kOfferFormat = 1;

struct PartFields {
  std::string name;
  std::uint64_t bytes = 0;
  MSGPACK_DEFINE(name, bytes)
};

// Maps, so that later versions can add fields.
struct OfferFields {
  std::uint32_t format = 0;
  std::uint64_t source = 0;
  std::uint64_t version = 0;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t patience_ms = 0;
  std::vector<PartFields> parts;
  MSGPACK_DEFINE_MAP(format, source, version, chunk_bytes, patience_ms, parts)
};

struct PlaceFields {
  std::uint64_t ticket = 0;
  std::uint64_t parent = 0;
  std::string address;
  MSGPACK_DEFINE_MAP(ticket, parent, address)
};

Status wrong_offer(const std::string& why) { return Status(Code::kInvalidArgument, "broadcast: " + why); }

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

Status check_parts(const std::vector<Part>& parts) {
  if (parts.empty() || parts.size() > limits::kParts)
    return wrong_offer(str(parts.size(), " regions; must be from 1 to ", limits::kParts));
  std::set<std::string_view> names;
  std::uint64_t total = 0;
  for (const Part& part : parts) {
    if (!may_be_part_name(part.name))
      return wrong_offer(str("region ", names.size(), " has no name of 1 to ", limits::kPartName,
                             " printable characters without spaces"));
    if (!names.insert(part.name).second) return wrong_offer(str("two regions have the name ", part.name));
    if (part.bytes == 0 || part.bytes > limits::kBroadcastBytes - total)
      return wrong_offer(
          str("region ", part.name, " has ", part.bytes, " bytes, which are none or too many"));
    total += part.bytes;
  }
  return {};
}

Status check_same_parts(const std::vector<Part>& here, const std::vector<Part>& offered) {
  if (here.size() != offered.size())
    return Status(Code::kInvalidArgument,
                  str("this reader has ", here.size(), " regions, the owner offers ", offered.size()));
  for (std::size_t i = 0; i < here.size(); ++i)
    if (!(here[i] == offered[i]))
      return Status(Code::kInvalidArgument,
                    str("region ", i, " of this reader is ", here[i].name, " with ", here[i].bytes,
                        " bytes; the owner offers ", offered[i].name, " with ", offered[i].bytes));
  return {};
}

Status Offer::validate() const {
  SLIME_TRY(check_parts(parts));
  if (version == 0) return wrong_offer("version is 0, must be from 1 on");
  if (chunk_bytes < limits::kChunkMin || chunk_bytes > limits::kChunkMax)
    return wrong_offer(
        str("chunk_bytes is ", chunk_bytes, ", must be from ", limits::kChunkMin, " to ", limits::kChunkMax));
  if (patience < limits::kPatienceMin || patience > limits::kPatienceMax)
    return wrong_offer("patience must be from 50 ms to an hour");
  if (chunks() > limits::kChunks)
    return wrong_offer(str(total_bytes(), " bytes are more than ", limits::kChunks, " chunks of ",
                           chunk_bytes, " bytes: give larger chunk_bytes"));
  return {};
}

std::uint64_t Offer::total_bytes() const {
  std::uint64_t out = 0;
  for (const Part& part : parts) out += part.bytes;
  return out;
}

std::uint64_t Offer::chunks() const { return (total_bytes() + chunk_bytes - 1) / chunk_bytes; }

ByteVector Offer::encode() const {
  OfferFields fields{
      kOfferFormat,
      source,
      version,
      chunk_bytes,
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()),
      {}};
  fields.parts.reserve(parts.size());
  for (const Part& part : parts) fields.parts.push_back({part.name, part.bytes});
  return rpc::encode_value(fields);
}

Result<Offer> Offer::decode(Bytes bytes) {
  if (bytes.size() > limits::kOfferBytes) return wrong_offer(str(bytes.size(), " bytes are too many"));
  auto fields = rpc::decode_value<OfferFields>(bytes);
  if (!fields) return fields.status().with_context("broadcast");
  if (fields->format != kOfferFormat)
    return wrong_offer(str("format ", fields->format, ", this program has ", kOfferFormat));
  constexpr auto kMost = std::chrono::duration_cast<std::chrono::milliseconds>(limits::kPatienceMax).count();
  if (fields->patience_ms > static_cast<std::uint64_t>(kMost)) return wrong_offer("patience is too long");
  Offer out{.source = fields->source,
            .version = fields->version,
            .chunk_bytes = fields->chunk_bytes,
            .patience = std::chrono::milliseconds(fields->patience_ms),
            .parts = {}};
  out.parts.reserve(fields->parts.size());
  for (PartFields& part : fields->parts) out.parts.push_back({std::move(part.name), part.bytes});
  SLIME_TRY(out.validate());
  return out;
}

ChunkMap::ChunkMap(const Offer& offer) : each_(offer.chunk_bytes), chunks_(offer.chunks()) {
  starts_.reserve(offer.parts.size() + 1);
  starts_.push_back(0);
  for (const Part& part : offer.parts) starts_.push_back(starts_.back() + part.bytes);
}

std::uint64_t ChunkMap::chunk_bytes(std::uint64_t chunk) const {
  return std::min(each_, starts_.back() - chunk * each_);
}

std::vector<PartRange> ChunkMap::ranges(std::uint64_t chunk) const {
  std::vector<PartRange> out;
  std::uint64_t at = chunk * each_;
  const std::uint64_t end = at + chunk_bytes(chunk);
  auto part =
      static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) - starts_.begin() - 1);
  for (; at < end; ++part) {
    const std::uint64_t bytes = std::min(end, starts_[part + 1]) - at;
    out.push_back({part, at - starts_[part], bytes});
    at += bytes;
  }
  return out;
}

bool may_be_part_name(std::string_view name) {
  return !name.empty() && name.size() <= limits::kPartName && printable(name);
}

bool may_be_address(std::string_view address) {
  return !address.empty() && address.size() <= slime::limits::kNameBytes && printable(address);
}

ByteVector Place::encode() const { return rpc::encode_value(PlaceFields{ticket, parent, address}); }

Result<Place> Place::decode(Bytes bytes) {
  const auto wrong = [](const char* why) {
    return Status(Code::kInvalidArgument, str("place of a reader: ", why));
  };
  if (bytes.size() > limits::kPlaceBytes) return wrong("too many bytes");
  auto fields = rpc::decode_value<PlaceFields>(bytes);
  if (!fields) return fields.status().with_context("place of a reader");
  if (fields->ticket == 0) return wrong("the ticket is 0");
  if (fields->parent == fields->ticket) return wrong("the reader is its own parent");
  if (fields->parent == 0 ? !fields->address.empty() : !may_be_address(fields->address))
    return wrong("the parent's address is wrong");
  return Place{fields->ticket, fields->parent, std::move(fields->address)};
}

}  // namespace slime::kv
