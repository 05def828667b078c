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

// What a method takes and gives, without any names: "(int, str?, float*) -> list[int]". `?`: may be left out;
// `*`: any number of them; behind the result " reads T" and " writes T" of a method that streams. The types
// are those of reflection. A caller who says it finds out when the method has become another one; it says so
// by its hash, which goes out once for each connection. A cheap value. Thread: any.
class Signature {
 public:
  Signature() = default;  // nothing is known of it
  explicit Signature(std::string_view text);
  explicit Signature(const MethodInfo& method);

  [[nodiscard]] std::string_view text() const { return known_ ? std::string_view(known_->text) : ""; }
  // XXH3, 64 bits, of the text; 0 where a type in it is "any", which goes with everything: not looked at.
  [[nodiscard]] std::uint64_t hash() const { return known_ ? known_->hash : 0; }
  // The same failure, where it says that the method is another one, with what the caller took it for.
  [[nodiscard]] Status explain(Status failure) const;
  // Of the method as it is: kUnimplemented for a caller who takes it for another one.
  [[nodiscard]] Status check(std::string_view service, std::string_view method,
                             std::uint64_t taken_for) const;

 private:
  struct Known {
    std::string text;
    std::uint64_t hash = 0;
  };
  std::shared_ptr<const Known> known_;
};

// A method of a service as its caller knows it, F being what a handler of it looks like:
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
