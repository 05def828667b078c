#include "agent/connecting/peer_view.h"

#include "agent/connecting/link.h"
#include "agent/connecting/session.h"

namespace slime::agent {
namespace {

void add_connection(PeerView& view, const Session& session) {
  view.connection = session.id();
  view.initiator = session.initiator();
  view.provider = session.provider();
  view.reason = session.reason();
  view.endpoint = session.describe();
  view.channel = session.channel_counters();
  view.bytes = session.endpoint_counters();
  view.in_flight = session.in_flight();
  view.credits = session.credits();
}

}  // namespace

PeerView view_of(const Link& link) {
  PeerView out;
  out.name = link.key();
  out.address = link.address();
  out.identity = link.identity();
  out.state = link.machine().state();
  out.error = link.machine().reason();
  out.failures = link.machine().failures();
  out.waiting = link.waiting();
  out.connects = link.connects();
  if (link.session() != nullptr) add_connection(out, *link.session());
  return out;
}

PeerView view_of(const std::string& name, const Session& session) {
  PeerView out;
  out.name = name;
  out.address = session.address();
  out.identity = session.peer();
  out.state = session.ready() ? ConnectionState::kReady : ConnectionState::kDraining;
  out.connects = 1;
  add_connection(out, session);
  return out;
}

}  // namespace slime::agent
