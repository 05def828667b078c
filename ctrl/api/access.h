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

// Decides which requests nanoctrl accepts at all: by token, by Host and Origin header, and by
// request rate. Principal decides what a token permits. Thread: any.
class Access {
 public:
  // `options` and `engine` outlive this.
  Access(const ApiOptions& options, const Engine& engine);

  // Returns the principal of the request's token, or one without a token where none is needed.
  // kUnauthenticated otherwise.
  [[nodiscard]] Result<Principal> identify(const ApiRequest& request) const;
  // Checks a request without a token where ApiOptions::only_loopback_names matters: its Host and
  // Origin must name this machine. `open`: the route needs no token.
  [[nodiscard]] Status check_names(const ApiRequest& request, bool open) const;
  // Counts one request of the token. kResourceExhausted when the token is over its rate.
  Status take_turn(const Principal& principal);

  // The admin token of ApiOptions: one entry, or empty.
  [[nodiscard]] std::shared_ptr<const Tokens> admin_tokens() const;
  // Replaces the admin token. Only valid if there is one.
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
