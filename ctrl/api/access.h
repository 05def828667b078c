#pragma once

#include <memory>
#include <mutex>

#include "base/result.h"
#include "ctrl/api/auth.h"
#include "ctrl/api/options.h"
#include "ctrl/http/http.h"
#include "ctrl/http/rates.h"
#include "ctrl/store/engine.h"

namespace slime::ctrl {

// Decides who may use this nanoctrl at all: by token, by the name that a request has for the server, and by
// the number of requests. What a token's bearer may do is Principal's. Thread: any.
class Access {
 public:
  // `options` and `engine` outlive this.
  Access(const ApiOptions& options, const Engine& engine);

  // Returns the bearer of the request's token, or a principal without a token where nobody needs one.
  // kUnauthenticated otherwise.
  [[nodiscard]] Result<Principal> identify(const ApiRequest& request) const;
  // Returns OK for a request without a token that has a name of this machine as its Host and Origin, wherever
  // ApiOptions::only_loopback_names matters. `open`: the route needs no token.
  [[nodiscard]] Status check_names(const ApiRequest& request, bool open) const;
  // Counts one request of the token. kResourceExhausted when the token has no more in this second.
  Status take_turn(const Principal& principal);

  // The token of the command line: one, or none.
  [[nodiscard]] std::shared_ptr<const Tokens> admin_tokens() const;
  // Replaces that token. Only where there was one.
  void set_admin_token(TokenRecord token);

 private:
  [[nodiscard]] bool requires_token(const Registry& registry) const;

  const ApiOptions& options_;
  const Engine& engine_;
  mutable std::mutex admin_mutex_;
  std::shared_ptr<const Tokens> admin_;
  std::mutex rates_mutex_;
  Rates rates_;  // by token
};

}  // namespace slime::ctrl
