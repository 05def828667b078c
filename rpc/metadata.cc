#include "rpc/metadata.h"

#include <algorithm>
#include <array>

#include "base/str.h"
#include "base/utf8.h"
#include "rpc/text.h"

namespace slime::rpc {
namespace {

Status check_entry(std::string_view key, std::string_view value) {
  SLIME_TRY(validate_name("metadata entry", key));
  if (value.size() > limits::kMetadataBytes)
    return Status(Code::kResourceExhausted, str("the metadata of '", key, "' has ", value.size(), " bytes"));
  if (!is_utf8(value)) return Status(Code::kInvalidArgument, str("the metadata of '", key, "' is not UTF-8"));
  return {};
}

}  // namespace

Status Metadata::set(std::string_view key, std::string_view value, Need need) {
  SLIME_TRY(check_entry(key, value));
  const auto known =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  const std::size_t before = known == entries_.end() ? 0 : known->key.size() + known->value.size();
  const std::size_t bytes = bytes_ - before + key.size() + value.size();
  if (bytes > limits::kMetadataBytes)
    return Status(Code::kResourceExhausted, str("more than ", limits::kMetadataBytes, " bytes of metadata"));
  if (known != entries_.end()) {
    known->value = value;
    known->need = need;
  } else if (entries_.size() == limits::kMetadataEntries) {
    return Status(Code::kResourceExhausted,
                  str("more than ", limits::kMetadataEntries, " entries of metadata"));
  } else {
    entries_.push_back({std::string(key), std::string(value), need});
  }
  bytes_ = bytes;
  return {};
}

void Metadata::remove(std::string_view key) {
  const auto known =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.key == key; });
  if (known == entries_.end()) return;
  bytes_ -= known->key.size() + known->value.size();
  entries_.erase(known);
}

std::optional<std::string_view> Metadata::get(std::string_view key) const {
  for (const Entry& entry : entries_) {
    if (entry.key == key) return entry.value;
  }
  return std::nullopt;
}

bool Metadata::has_required() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.need == Need::kRequired; });
}

void CallContext::finish(TimePoint now) {
  timing.total = std::max(now - began, Nanos::zero());
  timing.queue = std::clamp(timing.queue, Nanos::zero(), timing.total);
  timing.handler = std::clamp(timing.handler, Nanos::zero(), timing.total - timing.queue);
  timing.network = timing.total - timing.queue - timing.handler;
}

namespace wire {
namespace {

constexpr std::uint8_t kWantsTiming = 1;

}  // namespace

Status decode_extras(ByteReader& in, Extras* out) {
  const auto malformed = [] { return Status(Code::kCorrupt, "the metadata of a request is malformed"); };
  ByteReader block(in.take(in.read<std::uint16_t>()));
  const auto wants = block.read<std::uint8_t>();
  const std::size_t count = block.read<std::uint8_t>();
  // Empty extras must not be sent.
  if (in.failed() || (wants & ~kWantsTiming) != 0 || (wants == 0 && count == 0) ||
      count > limits::kMetadataEntries)
    return malformed();
  const auto text = [&block] { return as_text(block.take(block.read<std::uint16_t>())); };
  std::array<std::string_view, limits::kMetadataEntries> keys;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    keys[i] = text();
    const std::string_view value = text();
    bytes += keys[i].size() + value.size();
    const auto end = keys.begin() + static_cast<std::ptrdiff_t>(i);
    if (block.failed() || bytes > limits::kMetadataBytes || !check_entry(keys[i], value).ok() ||
        std::find(keys.begin(), end, keys[i]) != end)
      return malformed();
    if (out != nullptr) SLIME_TRY(out->metadata.set(keys[i], value));
  }
  if (!block.complete()) return malformed();
  if (out != nullptr) out->timed = wants != 0;
  return {};
}

void encode_extras(const Metadata& metadata, bool timed, ByteVector& out) {
  ByteVector block;
  ByteWriter writer(block);
  writer.write(static_cast<std::uint8_t>(timed ? kWantsTiming : 0));
  writer.write(static_cast<std::uint8_t>(metadata.entries().size()));
  for (const Metadata::Entry& entry : metadata.entries()) {
    writer.text(entry.key);
    writer.text(entry.value);
  }
  ByteWriter frame(out);
  frame.write(static_cast<std::uint16_t>(block.size()));
  frame.append(block);
}

}  // namespace wire
}  // namespace slime::rpc
