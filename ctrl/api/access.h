#pragma once

#include <memory>

#include "base/mutex.h"
#include "base/result.h"
#include "ctrl/api/auth.h"
#include "ctrl/api/options.h"
#include "ctrl/http/http.h"
#include "ctrl/http/rates.h"
#include "ctrl/store/engine.h"

namespace slime::ctrl {

// Decides which requests nanoctrl accepts: by token, by Host and Origin header, and by request
// rate. Class Principal then decides what the token permits. Thread: any.
class Access {
 public:
  // `options` and `engine` outlive this.
  Access(const ApiOptions& options, const Engine& engine);

  // Returns the principal of the request's token. If no token is required, returns a principal with
  // an empty token_id and all rights. kUnauthenticated if a required token is missing or invalid.
  [[nodiscard]] Result<Principal> identify(const ApiRequest& request) const;
  // Checks that the Host and Origin of a request without a token name this machine, if
  // ApiOptions::only_loopback_names is set. `open`: the route needs no token.
  [[nodiscard]] Status check_names(const ApiRequest& request, bool open) const;
  // Counts one request against the rate limit of the principal's token. kResourceExhausted when the
  // rate is exceeded.
  Status take_turn(const Principal& principal);

  // Returns the administrator's token from ApiOptions, as a map with one entry; empty if the
  // options have none.
  [[nodiscard]] std::shared_ptr<const Tokens> admin_tokens() const;
  // Replaces the administrator's token. Only valid if ApiOptions::admin_token was set.
  void set_admin_token(TokenRecord token);

 private:
  [[nodiscard]] bool requires_token(const Registry& registry) const;

  const ApiOptions& options_;
  const Engine& engine_;
  mutable Mutex admin_mutex_;
  std::shared_ptr<const Tokens> admin_ SLIME_GUARDED_BY(admin_mutex_);
  Mutex rates_mutex_;
  Rates rates_ SLIME_GUARDED_BY(rates_mutex_);  // per token
};

}  // namespace slime::ctrl
