#include "rpc/service.h"

#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "base/utf8.h"

namespace slime::rpc {

const Metadata& CallInfo::metadata() const {
  static const Metadata kNone;
  return names != nullptr && names->extras != nullptr ? names->extras->metadata : kNone;
}

void CallInfo::rebind_names(std::shared_ptr<const CallNames> other) {
  peer = other->peer;
  service = other->service;
  method = other->method;
  names = std::move(other);
}

void Request::mark_started() {
  CallExtras* const extras = info_.names != nullptr ? info_.names->extras.get() : nullptr;
  if (extras != nullptr && extras->clock != nullptr) extras->started = extras->clock->now();
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
  body_.release();  // frees the receive slot
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

std::shared_ptr<StreamEnd> Request::stream() const {
  return responder_ != nullptr ? responder_->stream(ticket_) : nullptr;
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

MethodInfo Service::bytes_info() {
  return {.parameters = {{.name = "body", .type = "raw"}}, .result = "raw"};
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
                             .streams = true,  // the raw handler checks by itself
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
  method.raw = method.info.raw();
  method.streams = method.streams || !method.info.reads.empty() || !method.info.writes.empty();
  methods_.emplace(name, std::make_shared<Method>(std::move(method)));
  return {};
}

}  // namespace slime::rpc
