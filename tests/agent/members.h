#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "ctrl/api/auth.h"
#include "tests/agent/registry.h"

// Agents that authenticate each other with the keys that nanoctrl hands to the members of their
// scope.
namespace slime::test {

inline constexpr const char* kAdmin =
    "slime-00000000000000ad-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

// A nanoctrl with a clock of the test's. It requires tokens.
class Members {
 public:
  explicit Members(std::chrono::seconds lease = seconds(15)) : ttl(lease) {}
  std::string token(ctrl::Role role = ctrl::Role::kJoin, const std::string& scope = "default") {
    const ctrl::TokenInfo made = take(admin->create_token({role, scope}));
    last_id = made.id;
    return made.token;
  }
  PeerAgentOptions options(std::string name, std::string token) const {
    PeerAgentOptions out = options_for(registry, std::move(name));
    out.ctrl_token = std::move(token);
    return out;
  }
  std::unique_ptr<PeerAgent> start(std::string name) { return start(options(std::move(name), token())); }
  static std::unique_ptr<PeerAgent> start(PeerAgentOptions options) {
    auto agent = test::start(std::move(options));
    rpc::Service service = calculator();
    REQUIRE(agent->serve(service).ok());
    return agent;
  }
  // The scope has another key; agents hear of it with their next heartbeats.
  void rotate() {
    now_s += static_cast<std::uint64_t>(ttl.count());
    registry.api().tick();
  }

  const std::chrono::seconds ttl;
  std::atomic<std::uint64_t> now_s{1'000'000};
  Registry registry{ttl, [this] {
                      ctrl::ApiOptions api;
                      api.admin_token = take(ctrl::record_of(kAdmin, ctrl::Role::kAdmin, "*"));
                      api.key_rotation = seconds(1);
                      api.unix_time_s = [this] { return now_s.load(); };
                      return api;
                    }()};
  std::unique_ptr<ctrl::Client> admin = registry.client(kAdmin);
  std::string last_id;  // of the last token
};

inline std::int64_t newest_key(PeerAgent& agent) { return number_in(to_json(agent.info()), "newest_key"); }

inline Result<std::int64_t> add(PeerAgent& agent, const std::string& peer) {
  return agent.peer(peer).call<std::int64_t>("calc", "add", 1, 2).wait(kSoon);
}

inline void check_adds(PeerAgent& agent, const std::string& peer) {
  const auto sum = add(agent, peer);
  CHECK_MESSAGE(sum.has_value(), sum.status().to_string());
}

}  // namespace slime::test
