#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

// One HTTP request and its answer, without a socket: what the routes (api.h) and what carries them have in
// common.
namespace slime::ctrl {

struct ApiRequest {
  std::string_view method;
  std::string_view target;  // path and query as sent, still escaped
  std::string_view content_type;
  std::string_view body;
  std::string_view authorization = {};  // that header's value
  std::string_view client = {};         // the address at the other end, without its port
  // False: a request that has to wait for something may be parked instead of answered.
  bool answer_now = true;
  bool again = false;                   // it was parked, and counts as the same request
  std::string_view accept = {};         // that header's value
  std::string_view if_none_match = {};  // that header's value
  std::string_view host = {};           // that header's value
  std::string_view origin = {};         // that header's value; empty: no web page sends this
  std::string_view session = {};        // that of the header Slime-Session
};

// The request is not answered yet: it is to be handled again, from the start, as soon as `key` is woken, and
// with answer_now when `wait` is over.
struct Parked {
  std::string key;
  Nanos wait{};
};

struct ApiReply {
  int status = 200;
  std::string body;
  std::string allow = {};  // with 405: the methods that there are
  Nanos retry_after{};     // when not zero: when it makes sense to try again
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};  // others, ready to send
  std::string token_id = {};          // of who has proved to be its bearer; empty: of nobody
  std::optional<Parked> parked = {};  // then the rest is void
};

}  // namespace slime::ctrl
