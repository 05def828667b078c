#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "rpc/server.h"
#include "transport/memory.h"

// Describes an agent, its peers and its operations. to_json() writes a description as text for
// logs.
namespace slime {

// One counter. docs/operations.md explains the names; later versions may add names.
struct Counter {
  std::string name;
  std::uint64_t value = 0;
};
using Counters = std::vector<Counter>;
// Returns the value of the counter with this name; 0 if there is none.
std::uint64_t value_of(const Counters& counters, std::string_view name);

// A peer that the agent knows: Peer::info().
struct PeerInfo {
  std::string name;     // name given to PeerAgent::peer(), or name under which the peer connected
  std::string address;  // "host:port"; empty: not known yet
  std::string peer;     // name that the connected peer gives itself; empty: no connection
  InstanceId instance;  // of the connected peer; zero: no connection
  std::string provider;
  std::string reason;          // why `provider` was chosen, and others were not
  std::string state;           // "idle", "resolving", "handshaking", "ready", ...
  Status error;                // error of the last failed attempt or connection; OK: none
  std::uint32_t failures = 0;  // attempts that failed since the last connection
  std::size_t waiting = 0;     // operations that wait for a connection
  std::uint64_t connects = 0;  // connections since the agent started
  // connection's id (CallInfo::connection); 0: none, and the fields below are empty
  std::uint64_t connection = 0;
  bool opened_by_us = false;
  std::string endpoint{};     // queues, windows and timeouts, for people
  std::size_t in_flight = 0;  // operations that the connection has
  std::uint64_t credits = 0;  // messages that the connection would take now
  Counters counters{};        // of the connection
};

// The state of the agent's registration with nanoctrl.
struct RegistryInfo {
  std::string url;
  std::string state;  // "registered", ...
  Status error;       // of the last exchange that failed
  std::uint64_t incarnation = 0;
  std::uint64_t server_epoch = 0;
  std::uint64_t revision = 0;
  Nanos ttl{};                   // lease without a heartbeat
  std::uint64_t newest_key = 0;  // id of the newest key of the scope; 0: no keys
  std::uint64_t heartbeats = 0;  // since the agent started
  std::uint64_t registrations = 0;
};

// An operation in flight.
struct OperationInfo {
  std::string what;  // "call cache.get"
  std::string peer;
  std::string stage;  // "under way", ...
  Nanos age{};
  Nanos left{};  // until its deadline
};

// An agent: PeerAgent::info().
struct AgentInfo {
  std::string name;
  std::string scope;
  std::string address;  // that peers connect to
  InstanceId instance;
  std::string kind;
  std::string provider;  // PeerAgentOptions::provider
  std::string reason;    // which providers work here, and why others do not
  Nanos outage_tolerated{};
  std::uint64_t memory_bytes = 0;
  std::uint64_t max_payload_bytes = 0;
  std::string state;  // "open", "closed" or "forked"; unless open, most fields below are empty
  std::optional<RegistryInfo> registry;  // also of a closed agent
  rpc::ServerCounters server;
  Counters device;              // counters of the adapters' drivers; they include other processes
  std::string loop;             // not empty: why the loop did not answer; then the fields below are empty
  std::size_t connections = 0;  // open now
  std::uint64_t connections_made = 0;  // usable connections since the start
  std::uint64_t strangers_evicted = 0;
  std::uint64_t receives_given_back = 0;
  std::uint64_t over_budget = 0;
  std::uint64_t answers_revoked = 0;
  std::size_t regions_published = 0;  // now
  Counters port;                      // of all connections, ended ones too
  std::size_t operations_in_flight = 0;
  std::vector<PeerInfo> peers;
  std::vector<OperationInfo> operations;  // the oldest
};

// A peer in nanoctrl's list: PeerAgent::list_peers().
struct RegisteredPeer {
  struct Service {
    std::string name;
    std::string kind;
    std::vector<std::string> methods;  // empty: not stated
    std::string health;                // "serving", "draining", "not_serving"
    std::map<std::string, std::string> labels;
  };
  struct Region {
    std::string name;
    std::uint64_t length_bytes = 0;
    transport::Rights rights = transport::Rights::kLocal;
  };
  std::string name;
  std::string scope;
  InstanceId instance;
  std::string address;
  std::string kind;
  std::vector<std::string> providers;
  std::map<std::string, std::string> metadata;
  std::vector<Service> services;
  std::vector<Region> regions;
  std::uint64_t incarnation = 0;  // grows with each registration of the name
  std::uint64_t revision = 0;     // revision of the scope at the last change of this record
  Nanos expires_in{};             // time left of the lease
};

// The servers that a proxy knows: ServiceProxy::info().
struct ProxyInfo {
  struct Server {
    std::string name;
    std::string address;
    InstanceId instance;
    std::size_t calls_in_flight = 0;  // of this agent
    std::uint64_t calls = 0;          // of this agent so far
    std::uint32_t ejections = 0;      // since its last answer
    Status avoided;                   // why calls avoid this server now; OK: they do not
  };
  std::string service;
  std::vector<Server> servers;
};

// Return one line of JSON. Durations are in milliseconds, with names that end in _ms.
std::string to_json(const PeerInfo& info);
std::string to_json(const AgentInfo& info);
std::string to_json(const std::vector<RegisteredPeer>& peers);
std::string to_json(const ProxyInfo& info);

}  // namespace slime
