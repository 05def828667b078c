#pragma once

// Private to rpc: the methods that the two sides of a channel have named to each other.

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "rpc/codec/frame.h"
#include "rpc/server.h"
#include "rpc/service.h"

namespace slime::rpc {

// A method of the peer, and the number that stands for its names in requests; 0: none yet.
struct PeerMethod {
  std::string service;
  std::string method;
  std::uint32_t id = 0;
  std::uint64_t signature = 0;  // that its callers take it for; 0: anything
  // The same method for callers with a signature: each sends its signature until it has a number of its own.
  std::vector<std::unique_ptr<PeerMethod>> by_signature{};
};

// A method of this side that the peer has called; its number is its place among them.
struct ServedMethod {
  std::shared_ptr<const CallNames> names;
  Server::Found found;
};

// Finds the peer's methods by the names that callers use, and this side's by the names or numbers in
// requests. A number means its names for ever, or nothing. Addresses of methods last as long as this object.
// Thread: the loop.
class MethodNames {
 public:
  // `server` may be null: no method gets a number.
  MethodNames(std::string peer_name, const Server* server)
      : peer_name_(std::move(peer_name)), server_(server) {}

  // ---- asking
  // Sets `known` to where the peer's number for the method is kept; null when too many are known.
  // kInvalidArgument for a name that is none.
  Status find(std::string_view service, std::string_view method, PeerMethod*& known) {
    // Most callers call one method again and again.
    if (last_ == nullptr || last_->method != method || last_->service != service)
      return find_another(service, method, known);
    known = last_;
    return {};
  }
  // Returns `method` for callers with this signature; null when too many signatures are known.
  static PeerMethod* find_by_signature(PeerMethod& method, std::uint64_t signature);
  // Returns the method with this number of the peer's, or null.
  [[nodiscard]] const PeerMethod* numbered(std::uint32_t id) const;

  // ---- serving
  // Returns the method of a request, which may be `unnumbered`. Sets `new_id` to the number by which the peer
  // calls it from now on; 0: nothing new. kUnimplemented: the method has another signature than the request.
  // kCorrupt: a number or a name that is none.
  Result<ServedMethod*> identify(const wire::Frame& frame, ServedMethod& unnumbered, std::uint32_t& new_id) {
    const std::uint32_t id = frame.header.method;
    if (id == 0 || id > served_.size()) return identify_names(frame, unnumbered, new_id);
    return &served_[id - 1];
  }

 private:
  Status find_another(std::string_view service, std::string_view method, PeerMethod*& known);
  Result<ServedMethod*> identify_names(const wire::Frame& frame, ServedMethod& unnumbered,
                                       std::uint32_t& new_id);
  [[nodiscard]] Status check_signature(const wire::Frame& frame) const;

  const std::string peer_name_;
  const Server* const server_;
  std::map<std::string, std::map<std::string, PeerMethod, std::less<>>, std::less<>> asked_;
  PeerMethod* last_ = nullptr;
  std::size_t asked_count_ = 0;
  std::map<std::pair<std::string, std::string>, std::uint32_t, std::less<>> served_ids_;
  std::deque<ServedMethod> served_;  // by id - 1
};

}  // namespace slime::rpc
