#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/outage.h"
#include "transport/provider.h"
#include "transport/verbs/context.h"
#include "transport/verbs/parameters.h"

namespace slime::transport::verbs {

// Describes the path between the two sides, and why it failed, for people. Thread: the loop.
class Path {
 public:
  struct Ends {
    Parameters ours;
    Parameters peer;
    ibv_mtu mtu{};
    RetryPolicy retries;
  };
  // `side`: describes the side channel.
  Path(std::shared_ptr<Context> context, const Ends& ends, std::string peer_name, std::string side)
      : context_(std::move(context)), ends_(ends), peer_name_(std::move(peer_name)), side_(std::move(side)) {}

  [[nodiscard]] const std::string& peer_name() const { return peer_name_; }
  // Returns a text with device, port, both GIDs, queue pairs, MTU and the retry settings.
  [[nodiscard]] std::string text() const;
  // Returns the error of a connection that was lost because of `cause`, with the code of `cause`.
  [[nodiscard]] Status lost(const Status& cause) const;
  // Like lost(), but the code is always kUnavailable.
  [[nodiscard]] Status unavailable(const Status& cause) const;
  // Returns the error for an error completion of `work` ("read", "message"). If the port is down,
  // names that as the cause, unless the peer answered: drivers report a request that cannot leave
  // in many ways.
  [[nodiscard]] Status explain(std::string_view work, const ibv_wc& completion) const;

 private:
  const std::shared_ptr<Context> context_;
  const Ends ends_;
  const std::string peer_name_;
  const std::string side_;
};

}  // namespace slime::transport::verbs
