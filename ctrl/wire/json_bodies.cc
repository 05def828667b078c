#include "ctrl/wire/json_bodies.h"

#include <utility>

#include "ctrl/wire/body_parts.h"

namespace slime::ctrl::wire {

namespace {

template <class Request>
std::string encode_update(const Request& request) {
  Json json = {{"incarnation", request.incarnation},
               {"publish", to_json(request.publish)},
               {"unpublish", request.unpublish}};
  put_session(json, request.session);
  return dump(json);
}

}  // namespace

std::optional<Secret> parse_session(std::string_view text) {
  return Secret::from_hex(text, limits::kSessionBytes);
}

std::string encode(const RegisterRequest& request) {
  Json json = to_json(request.registration);
  if (request.takeover) json["takeover"] = true;
  put_session(json, request.session);
  return dump(json);
}

Result<RegisterRequest> decode_register(std::string_view body) {
  return decode<RegisterRequest>(body, Mode::kStrict, [](Fields& in) {
    RegisterRequest out;
    out.registration = read_registration(in);
    out.takeover = in.boolean("takeover");
    out.session = read_session(in);
    return out;
  });
}

std::string encode(const HeartbeatRequest& request) {
  Json json = {{"incarnation", request.incarnation}};
  if (request.since) json["since"] = *request.since;
  if (request.report) json["report"] = to_json(*request.report);
  if (request.keys_have) json["keys_have"] = *request.keys_have;
  put_session(json, request.session);
  return dump(json);
}

Result<HeartbeatRequest> decode_heartbeat(std::string_view body) {
  return decode<HeartbeatRequest>(body, Mode::kStrict, [](Fields& in) {
    HeartbeatRequest out{in.integer("incarnation", true), std::nullopt};
    const std::uint64_t since = in.integer("since", false);
    if (in.has("since")) out.since = since;
    const std::uint64_t keys_have = in.integer("keys_have", false);
    if (in.has("keys_have")) out.keys_have = keys_have;
    out.session = read_session(in);
    if (const Json* report = in.object("report")) {
      Fields fields(*report, in.mode(), "report.");
      out.report = read_report(fields);
      if (Status status = fields.finish(); !status.ok()) in.problem(status.text());
    }
    return out;
  });
}

std::string encode(const RegionsRequest& request) { return encode_update(request); }
Result<RegionsRequest> decode_regions(std::string_view body, bool replace) {
  return decode_update<RegionsRequest, RegionInfo>(body, replace, "regions", read_region);
}

std::string encode(const ServicesRequest& request) { return encode_update(request); }
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
  if (!lease.keys.empty()) out["keys"] = to_json(lease.keys);
  put_session(out, lease.session);
  return dump(out);
}
Result<Lease> decode_lease(std::string_view body) {
  return decode<Lease>(body, Mode::kLenient, [](Fields& in) {
    return Lease{in.integer("incarnation", true),
                 in.integer("server_epoch", true),
                 in.integer("revision", true),
                 from_ms(in.integer("ttl_ms", true)),
                 from_ms(in.integer("heartbeat_interval_ms", true)),
                 in.texts("links"),
                 read_keys(in),
                 read_session(in)};
  });
}

std::string encode(const LinksRequest& request) {
  Json json = {{"targets", request.targets}};
  put_session(json, request.session);
  return dump(json);
}
Result<LinksRequest> decode_links_request(std::string_view body) {
  return decode<LinksRequest>(body, Mode::kStrict, [](Fields& in) {
    in.array("targets", true);
    return LinksRequest{in.texts("targets"), read_session(in)};
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
  for (const PeerRef& peer : request.peers) {
    peers.push_back({{"name", peer.name}, {"incarnation", peer.incarnation}});
    put_session(peers.back(), peer.session);
  }
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
      return PeerRef{peer.text("name", true), peer.integer("incarnation", true), read_session(peer)};
    });
    for (const PeerRef& peer : out.peers) {
      if (Status status = check_name("name", peer.name); !status.ok()) in.problem(status.text());
    }
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
      const std::string code = peer.text("code", true);
      for (const Code known : {Code::kAborted, Code::kPermissionDenied}) {
        if (code == code_name(known)) lost.code = known;
      }
      return lost;
    });
    return out;
  });
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
