#pragma once

#include <string>
#include <utility>

#include "base/result.h"
#include "ctrl/api/context.h"
#include "ctrl/api/route.h"
#include "ctrl/http/replies.h"
#include "ctrl/wire/json_bodies.h"

namespace slime::ctrl {

// Answers a request that changes the regions or services in a peer's record. POST adds and removes
// entries; PUT replaces the list. `decode(body, replace)` parses the request, `check(entries)`
// validates the new entries.
template <class Command, class Decode, class Check>
ApiReply update_record(Context& context, const Call& call, const Decode& decode, const Check& check) {
  const std::string scope = call.query.scope(Role::kJoin);
  if (Status status = call.query.finish(); !status.ok()) return reply_error(std::move(status));
  const bool replace = call.request.method == "PUT";
  auto request = decode(call.request.body, replace);
  if (!request) return reply_error(request.error());
  if (Status status = check(request->publish); !status.ok()) return reply_error(std::move(status));
  Outcome out =
      context.submit(Command{scope, call.path[2], request->incarnation, replace, std::move(request->publish),
                             std::move(request->unpublish), call.query.proof(request->session)});
  return out.status.ok() ? reply_ok(wire::encode(out.lease)) : reply_error(std::move(out.status));
}

}  // namespace slime::ctrl
