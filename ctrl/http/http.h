#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

// One HTTP request and its reply, without a socket: shared by the routes (api.h) and the HTTP
// front.
namespace slime::ctrl {

struct ApiRequest {
  std::string_view method;
  std::string_view target;  // path and query as received, percent-encoded
  std::string_view content_type;
  std::string_view body;
  std::string_view authorization = {};  // value of the header
  std::string_view client = {};         // the client's address, without the port
  // False: a request that has to wait may be parked instead of answered.
  bool answer_now = true;
  bool again = false;                   // the request was parked; it counts as one request
  std::string_view accept = {};         // value of the header
  std::string_view if_none_match = {};  // value of the header
  std::string_view host = {};           // value of the header
  std::string_view origin = {};         // value of the header; empty: not sent by a web page
  std::string_view session = {};        // value of the header Slime-Session
};

// The request is not answered yet. It is handled again, from the start, as soon as `key` is woken,
// and with answer_now when `wait` is over.
struct Parked {
  std::string key;
  Nanos wait{};
};

struct ApiReply {
  int status = 200;
  std::string body;
  std::string allow = {};  // with 405: the allowed methods
  Nanos retry_after{};     // when not zero: when to try again
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};  // further headers
  std::string token_id = {};                                      // authenticated token; empty: none
  std::optional<Parked> parked = {};                              // if set, the other fields are unused
};

}  // namespace slime::ctrl
