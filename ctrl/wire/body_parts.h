#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ctrl/wire/json_bodies.h"
#include "ctrl/wire/json_fields.h"

// Reads and writes the parts of JSON bodies that several bodies contain. Only for .cc files of
// ctrl.
namespace slime::ctrl::wire {

using Mode = Fields::Mode;
using std::chrono::milliseconds;

inline std::uint64_t to_ms(Nanos span) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<milliseconds>(span).count()));
}
inline Nanos from_ms(std::uint64_t ms) {
  constexpr std::uint64_t kMaxMs = std::uint64_t{1} << 43;  // 278 years fit into Nanos
  return milliseconds(std::min(ms, kMaxMs));
}

inline Json to_json(const ServiceInfo& service) {
  Json out = {{"name", service.name},
              {"kind", service.kind},
              {"methods", service.methods},
              {"health", health_name(service.health)}};
  if (!service.labels.empty()) out["labels"] = service.labels;
  return out;
}
inline Json to_json(const RegionInfo& region) {
  return {
      {"name", region.name}, {"length_bytes", region.length_bytes}, {"rights", rights_name(region.rights)}};
}
inline Json to_json(const Event& e) {
  return {{"revision", e.revision},
          {"event", event_kind_name(e.kind)},
          {"name", e.name},
          {"instance", e.instance.to_string()},
          {"incarnation", e.incarnation},
          {"address", e.address},
          {"kind", e.peer_kind}};
}
inline Json to_json(const LinkReport& link) {
  return {{"peer", link.peer},
          {"provider", link.provider},
          {"state", link.state},
          {"sent_bytes", link.sent_bytes},
          {"received_bytes", link.received_bytes},
          {"direct_bytes", link.direct_bytes},
          {"calls", link.calls}};
}
inline Json to_json(const ScopeKey& key) {
  return {{"id", key.id}, {"key", to_hex(key.secret.bytes())}, {"made_unix_s", key.made_unix_s}};
}
template <class T>
Json to_json(const std::vector<T>& list) {
  Json out = Json::array();
  for (const T& item : list) out.push_back(to_json(item));
  return out;
}
inline Json to_json(const Changes& changes) {
  Json out = {{"server_epoch", changes.server_epoch},
              {"revision", changes.revision},
              {"resync", changes.resync},
              {"more", changes.more},
              {"events", to_json(changes.events)}};
  if (!changes.keys.empty()) out["keys"] = to_json(changes.keys);
  return out;
}
inline Json to_json(const Report& report) {
  return {{"links", to_json(report.links)}, {"counters", report.counters}};
}
inline Json to_json(const Registration& r) {
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

inline InstanceId read_instance(Fields& in) {
  const std::string hex = in.text("instance", true);
  const std::optional<InstanceId> id = InstanceId::parse(hex);
  if (!id) in.problem(str("\"", in.where(), "instance\" is not 32 hexadecimal digits"));
  return id.value_or(InstanceId{});
}

// Returns the field "session"; an empty Secret when the field is absent.
inline Secret read_session(Fields& in) {
  const std::string digits = in.text("session", false);
  if (!in.has("session")) return {};
  std::optional<Secret> session = Secret::from_hex(digits, limits::kSessionBytes);
  if (!session) in.problem(str("\"", in.where(), "session\" is not 64 hexadecimal digits"));
  return session ? std::move(*session) : Secret();
}
inline void put_session(Json& json, const Secret& session) {
  if (!session.empty()) json["session"] = to_hex(session.bytes());
}

inline Labels read_labels(Fields& in, const char* key) {
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

inline ServiceInfo read_service(Fields& in) {
  ServiceInfo out{in.text("name", true), in.text("kind", false), in.texts("methods")};
  const std::string health = in.text("health", false);
  const std::optional<Health> parsed = health.empty() ? Health::kServing : parse_health(health);
  if (!parsed) in.problem(str("\"", in.where(), "health\" is not serving, draining or not_serving"));
  out.health = parsed.value_or(Health::kNotServing);
  out.labels = read_labels(in, "labels");
  return out;
}

inline RegionInfo read_region(Fields& in) {
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

// Reads the array `key`, calling `read` for each entry. Returns an empty list after the first
// problem.
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

ScopeKeys read_keys(Fields& in);  // empty when the field is absent

inline Report read_report(Fields& in) {
  Report out;
  out.links = read_list<LinkReport>(in, "links", false, [](Fields& link) {
    return LinkReport{link.text("peer", true),
                      link.text("provider", false),
                      link.text("state", false),
                      link.integer("sent_bytes", false),
                      link.integer("received_bytes", false),
                      link.integer("direct_bytes", false),
                      link.integer("calls", false)};
  });
  if (const Json* counters = in.object("counters")) {
    for (const auto& [name, value] : counters->items()) {
      const std::optional<std::uint64_t> number = integer_of(value, limits::kIntegerMax);
      if (!number)
        in.problem("\"report.counters\" has a value that is not an integer from 0 to 2^53 - 1");
      else
        out.counters.emplace(name, *number);
    }
  }
  return out;
}

inline Registration read_registration(Fields& in) {
  Registration out;
  out.name = in.text("name", true);
  if (in.has("scope")) {
    out.scope = in.text("scope", false);
  } else {
    // marks the absent field as read; out.scope keeps its default
    in.text("scope", false);
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

inline PeerInfo read_peer(Fields& in) {
  PeerInfo out;
  static_cast<Registration&>(out) = read_registration(in);
  out.incarnation = in.integer("incarnation", true);
  out.revision = in.integer("revision", true);
  out.expires_in = from_ms(in.integer("expires_in_ms", false));
  return out;
}

inline Event read_event(Fields& in) {
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

// Reads the events of a scope. Skips events of unknown kinds, which a newer server may send.
inline Changes read_changes(Fields& in) {
  Changes out{in.integer("server_epoch", true),
              in.integer("revision", true),
              in.boolean("resync"),
              in.boolean("more"),
              {},
              read_keys(in)};
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
inline ServiceEntry read_service_entry(Fields& in) {
  auto out = read_owner<ServiceEntry>(in);
  out.service = read_service(in);
  return out;
}
inline RegionEntry read_region_entry(Fields& in) {
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

// Parses a body as JSON, and reads its fields with `read(Fields&)`. Returns what `read` returns, or
// the first problem.
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
    out.session = read_session(in);
    for (const std::string& name : out.unpublish) {
      if (Status status = check_name("unpublish", name); !status.ok()) in.problem(status.text());
    }
    return out;
  });
}

}  // namespace slime::ctrl::wire
