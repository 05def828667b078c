#include "rpc/service.h"

#include <utility>

#include "base/check.h"
#include "base/str.h"

namespace slime::rpc {
namespace {

// Length of the UTF-8 sequence at the start of `text`; 0 when it is none (overlong forms and surrogates
// included).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool out_of_range = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
  return overlong || out_of_range ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace

Status validate_name(std::string_view what, std::string_view name) {
  const auto bad = [&](const auto&... why) {
    return Status(Code::kInvalidArgument, str("the name of a ", what, why...));
  };
  if (name.empty()) return bad(" is empty");
  if (name.size() > limits::kNameBytes) return bad(" is longer than ", limits::kNameBytes, " bytes");
  for (std::string_view rest = name; !rest.empty();) {
    const std::size_t length = utf8_length(rest);
    if (length == 0) return bad(" is not UTF-8");
    if (length == 1 && (static_cast<unsigned char>(rest[0]) < 0x20 || rest[0] == 0x7f))
      return bad(" has a control character");
    rest.remove_prefix(length);
  }
  return {};
}

Request::~Request() {
  if (responder_) {
    answer(Status(Code::kInternal, str("the handler of ", info_.service, ".", info_.method,
                                       " dropped the request without an answer"))
               .with_maybe_executed(true));
  }
}

void Request::answer(Result<ByteVector>&& reply) {
  SLIME_CHECK(responder_ != nullptr);  // a request is answered once
  const std::shared_ptr<Responder> responder = std::move(responder_);
  responder->respond(ticket_, std::move(reply));
  body_.release();  // its slot may take the next message
  if (tracker_ == nullptr) return;
  const std::shared_ptr<Tracker> tracker = std::move(tracker_);
  tracker->answered();
}

bool Request::cancelled() const {
  return responder_ != nullptr && responder_->cancelled(ticket_, info_.deadline);
}

void Request::on_cancel(Task task) {
  if (responder_ != nullptr) responder_->on_cancel(ticket_, std::move(task));
}

void Request::attach(Attachments attachments) {
  if (responder_ != nullptr && !attachments.empty()) responder_->attach(ticket_, std::move(attachments));
}

void Request::reply(ByteVector body) { answer(std::move(body)); }
void Request::fail(Status status) {
  SLIME_CHECK(!status.ok());
  answer(std::move(status).with_maybe_executed(true));
}
void Request::refuse(Status status) {
  SLIME_CHECK(!status.ok());
  answer(std::move(status).with_maybe_executed(false));
}

Status Service::add_typed(std::string_view method, RawHandler handler, MethodOptions options,
                          MethodInfo info) {
  const std::size_t named = options.parameters.size();
  if (named != 0 && named != info.parameters.size()) {
    return Status(Code::kInvalidArgument, str("method '", method, "' takes ", info.parameters.size(),
                                              " arguments, but the names of ", named, " are given"));
  }
  for (std::size_t i = 0; i < named; ++i) info.parameters[i].name = std::move(options.parameters[i]);
  info.doc = std::move(options.doc);
  return add_method(method, {.handler = std::move(handler),
                             .run = options.run,
                             .max_running = options.max_running,
                             .priority = options.priority,
                             .borrows = true,
                             .info = std::move(info)});
}

Status Service::add_raw(std::string_view method, RawHandler handler, MethodOptions options) {
  MethodInfo info;
  for (std::string& name : options.parameters) info.parameters.push_back({.name = std::move(name)});
  if (info.parameters.empty()) info.parameters.push_back({.rest = true});
  info.doc = std::move(options.doc);
  return add_method(method, {.handler = std::move(handler),
                             .run = options.run,
                             .max_running = options.max_running,
                             .priority = options.priority,
                             .info = std::move(info)});
}

Status Service::add_raw(std::string_view method, RawHandler handler, Run run, MethodInfo info) {
  return add_method(method, {.handler = std::move(handler), .run = run, .info = std::move(info)});
}

Status Service::add_method(std::string_view name, Method method) {
  SLIME_TRY(validate_name("method", name));
  for (const ParameterInfo& parameter : method.info.parameters) {
    if (!parameter.name.empty()) SLIME_TRY(validate_name("parameter", parameter.name));
  }
  if (!is_utf8(method.info.doc)) {
    return Status(Code::kInvalidArgument, str("the doc of method '", name, "' is not UTF-8"));
  }
  if (!method.handler) return Status(Code::kInvalidArgument, str("no handler for method '", name, "'"));
  if (served_) {
    return Status(Code::kInvalidArgument, str("service '", name_, "' is served: add '", name, "' before"));
  }
  if (methods_.find(name) != methods_.end()) {
    return Status(Code::kAlreadyExists, str("service '", name_, "' has a method '", name, "' already"));
  }
  method.info.name = name;
  methods_.emplace(name, std::make_shared<Method>(std::move(method)));
  return {};
}

}  // namespace slime::rpc
