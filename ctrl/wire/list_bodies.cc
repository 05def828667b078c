#include <utility>

#include "ctrl/wire/body_parts.h"
#include "ctrl/wire/json_bodies.h"

// Encodes and decodes the JSON of lists and of their entries.
namespace slime::ctrl::wire {

std::string encode(const std::vector<ScopeInfo>& scopes) {
  Json list = Json::array();
  for (const ScopeInfo& s : scopes)
    list.push_back({{"scope", s.scope},
                    {"revision", s.revision},
                    {"peers", s.peers},
                    {"services", s.services},
                    {"regions", s.regions},
                    {"links", s.links},
                    {"record_bytes", s.record_bytes},
                    {"peers_max", s.peers_max},
                    {"record_bytes_max", s.record_bytes_max}});
  return dump({{"scopes", std::move(list)}});
}
Result<std::vector<ScopeInfo>> decode_scopes(std::string_view body) {
  return decode<std::vector<ScopeInfo>>(body, Mode::kLenient, [](Fields& in) {
    return read_list<ScopeInfo>(in, "scopes", true, [](Fields& s) {
      return ScopeInfo{s.text("scope", true),
                       s.integer("revision", true),
                       s.integer("peers", true),
                       s.integer("services", true),
                       s.integer("regions", true),
                       s.integer("links", true),
                       s.integer("record_bytes", false),
                       s.integer("peers_max", false),
                       s.integer("record_bytes_max", false)};
    });
  });
}

namespace {

Json peer_json(const PeerInfo& peer, Nanos expires_in) {
  Json json = to_json(static_cast<const Registration&>(peer));
  json["incarnation"] = peer.incarnation;
  json["revision"] = peer.revision;
  json["expires_in_ms"] = to_ms(expires_in);
  return json;
}

}  // namespace

std::string encode(const PeerInfo& peer) { return encode(peer, peer.expires_in); }
std::string encode(const PeerInfo& peer, Nanos expires_in) { return dump(peer_json(peer, expires_in)); }
std::string encode_record(const PeerInfo& peer, Nanos expires_in) {
  Json json = peer_json(peer, expires_in);
  if (!peer.owner.session_sha256.empty()) json["session_sha256"] = peer.owner.session_sha256;
  if (!peer.owner.token_id.empty()) json["token_id"] = peer.owner.token_id;
  return dump(json);
}
Result<PeerInfo> decode_peer_record(std::string_view record) {
  return decode<PeerInfo>(record, Mode::kLenient, [](Fields& in) {
    PeerInfo out = read_peer(in);
    out.owner = {in.text("session_sha256", false), in.text("token_id", false)};
    return out;
  });
}
Result<PeerInfo> decode_peer(std::string_view body) {
  return decode<PeerInfo>(body, Mode::kLenient, read_peer);
}

std::string encode(const ServiceEntry& entry) { return dump(owner_json(entry, to_json(entry.service))); }
std::string encode(const RegionEntry& entry) { return dump(owner_json(entry, to_json(entry.region))); }

std::string encode(const LinkInfo& link) {
  Json out = {{"from", link.from}, {"to", link.to}, {"wanted", link.wanted}, {"both_there", link.both_there}};
  if (link.report) {
    out["provider"] = link.report->provider;
    out["state"] = link.report->state;
    out["sent_bytes"] = link.report->sent_bytes;
    out["received_bytes"] = link.report->received_bytes;
    out["direct_bytes"] = link.report->direct_bytes;
    out["calls"] = link.report->calls;
  }
  return dump(out);
}

std::string encode(const ServerStatus& status, std::uint64_t record_bytes) {
  return dump({{"version", status.version},
               {"server_epoch", status.server_epoch},
               {"uptime_ms", to_ms(status.uptime)},
               {"ttl_ms", to_ms(status.ttl)},
               {"scopes", status.scopes},
               {"peers", status.peers},
               {"watchers", status.watchers},
               {"record_bytes", record_bytes}});
}
Result<ServerStatus> decode_status(std::string_view body) {
  return decode<ServerStatus>(body, Mode::kLenient, [](Fields& in) {
    return ServerStatus{in.text("version", true),
                        in.integer("server_epoch", true),
                        from_ms(in.integer("uptime_ms", true)),
                        from_ms(in.integer("ttl_ms", true)),
                        in.integer("scopes", true),
                        in.integer("peers", true),
                        in.integer("watchers", true)};
  });
}

std::string encode_page(std::string_view list, const std::vector<std::string>& items, const PageHead& head) {
  Json json = {{"server_epoch", head.server_epoch}, {"revision", head.revision}};
  if (head.next) json["next"] = *head.next;
  std::string out = dump(json);
  out.pop_back();
  out.append(",\"").append(list).append("\":[");
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ',';
    out += items[i];
  }
  return out += "]}";
}
Result<PageHead> decode_peer_page(std::string_view body, std::vector<PeerInfo>& out) {
  return decode_page(body, "peers", out, read_peer);
}
Result<PageHead> decode_service_page(std::string_view body, std::vector<ServiceEntry>& out) {
  return decode_page(body, "services", out, read_service_entry);
}
Result<PageHead> decode_link_page(std::string_view body, std::vector<LinkInfo>& out) {
  return decode_page(body, "links", out, [](Fields& in) {
    LinkInfo link{
        in.text("from", true), in.text("to", true), in.boolean("wanted"), in.boolean("both_there"), {}};
    if (in.has("state"))
      link.report = LinkReport{link.to,
                               in.text("provider", false),
                               in.text("state", false),
                               in.integer("sent_bytes", false),
                               in.integer("received_bytes", false),
                               in.integer("direct_bytes", false),
                               in.integer("calls", false)};
    return link;
  });
}
Result<PageHead> decode_region_page(std::string_view body, std::vector<RegionEntry>& out) {
  return decode_page(body, "regions", out, read_region_entry);
}

}  // namespace slime::ctrl::wire
