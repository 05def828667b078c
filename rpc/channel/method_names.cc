#include "rpc/channel/method_names.h"

#include "rpc/limits.h"
#include "rpc/text.h"

namespace slime::rpc {

Status MethodNames::find_another(std::string_view service, std::string_view method, PeerMethod*& known) {
  const auto names = asked_.find(service);
  if (names != asked_.end()) {
    const auto found = names->second.find(method);
    if (found != names->second.end()) {
      known = last_ = &found->second;
      return {};
    }
  }
  SLIME_TRY(validate_name("service", service));
  SLIME_TRY(validate_name("method", method));
  if (asked_count_ == limits::kMaxMethods) return {};
  ++asked_count_;
  PeerMethod added{std::string(service), std::string(method)};
  known = last_ = &asked_[added.service].emplace(added.method, std::move(added)).first->second;
  return {};
}

PeerMethod* MethodNames::find_by_signature(PeerMethod& method, std::uint64_t signature) {
  for (const auto& each : method.by_signature) {
    if (each->signature == signature) return each.get();
  }
  if (method.by_signature.size() == limits::kSignatures) return nullptr;
  auto added = std::make_unique<PeerMethod>(PeerMethod{method.service, method.method});
  added->signature = signature;
  return method.by_signature.emplace_back(std::move(added)).get();
}

const PeerMethod* MethodNames::numbered(std::uint32_t id) const {
  if (id == 0) return nullptr;
  for (const auto& [service, methods] : asked_) {
    for (const auto& [name, method] : methods) {
      if (method.id == id) return &method;
      for (const auto& each : method.by_signature) {
        if (each->id == id) return each.get();
      }
    }
  }
  return nullptr;
}

Result<ServedMethod*> MethodNames::identify_names(const wire::Frame& frame, ServedMethod& unnumbered,
                                                  std::uint32_t& new_id) {
  if (frame.header.method != 0) return Status(Code::kCorrupt, "a method id that was never given out");
  if (!validate_name("service", frame.service).ok() || !validate_name("method", frame.method).ok())
    return Status(Code::kCorrupt, "a method name that is none");
  auto names = std::pair(std::string(frame.service), std::string(frame.method));
  SLIME_TRY(check_signature(frame));
  const auto known = served_ids_.find(names);
  if (known != served_ids_.end()) {
    new_id = known->second;
    return &served_[new_id - 1];
  }
  unnumbered.names = std::make_shared<const CallNames>(CallNames{peer_name_, names.first, names.second});
  if (server_ == nullptr || served_.size() >= limits::kMaxMethods ||
      !server_->serves(names.first, names.second))
    return &unnumbered;
  served_.push_back(std::move(unnumbered));
  new_id = static_cast<std::uint32_t>(served_.size());
  served_ids_.emplace(std::move(names), new_id);
  return &served_.back();
}

Status MethodNames::check_signature(const wire::Frame& frame) const {
  const std::uint64_t signature = wire::signature_of(frame);
  if (signature == 0 || server_ == nullptr) return {};
  return server_->check_signature(frame.service, frame.method, signature);
}

}  // namespace slime::rpc
