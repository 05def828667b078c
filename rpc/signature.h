#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "rpc/service.h"

namespace slime::rpc {

// The types of a method's parameters and result: "(int, str?, float*) -> list[int]". `?`: the
// argument may be left out; `*`: any number of arguments. A streaming method adds `reads T` and
// `writes T`. The types have the names that reflection uses. A call with a signature fails if the
// peer's method has another signature. Only the hash is sent, normally once for each connection.
// Cheap to copy. Thread: any.
class Signature {
 public:
  Signature() = default;  // unknown
  explicit Signature(std::string_view text);
  explicit Signature(const MethodInfo& method);

  [[nodiscard]] std::string_view text() const { return known_ ? std::string_view(known_->text) : ""; }
  // Returns the 64-bit XXH3 hash of the text. Returns 0 if one of the types is "any": the signature
  // is then not checked, and matches each method.
  [[nodiscard]] std::uint64_t hash() const { return known_ ? known_->hash : 0; }
  // Returns `failure`. If `failure` may mean that the signatures differ, adds the caller's
  // signature to its text.
  [[nodiscard]] Status explain(Status failure) const;
  // Returns kUnimplemented if `expected`, the hash of the signature that a caller requires, differs
  // from hash(). Returns OK if either hash is 0.
  [[nodiscard]] Status check(std::string_view service, std::string_view method, std::uint64_t expected) const;

 private:
  struct Known {
    std::string text;
    std::uint64_t hash = 0;
  };
  std::shared_ptr<const Known> known_;
};

// A method of a service, as a caller names it. F is the function type of the method's handler:
//
//   const rpc::Method<int(int, int)> kAdd("calc", "add");
//   auto sum = peer.call(kAdd, 1, 2);
template <class F>
class Method;
template <class R, class... A>
class Method<R(A...)> {
 public:
  Method(std::string service, std::string name)
      : service_(std::move(service)),
        name_(std::move(name)),
        signature_(detail::TypedHandlerOf<R (*)(A...)>::info()) {}
  [[nodiscard]] const std::string& service() const { return service_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Signature& signature() const { return signature_; }

 private:
  std::string service_;
  std::string name_;
  Signature signature_;
};

}  // namespace slime::rpc
