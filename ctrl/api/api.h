#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "ctrl/api/options.h"
#include "ctrl/api/prober.h"
#include "ctrl/api/route.h"
#include "ctrl/audit.h"
#include "ctrl/http/http.h"
#include "ctrl/store/engine.h"
#include "ctrl/wire/url.h"

namespace slime::ctrl {

class Context;
struct Resources;

// nanoctrl's HTTP routes over one Registry, without sockets. Identifies the sender, calls the
// route's handler, and records refusals and metrics. A watch without new events is parked, with its
// scope as the key. Thread: any, several at once; a registration may block its thread for a probe.
class Api {
 public:
  // `clock` outlives this.
  Api(ApiOptions options, std::unique_ptr<Engine> engine, const Clock& clock, Prober prober);
  ~Api();
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  ApiReply handle(const ApiRequest& request);

  // Replaces the token of ApiOptions::admin_token. Only valid if the options contained a token.
  void set_admin_token(TokenRecord token);
  // Expires leases and rotates keys that are due. Returns the time until tick() should be called
  // again.
  Nanos tick();
  [[nodiscard]] std::uint64_t epoch() const;
  // Refuses requests from now on (503). Idempotent.
  void stop();

 private:
  ApiReply answer(const ApiRequest& request, const std::optional<Target>& target, const Match& match);
  ApiReply respond(const ApiRequest& request, const Target& target, const Match& match);
  ApiReply route(const Call& call, const Match& match);
  void note_refusal(const Call& call, const ApiReply& reply);

  Audit refusals_{Audit::kRefusals};
  const std::unique_ptr<Context> context_;
  const std::unique_ptr<Resources> resources_;
};

}  // namespace slime::ctrl
