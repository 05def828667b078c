#pragma once

#include "ctrl/api/context.h"
#include "ctrl/api/route.h"
#include "ctrl/audit.h"

namespace slime::ctrl {

// The routes of tokens: /v1/tokens. Thread: any.
class TokenRoutes {
 public:
  // `context` outlives this.
  explicit TokenRoutes(Context& context) : context_(context) {}
  ApiReply create(const Call& call);
  ApiReply list(const Call& call);
  ApiReply revoke(const Call& call);

 private:
  Context& context_;
  Audit changes_{Audit::kChanges};
};

}  // namespace slime::ctrl
