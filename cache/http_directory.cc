#include "cache/http_directory.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/str.h"
#include "cache/client.h"
#include "cache/store.h"

namespace slime::cache {
namespace {

using HttpJson = nlohmann::ordered_json;  // of answers
// Holds bodies and manifests. It is not ordered, because the parser looks for each key, and that
// takes an ordered object time proportional to its keys.
using ParsedJson = nlohmann::json;

constexpr std::string_view kSpace = "dlslime";
// An offset of the cache is a version and, in the low bits, a place in the version's bytes.
// Versions have 31 bits, so that offsets fit into 63.
constexpr unsigned kPlaceBits = 32;
constexpr std::uint64_t kVersionMask = 0x7fffffff;
constexpr int kDepthMost = 8;
constexpr std::size_t kPeerBytes = 255;
constexpr std::size_t kAssignmentsMost = 16384;  // of a request
constexpr std::size_t kPiecesMost = 65536;       // of a manifest
constexpr std::uint64_t kManifestBytes = std::uint64_t{16} << 20;

std::string bytes_key(std::uint64_t version) { return std::to_string(version); }
std::string manifest_key(std::uint64_t version) { return str(version, ".manifest"); }

std::optional<std::uint64_t> number_of(const ParsedJson& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

// Parses what a stranger or a peer has written. Errors have this code.
Result<ParsedJson> object_of(std::string_view text, Code code, std::string_view what) {
  bool deep = false;
  const auto note_depth = [&deep](int depth, ParsedJson::parse_event_t, const ParsedJson&) {
    deep = deep || depth > kDepthMost;
    return !deep;
  };
  ParsedJson json = ParsedJson::parse(text.begin(), text.end(), note_depth, false);
  if (deep) return Status(code, str(what, " nests deeper than ", kDepthMost, " levels"));
  if (!json.is_object()) return Status(code, str(what, " is not a JSON object"));
  return json;
}

Result<ParsedJson> object_of(std::string_view body) {
  return object_of(body, Code::kInvalidArgument, "the body");
}

Result<std::string> peer_of(const ParsedJson& json) {
  const auto found = json.find("peer_agent_id");
  if (found == json.end() || !found->is_string() || found->get_ref<const std::string&>().empty() ||
      found->get_ref<const std::string&>().size() > kPeerBytes)
    return Status(Code::kInvalidArgument,
                  str("peer_agent_id must be a string of 1 to ", kPeerBytes, " bytes"));
  return found->get<std::string>();
}

struct Wanted {
  std::string peer;
  std::uint64_t version = 0;
};

Result<Wanted> wanted_of(std::string_view body) {
  auto json = object_of(body);
  if (!json) return std::move(json).error();
  auto peer = peer_of(*json);
  if (!peer) return std::move(peer).error();
  const auto version = number_of(*json, "version");
  if (!version) return Status(Code::kInvalidArgument, "version must be a number from 0");
  return Wanted{std::move(*peer), *version};
}

struct Assignment {
  std::uint64_t mr_key = 0, remote_mr_key = 0, target_offset = 0, length = 0;
};

Result<std::vector<Assignment>> assignments_of(const ParsedJson& json, std::uint64_t memory_bytes) {
  const auto found = json.find("assignments");
  if (found == json.end() || !found->is_array() || found->empty() || found->size() > kAssignmentsMost)
    return Status(Code::kInvalidArgument, str("assignments must be a list of 1 to ", kAssignmentsMost));
  const std::uint64_t most = std::min(memory_bytes, std::uint64_t{1} << kPlaceBits);
  std::vector<Assignment> out;
  std::uint64_t total = 0;
  for (const ParsedJson& item : *found) {
    const auto field = [&](const char* name) {
      return item.is_object() ? number_of(item, name) : std::nullopt;
    };
    const auto mr_key = field("mr_key"), remote_mr_key = field("remote_mr_key");
    const auto target_offset = field("target_offset"), length = field("length");
    if (!mr_key || !remote_mr_key || !target_offset || !field("source_offset") || !length)
      return Status(
          Code::kInvalidArgument,
          str("assignment ", out.size(),
              " needs mr_key, remote_mr_key, target_offset, source_offset and length, numbers from 0"));
    if (*length == 0 || *length > most - total)
      return Status(Code::kInvalidArgument, str("assignment ", out.size(), ": a manifest has 1 to ", most,
                                                " bytes, and no empty assignment"));
    if (*target_offset > UINT64_MAX - *length)
      return Status(Code::kInvalidArgument, str("assignment ", out.size(), ": its target ends beyond 2^64"));
    total += *length;
    out.push_back({*mr_key, *remote_mr_key, *target_offset, *length});
  }
  return out;
}

// Returns a manifest: the assignments cut at the slabs' size, with the offsets of a version.
Result<HttpJson> planned(const std::string& peer, std::uint64_t version,
                         const std::vector<Assignment>& assignments, std::uint64_t slab_bytes) {
  HttpJson slab_ids = HttpJson::array(), pieces = HttpJson::array();
  std::uint64_t place = 0;
  for (const Assignment& each : assignments) {
    for (std::uint64_t done = 0; done < each.length;) {
      const std::uint64_t length = std::min(slab_bytes, each.length - done);
      if (pieces.size() == kPiecesMost)
        return Status(Code::kInvalidArgument,
                      str("the manifest would have more than ", kPiecesMost, " assignments of a slab each"));
      slab_ids.push_back(((version << kPlaceBits) + place) / slab_bytes);
      pieces.push_back({{"mr_key", each.mr_key},
                        {"remote_mr_key", each.remote_mr_key},
                        {"target_offset", each.target_offset + done},
                        {"source_offset", (version << kPlaceBits) + place},
                        {"length", length}});
      place += length;
      done += length;
    }
  }
  return HttpJson{{"peer_agent_id", peer},
                  {"version", version},
                  {"total_bytes", place},
                  {"slab_ids", std::move(slab_ids)},
                  {"assignments", std::move(pieces)}};
}

std::string dumped(const HttpJson& json) {
  return json.dump(-1, ' ', false, HttpJson::error_handler_t::replace);
}

// Returns the manifest, as its writer has put it, of a version whose bytes are there, too.
// kNotFound: there is none, or it is another peer's.
Result<std::string> sealed(HttpObjects& objects, const Wanted& wanted) {
  const Status none(Code::kNotFound, str("no version ", wanted.version, " of ", wanted.peer,
                                         ", or not all of it is written yet"));
  if (wanted.version > kVersionMask) return none;
  const auto length = objects.length(manifest_key(wanted.version));
  if (!length) return length.error().code() == Code::kNotFound ? none : length.error();
  if (*length > kManifestBytes) return Status(Code::kCorrupt, str("the manifest has ", *length, " bytes"));
  const auto bytes = objects.get(manifest_key(wanted.version));
  if (!bytes) return bytes.error().code() == Code::kNotFound ? none : bytes.error();
  const std::string_view text = as_text(*bytes);
  const auto json = object_of(text, Code::kCorrupt, "the manifest");
  if (!json) return json.error();
  const auto peer = peer_of(*json);
  if (!peer || *peer != wanted.peer) return none;
  const auto there = objects.exists(bytes_key(wanted.version));
  if (!there) return there.error();
  if (!*there) return none;
  return std::string(text);
}

class ClientObjects final : public HttpObjects {
 public:
  explicit ClientObjects(CacheClient& client) : client_(client) {}
  Result<std::uint64_t> length(std::string_view key) override {
    const auto info = client_.info(kSpace, key);
    if (!info) return info.error();
    return info->length;
  }
  Result<ByteVector> get(std::string_view key) override { return client_.get(kSpace, key); }
  Result<bool> exists(std::string_view key) override { return client_.exists(kSpace, key); }
  Status remove(std::string_view key) override { return client_.remove(kSpace, key); }

 private:
  CacheClient& client_;
};

}  // namespace

std::unique_ptr<HttpObjects> http_objects(CacheClient& client) {
  return std::make_unique<ClientObjects>(client);
}

ctrl::ApiReply http_error(int status, std::string_view text) {
  return {.status = status, .body = dumped(HttpJson{{"error", text}})};
}

ctrl::ApiReply http_error(const Status& status) {
  switch (status.code()) {
    case Code::kInvalidArgument:
      return http_error(400, status.text());
    case Code::kNotFound:
      return http_error(404, status.text());
    case Code::kResourceExhausted:
    case Code::kUnavailable:
      return http_error(503, status.text());
    default:
      return http_error(500, status.to_string());
  }
}

HttpDirectory::HttpDirectory(HttpObjects& objects, std::uint64_t memory_bytes, std::uint64_t slab_bytes)
    : objects_(objects), memory_bytes_(memory_bytes), slab_bytes_(slab_bytes) {
  // Random, so that offsets of an earlier cache do not mean bytes of this one.
  std::uint32_t first = 0;
  random_bytes(std::as_writable_bytes(std::span(&first, 1)));
  last_version_ = first;
}

std::uint64_t HttpDirectory::next_version() {
  std::uint64_t version = 0;
  while (version == 0) version = ++last_version_ & kVersionMask;
  return version;
}

ctrl::ApiReply HttpDirectory::store(std::string_view body) {
  const auto json = object_of(body);
  if (!json) return http_error(json.error());
  const auto peer = peer_of(*json);
  if (!peer) return http_error(peer.error());
  const auto assignments = assignments_of(*json, memory_bytes_);
  if (!assignments) return http_error(assignments.error());
  const auto plans = json->find("plan");
  if (plans == json->end() || !plans->is_boolean() || !plans->get<bool>())
    return http_error(
        409,
        "these bytes are not in the cache: nothing is stored by HTTP alone. CacheClient of "
        "slime.compat.dlslime writes them; it asks with \"plan\": true for a version and its place");
  const auto manifest = planned(*peer, next_version(), *assignments, slab_bytes_);
  if (!manifest) return http_error(manifest.error());
  return {.body = dumped(*manifest)};
}

ctrl::ApiReply HttpDirectory::query(std::string_view body) {
  const auto wanted = wanted_of(body);
  if (!wanted) return http_error(wanted.error());
  auto manifest = sealed(objects_, *wanted);
  if (!manifest) return http_error(manifest.error());
  return {.body = std::move(*manifest)};
}

ctrl::ApiReply HttpDirectory::remove(std::string_view body) {
  const auto wanted = wanted_of(body);
  if (!wanted) return http_error(wanted.error());
  const auto manifest = sealed(objects_, *wanted);
  if (!manifest && manifest.error().code() != Code::kNotFound) return http_error(manifest.error());
  bool deleted = manifest.has_value();
  if (deleted) {
    // The manifest first: a version without a manifest is not there.
    const std::string keys[] = {manifest_key(wanted->version), bytes_key(wanted->version)};
    for (const std::string& key : keys) {
      const Status removed = objects_.remove(key);
      if (removed.code() == Code::kNotFound)
        deleted = false;
      else if (!removed.ok())
        return http_error(removed);
    }
  }
  return {.body = dumped(HttpJson{{"deleted", deleted}})};
}

}  // namespace slime::cache
