#include "ctrl/wire.h"

#include <utility>

#include "ctrl/json_fields.h"

namespace slime::ctrl::wire {
namespace {

using Mode = Fields::Mode;
using std::chrono::milliseconds;

std::uint64_t to_ms(Nanos span) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<milliseconds>(span).count()));
}
Nanos from_ms(std::uint64_t ms) {
  constexpr std::uint64_t kMaxMs = std::uint64_t{1} << 43;  // 278 years fit into Nanos
  return milliseconds(std::min(ms, kMaxMs));
}

Json to_json(const ServiceInfo& service) {
  Json out = {{"name", service.name},
              {"kind", service.kind},
              {"methods", service.methods},
              {"health", health_name(service.health)}};
  if (!service.labels.empty()) out["labels"] = service.labels;
  return out;
}
Json to_json(const RegionInfo& region) {
  return {
      {"name", region.name}, {"length_bytes", region.length_bytes}, {"rights", rights_name(region.rights)}};
}
Json to_json(const Event& e) {
  return {{"revision", e.revision},
          {"event", event_kind_name(e.kind)},
          {"name", e.name},
          {"instance", e.instance.to_string()},
          {"incarnation", e.incarnation},
          {"address", e.address},
          {"kind", e.peer_kind}};
}
template <class T>
Json to_json(const std::vector<T>& list) {
  Json out = Json::array();
  for (const T& item : list) out.push_back(to_json(item));
  return out;
}
Json to_json(const Changes& changes) {
  return {{"server_epoch", changes.server_epoch},
          {"revision", changes.revision},
          {"resync", changes.resync},
          {"more", changes.more},
          {"events", to_json(changes.events)}};
}
Json to_json(const Registration& r) {
  Json out = {{"name", r.name},
              {"scope", r.scope},
              {"instance", r.instance.to_string()},
              {"address", r.address},
              {"kind", r.kind},
              {"providers", r.providers},
              {"metadata", r.metadata},
              {"services", to_json(r.services)},
              {"regions", to_json(r.regions)}};
  if (r.ttl > Nanos::zero()) out["ttl_ms"] = to_ms(r.ttl);
  return out;
}

InstanceId read_instance(Fields& in) {
  const std::string hex = in.text("instance", true);
  const std::optional<InstanceId> id = InstanceId::parse(hex);
  if (!id) in.problem(str("\"", in.where(), "instance\" is not 32 hexadecimal digits"));
  return id.value_or(InstanceId{});
}

Labels read_labels(Fields& in, const char* key) {
  Labels out;
  const Json* labels = in.object(key);
  if (labels == nullptr) return out;
  for (const auto& [name, value] : labels->items()) {
    if (const auto* text = value.get_ptr<const std::string*>()) {
      out.emplace(name, *text);
    } else {
      in.problem(str("\"", in.where(), key, "\" has a value that is not a string"));
    }
  }
  return out;
}

ServiceInfo read_service(Fields& in) {
  ServiceInfo out{in.text("name", true), in.text("kind", false), in.texts("methods")};
  const std::string health = in.text("health", false);
  const std::optional<Health> parsed = health.empty() ? Health::kServing : parse_health(health);
  if (!parsed) in.problem(str("\"", in.where(), "health\" is not serving, draining or not_serving"));
  out.health = parsed.value_or(Health::kNotServing);
  out.labels = read_labels(in, "labels");
  return out;
}

RegionInfo read_region(Fields& in) {
  RegionInfo out{in.text("name", true), in.integer("length_bytes", true), RegionRights::kRead};
  const std::string rights = in.text("rights", true);
  const std::optional<RegionRights> parsed = parse_rights(rights);
  if (parsed) {
    out.rights = *parsed;
  } else {
    in.problem(str("\"", in.where(), "rights\" is not local, read, write or read_write"));
  }
  return out;
}

// Each entry of the array `key` through `read`; stops at the first problem.
template <class T, class Read>
std::vector<T> read_list(Fields& in, const char* key, bool required, Read read) {
  std::vector<T> out;
  const Json* list = in.array(key, required);
  if (list == nullptr) return out;
  for (const Json& item : *list) {
    Fields fields(item, in.mode(), str(in.where(), key, "[", out.size(), "]."));
    out.push_back(read(fields));
    if (Status status = fields.finish(); !status.ok()) {
      in.problem(status.text());
      return {};
    }
  }
  return out;
}

Registration read_registration(Fields& in) {
  Registration out;
  out.name = in.text("name", true);
  if (in.has("scope")) {
    out.scope = in.text("scope", false);
  } else {
    in.text("scope", false);  // known, and its default stays
  }
  out.instance = read_instance(in);
  out.address = in.text("address", true);
  out.kind = in.text("kind", false);
  out.providers = in.texts("providers");
  out.metadata = read_labels(in, "metadata");
  out.ttl = from_ms(in.integer("ttl_ms", false));
  out.services = read_list<ServiceInfo>(in, "services", false, read_service);
  out.regions = read_list<RegionInfo>(in, "regions", false, read_region);
  return out;
}

PeerInfo read_peer(Fields& in) {
  PeerInfo out;
  static_cast<Registration&>(out) = read_registration(in);
  out.incarnation = in.integer("incarnation", true);
  out.revision = in.integer("revision", true);
  out.expires_in = from_ms(in.integer("expires_in_ms", false));
  return out;
}

Event read_event(Fields& in) {
  Event out;
  out.revision = in.integer("revision", true);
  const std::optional<EventKind> kind = parse_event_kind(in.text("event", true));
  if (!kind) in.problem(str("\"", in.where(), "event\" is unknown"));
  out.kind = kind.value_or(EventKind::kUpdated);
  out.name = in.text("name", true);
  out.instance = read_instance(in);
  out.incarnation = in.integer("incarnation", true);
  out.address = in.text("address", true);
  out.peer_kind = in.text("kind", false);
  return out;
}

// Kinds of events that a later server may tell are skipped.
Changes read_changes(Fields& in) {
  Changes out{in.integer("server_epoch", true),
              in.integer("revision", true),
              in.boolean("resync"),
              in.boolean("more"),
              {}};
  const Json* events = in.array("events", true);
  if (events == nullptr) return out;
  for (const Json& item : *events) {
    const auto kind = item.is_object() ? item.find("event") : item.end();
    if (kind != item.end() && kind->is_string() && !parse_event_kind(kind->get_ref<const std::string&>()))
      continue;
    Fields event(item, in.mode(), str("events[", out.events.size(), "]."));
    out.events.push_back(read_event(event));
    if (Status status = event.finish(); !status.ok()) {
      in.problem(status.text());
      return {};
    }
  }
  return out;
}

template <class Entry>
Entry read_owner(Fields& in) {
  Entry out;
  out.peer = in.text("peer", true);
  out.address = in.text("address", true);
  out.instance = read_instance(in);
  out.incarnation = in.integer("incarnation", true);
  return out;
}
ServiceEntry read_service_entry(Fields& in) {
  auto out = read_owner<ServiceEntry>(in);
  out.service = read_service(in);
  return out;
}
RegionEntry read_region_entry(Fields& in) {
  auto out = read_owner<RegionEntry>(in);
  out.region = read_region(in);
  return out;
}
template <class Entry>
Json owner_json(const Entry& entry, Json body) {
  body["peer"] = entry.peer;
  body["address"] = entry.address;
  body["instance"] = entry.instance.to_string();
  body["incarnation"] = entry.incarnation;
  return body;
}

// Parses a body and reads it with `read(Fields&)`.
template <class T, class Read>
Result<T> decode(std::string_view body, Mode mode, Read read) {
  const Code code = mode == Mode::kStrict ? Code::kInvalidArgument : Code::kCorrupt;
  const Result<Json> json = parse_json(body, code, mode == Mode::kStrict ? "the body" : "the reply");
  if (!json) return json.error();
  Fields fields(*json, mode);
  T out = read(fields);
  SLIME_TRY(fields.finish());
  return out;
}

template <class T, class Read>
Result<PageHead> decode_page(std::string_view body, const char* list, std::vector<T>& out, Read read) {
  return decode<PageHead>(body, Mode::kLenient, [&](Fields& in) {
    PageHead head{in.integer("server_epoch", true), in.integer("revision", true), std::nullopt};
    if (in.has("next")) head.next = in.text("next", true);
    std::vector<T> items = read_list<T>(in, list, true, read);
    out.insert(out.end(), std::make_move_iterator(items.begin()), std::make_move_iterator(items.end()));
    return head;
  });
}

template <class Request, class Entry, class Read>
Result<Request> decode_update(std::string_view body, bool replace, const char* list, Read read) {
  return decode<Request>(body, Mode::kStrict, [&](Fields& in) {
    Request out;
    out.incarnation = in.integer("incarnation", true);
    out.publish = read_list<Entry>(in, replace ? list : "publish", replace, read);
    if (!replace) out.unpublish = in.texts("unpublish");
    return out;
  });
}

}  // namespace

std::string encode(const RegisterRequest& request) {
  Json json = to_json(request.registration);
  if (request.takeover) json["takeover"] = true;
  return dump(json);
}

Result<RegisterRequest> decode_register(std::string_view body) {
  return decode<RegisterRequest>(body, Mode::kStrict, [](Fields& in) {
    RegisterRequest out;
    out.registration = read_registration(in);
    out.takeover = in.boolean("takeover");
    return out;
  });
}

std::string encode(const HeartbeatRequest& request) {
  Json json = {{"incarnation", request.incarnation}};
  if (request.since) json["since"] = *request.since;
  return dump(json);
}

Result<HeartbeatRequest> decode_heartbeat(std::string_view body) {
  return decode<HeartbeatRequest>(body, Mode::kStrict, [](Fields& in) {
    HeartbeatRequest out{in.integer("incarnation", true), std::nullopt};
    const std::uint64_t since = in.integer("since", false);
    if (in.has("since")) out.since = since;
    return out;
  });
}

std::string encode(const RegionsRequest& request) {
  return dump({{"incarnation", request.incarnation},
               {"publish", to_json(request.publish)},
               {"unpublish", request.unpublish}});
}
Result<RegionsRequest> decode_regions(std::string_view body, bool replace) {
  return decode_update<RegionsRequest, RegionInfo>(body, replace, "regions", read_region);
}

std::string encode(const ServicesRequest& request) {
  return dump({{"incarnation", request.incarnation},
               {"publish", to_json(request.publish)},
               {"unpublish", request.unpublish}});
}
Result<ServicesRequest> decode_services(std::string_view body, bool replace) {
  return decode_update<ServicesRequest, ServiceInfo>(body, replace, "services", read_service);
}

std::string encode(const Lease& lease) {
  Json out = {{"incarnation", lease.incarnation},
              {"server_epoch", lease.server_epoch},
              {"revision", lease.revision},
              {"ttl_ms", to_ms(lease.ttl)},
              {"heartbeat_interval_ms", to_ms(lease.heartbeat_interval)}};
  if (!lease.links.empty()) out["links"] = lease.links;
  return dump(out);
}
Result<Lease> decode_lease(std::string_view body) {
  return decode<Lease>(body, Mode::kLenient, [](Fields& in) {
    return Lease{in.integer("incarnation", true),
                 in.integer("server_epoch", true),
                 in.integer("revision", true),
                 from_ms(in.integer("ttl_ms", true)),
                 from_ms(in.integer("heartbeat_interval_ms", true)),
                 in.texts("links")};
  });
}

std::string encode_targets(const std::vector<std::string>& targets) { return dump({{"targets", targets}}); }
Result<std::vector<std::string>> decode_targets(std::string_view body) {
  return decode<std::vector<std::string>>(body, Mode::kStrict, [](Fields& in) {
    in.array("targets", true);
    return in.texts("targets");
  });
}
Result<std::vector<std::string>> decode_links(std::string_view body) {
  return decode<std::vector<std::string>>(body, Mode::kLenient,
                                          [](Fields& in) { return in.texts("targets"); });
}

std::string encode(const Changes& changes) { return dump(to_json(changes)); }
Result<Changes> decode_changes(std::string_view body) {
  return decode<Changes>(body, Mode::kLenient, read_changes);
}

std::string encode(const HeartbeatsRequest& request) {
  Json peers = Json::array();
  for (const PeerRef& peer : request.peers)
    peers.push_back({{"name", peer.name}, {"incarnation", peer.incarnation}});
  Json json = {{"peers", std::move(peers)}};
  if (request.since) json["since"] = *request.since;
  return dump(json);
}
Result<HeartbeatsRequest> decode_heartbeats(std::string_view body) {
  return decode<HeartbeatsRequest>(body, Mode::kStrict, [](Fields& in) {
    HeartbeatsRequest out;
    const std::uint64_t since = in.integer("since", false);
    if (in.has("since")) out.since = since;
    out.peers = read_list<PeerRef>(in, "peers", true, [](Fields& peer) {
      return PeerRef{peer.text("name", true), peer.integer("incarnation", true)};
    });
    if (out.peers.size() > limits::kHeartbeats)
      in.problem(str(out.peers.size(), " heartbeats; at most ", limits::kHeartbeats, " in one request"));
    return out;
  });
}

std::string encode(const Heartbeats& beats) {
  Json json = to_json(beats.changes);
  json["lost"] = Json::array();
  for (const LostPeer& peer : beats.lost)
    json["lost"].push_back({{"name", peer.name}, {"code", code_name(peer.code)}});
  return dump(json);
}
Result<Heartbeats> decode_heartbeats_reply(std::string_view body) {
  return decode<Heartbeats>(body, Mode::kLenient, [](Fields& in) {
    Heartbeats out{read_changes(in), {}};
    out.lost = read_list<LostPeer>(in, "lost", true, [](Fields& peer) {
      LostPeer lost{peer.text("name", true), Code::kNotFound};
      if (peer.text("code", true) == code_name(Code::kAborted)) lost.code = Code::kAborted;
      return lost;
    });
    return out;
  });
}

std::string encode(const std::vector<ScopeInfo>& scopes) {
  Json list = Json::array();
  for (const ScopeInfo& s : scopes)
    list.push_back({{"scope", s.scope},
                    {"revision", s.revision},
                    {"peers", s.peers},
                    {"services", s.services},
                    {"regions", s.regions},
                    {"links", s.links}});
  return dump({{"scopes", std::move(list)}});
}
Result<std::vector<ScopeInfo>> decode_scopes(std::string_view body) {
  return decode<std::vector<ScopeInfo>>(body, Mode::kLenient, [](Fields& in) {
    return read_list<ScopeInfo>(in, "scopes", true, [](Fields& s) {
      return ScopeInfo{s.text("scope", true),       s.integer("revision", true), s.integer("peers", true),
                       s.integer("services", true), s.integer("regions", true),  s.integer("links", true)};
    });
  });
}

std::string encode(const PeerInfo& peer) {
  Json json = to_json(static_cast<const Registration&>(peer));
  json["incarnation"] = peer.incarnation;
  json["revision"] = peer.revision;
  json["expires_in_ms"] = to_ms(peer.expires_in);
  return dump(json);
}
Result<PeerInfo> decode_peer(std::string_view body) {
  return decode<PeerInfo>(body, Mode::kLenient, read_peer);
}

std::string encode(const ServiceEntry& entry) { return dump(owner_json(entry, to_json(entry.service))); }
std::string encode(const RegionEntry& entry) { return dump(owner_json(entry, to_json(entry.region))); }

std::string encode(const LinkInfo& link) {
  return dump({{"from", link.from}, {"to", link.to}, {"both_there", link.both_there}});
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
    return LinkInfo{in.text("from", true), in.text("to", true), in.boolean("both_there")};
  });
}
Result<PageHead> decode_region_page(std::string_view body, std::vector<RegionEntry>& out) {
  return decode_page(body, "regions", out, read_region_entry);
}

std::string encode(const Error& error) {
  return dump({{"code", code_name(error.code)}, {"message", error.message}, {"hint", error.hint}});
}
std::optional<Error> decode_error(std::string_view body) {
  Result<Error> out = decode<Error>(body, Mode::kLenient, [](Fields& in) {
    Error error;
    const std::string name = in.text("code", true);
    for (std::uint8_t i = 1; i < kCodeCount; ++i) {
      if (code_name(static_cast<Code>(i)) == name) error.code = static_cast<Code>(i);
    }
    error.message = in.text("message", true).substr(0, slime::limits::kErrorTextBytes);
    error.hint = in.text("hint", false).substr(0, slime::limits::kErrorTextBytes);
    return error;
  });
  if (!out) return std::nullopt;
  return std::move(*out);
}

std::string encode_member(std::string_view key, std::string_view value) {
  Json json = Json::object();
  json[std::string(key)] = value;
  return dump(json);
}

}  // namespace slime::ctrl::wire
