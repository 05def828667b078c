#include "agent/registry/report.h"

#include <string>

#include "ctrl/limits.h"

namespace slime::agent {

namespace {

// Returns `count` modulo 2^53: all JSON readers represent integers up to 2^53 - 1 (9 PB) exactly,
// and counters may wrap.
std::uint64_t wrapped(std::uint64_t count) { return count % (ctrl::limits::kIntegerMax + 1); }

}  // namespace

ctrl::Report make_report(const std::vector<PeerView>& peers, const ReportCounters& counters) {
  ctrl::Report out;
  for (const PeerView& peer : peers) {
    if (peer.connection == 0 || out.links.size() == ctrl::limits::kReportLinks) continue;
    const std::string& name = peer.identity.name.empty() ? peer.name : peer.identity.name;
    // nanoctrl refuses a report with an invalid name, so such links are left out.
    if (!ctrl::check_name("peer", name).ok()) continue;
    out.links.push_back({name, peer.provider, std::string(state_name(peer.state)),
                         wrapped(peer.bytes.bytes_sent),
                         wrapped(peer.bytes.bytes_received + peer.bytes.fetched_bytes),
                         wrapped(peer.bytes.direct_bytes), peer.channel.calls});
  }
  const transport::EndpointCounters& total = counters.endpoints;
  const rpc::ServerCounters& server = counters.server;
  out.counters = {{"connections_made", counters.board.made},
                  {"receives_given_back", counters.board.receives_given_back},
                  {"over_budget", counters.board.over_budget},
                  {"answers_revoked", counters.board.answers_revoked},
                  {"strangers_evicted", counters.strangers_evicted},
                  {"sent_bytes", wrapped(total.bytes_sent)},
                  {"received_bytes", wrapped(total.bytes_received)},
                  {"direct_bytes", wrapped(total.direct_bytes)},
                  {"fetched_bytes", wrapped(total.fetched_bytes)},
                  {"reads", total.reads},
                  {"writes", total.writes},
                  {"atomics", total.atomics},
                  {"failed_operations", total.failed_operations},
                  {"error_completions", total.error_completions},
                  {"requests", server.requests},
                  {"requests_refused", server.refused},
                  {"requests_expired", server.expired}};
  return out;
}

}  // namespace slime::agent
