#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

// One HTTP request and its reply, independent of sockets. Used by the routes (api.h) and the HTTP
// front.
namespace slime::ctrl {

struct ApiRequest {
  std::string_view method;
  std::string_view target;  // path and query as received, percent-encoded
  std::string_view content_type;
  std::string_view body;
  std::string_view authorization = {};  // value of the header
  std::string_view client = {};         // the client's address, without the port
  // False: the handler may park the request instead of answering it. True: it must answer.
  bool answer_now = true;
  // true: the request was parked and is handled again; rate limits have counted it already
  bool again = false;
  std::string_view accept = {};         // value of the header
  std::string_view if_none_match = {};  // value of the header
  std::string_view host = {};           // value of the header
  // value of the Origin header; empty: the request does not come from a web page
  std::string_view origin = {};
  std::string_view session = {};  // value of the header Slime-Session
};

// Returned by a handler instead of a reply. The request is handled again from the start as soon as
// `key` is woken. After `wait` it is handled for the last time, with answer_now.
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
