#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ctrl/client.h"
#include "ctrl/registry/registry.h"
#include "ctrl/types.h"

// The JSON bodies of nanoctrl's HTTP API: an encoder and a decoder for each body. Decoding a
// request is strict, so that a misspelled field is not ignored: kInvalidArgument names an unknown
// field, a wrong type or a missing value. Decoding a reply is lenient, because a newer server may
// send more fields; kCorrupt if a known field has a wrong type. No function throws.
namespace slime::ctrl::wire {

struct RegisterRequest {
  Registration registration;
  bool takeover = false;
  // session for the new record; empty: nanoctrl makes a session
  Secret session = {};
};
std::string encode(const RegisterRequest& request);
Result<RegisterRequest> decode_register(std::string_view body);

struct HeartbeatRequest {
  std::uint64_t incarnation = 0;
  std::optional<std::uint64_t> since;
  std::optional<Report> report = {};
  // newest_id() of the keys that the sender has; absent: the sender wants no keys
  std::optional<std::uint64_t> keys_have = {};
  Secret session = {};
};
std::string encode(const HeartbeatRequest& request);
Result<HeartbeatRequest> decode_heartbeat(std::string_view body);

struct HeartbeatsRequest {
  std::optional<std::uint64_t> since;
  std::vector<PeerRef> peers;
};
std::string encode(const HeartbeatsRequest& request);
Result<HeartbeatsRequest> decode_heartbeats(std::string_view body);
std::string encode(const Heartbeats& beats);
Result<Heartbeats> decode_heartbeats_reply(std::string_view body);

std::string encode(const std::vector<ScopeInfo>& scopes);
Result<std::vector<ScopeInfo>> decode_scopes(std::string_view body);

// A change of a peer's regions. In a request with PUT (`replace`), the body has the field
// "regions", which is read into `publish`. In a request with POST, the body has "publish" and
// "unpublish". ServicesRequest is the counterpart for services.
struct RegionsRequest {
  std::uint64_t incarnation = 0;
  std::vector<RegionInfo> publish;
  std::vector<std::string> unpublish;
  Secret session = {};
};
std::string encode(const RegionsRequest& request);
Result<RegionsRequest> decode_regions(std::string_view body, bool replace);
struct ServicesRequest {
  std::uint64_t incarnation = 0;
  std::vector<ServiceInfo> publish;
  std::vector<std::string> unpublish;
  Secret session = {};
};
std::string encode(const ServicesRequest& request);
Result<ServicesRequest> decode_services(std::string_view body, bool replace);

// Parses the value of the header Slime-Session. Returns nullopt when it is malformed.
std::optional<Secret> parse_session(std::string_view text);

std::string encode(const Lease& lease);
Result<Lease> decode_lease(std::string_view body);
std::string encode(const Changes& changes);
Result<Changes> decode_changes(std::string_view body);
std::string encode(const PeerInfo& peer);
// Encodes the peer with another `expires_in`.
std::string encode(const PeerInfo& peer, Nanos expires_in);
Result<PeerInfo> decode_peer(std::string_view body);
// Encodes the peer for a store: like encode(), but with the owner.
std::string encode_record(const PeerInfo& peer, Nanos expires_in);
Result<PeerInfo> decode_peer_record(std::string_view record);
std::string encode(const ServiceEntry& entry);
std::string encode(const RegionEntry& entry);
std::string encode(const LinkInfo& link);
std::string encode(const ServerStatus& status, std::uint64_t record_bytes);
Result<ServerStatus> decode_status(std::string_view body);

// Encodes the keys of a scope for a store: {"keys": [...]}. Replies to members contain the same
// "keys".
std::string encode_keys(const ScopeKeys& keys);
Result<ScopeKeys> decode_keys(std::string_view record);

// Encodes the wanted links of a peer for a store: {"targets": [names]}.
std::string encode_targets(const std::vector<std::string>& targets);
Result<std::vector<std::string>> decode_targets(std::string_view body);  // from a store
struct LinksRequest {
  std::vector<std::string> targets;
  Secret session = {};
};
std::string encode(const LinksRequest& request);
Result<LinksRequest> decode_links_request(std::string_view body);
Result<std::vector<std::string>> decode_links(std::string_view body);  // from a reply

std::string encode(const TokenRequest& request);
Result<TokenRequest> decode_token_request(std::string_view body);
std::string encode(const TokenInfo& token);
Result<TokenInfo> decode_token_info(std::string_view body);
std::string encode(const std::vector<TokenInfo>& tokens);
Result<std::vector<TokenInfo>> decode_tokens(std::string_view body);
// Encodes the token for a store, with the hash of its secret.
std::string encode_record(const TokenRecord& token);
Result<TokenRecord> decode_token(std::string_view record);

// The fields of a page of a list besides its entries. `next` is the name after which the next page
// begins; absent: this is the last page.
struct PageHead {
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;
  std::optional<std::string> next;
};
// `items` are encoded entries.
std::string encode_page(std::string_view list, const std::vector<std::string>& items, const PageHead& head);
Result<PageHead> decode_peer_page(std::string_view body, std::vector<PeerInfo>& out);
Result<PageHead> decode_service_page(std::string_view body, std::vector<ServiceEntry>& out);
Result<PageHead> decode_link_page(std::string_view body, std::vector<LinkInfo>& out);
Result<PageHead> decode_region_page(std::string_view body, std::vector<RegionEntry>& out);

// The body of an error reply: {"code", "message", "hint"}.
struct Error {
  Code code = Code::kInternal;
  std::string message;
  std::string hint;
};
std::string encode(const Error& error);
// Decodes the body of an error reply. Returns nullopt when the body has another form.
std::optional<Error> decode_error(std::string_view body);

// Returns an object with one member.
std::string encode_member(std::string_view key, std::string_view value);

}  // namespace slime::ctrl::wire
