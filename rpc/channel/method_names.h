#pragma once

// Private to rpc: names and numbers of the methods of both sides.

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

// A method of the peer. `id` replaces the method's names in requests; 0: the peer has told no
// number yet.
struct PeerMethod {
  std::string service;
  std::string method;
  std::uint32_t id = 0;
  std::uint64_t signature = 0;  // that its callers expect; 0: any
  // Entries of the method for callers that require a signature, one entry for each signature.
  // Requests carry the signature until the peer has told a number for method and signature.
  std::vector<std::unique_ptr<PeerMethod>> by_signature{};
};

// A method of this side that the peer has called. Its number is its position in the list, counted
// from 1.
struct ServedMethod {
  std::shared_ptr<const CallNames> names;
  Server::Found found;
};

// Finds the peer's methods by name, and this side's methods by the name or number in a request. A
// number never changes its meaning. Pointers to methods are valid as long as this object. Thread:
// the loop.
class MethodNames {
 public:
  // If `server` is null, no method of this side gets a number.
  MethodNames(std::string peer_name, const Server* server)
      : peer_name_(std::move(peer_name)), server_(server) {}

  // ---- asking
  // Sets `known` to the entry of the peer's method; null if too many methods are known. Returns
  // kInvalidArgument for an invalid name.
  Status find(std::string_view service, std::string_view method, PeerMethod*& known) {
    // Fast path for the method that was found last: most callers call one method repeatedly.
    if (last_ == nullptr || last_->method != method || last_->service != service)
      return find_another(service, method, known);
    known = last_;
    return {};
  }
  // Returns the entry of `method` for callers that require this signature; null if too many
  // signatures are known.
  static PeerMethod* find_by_signature(PeerMethod& method, std::uint64_t signature);
  // Returns the peer's method with this number; null if the number is unknown.
  [[nodiscard]] const PeerMethod* numbered(std::uint32_t id) const;

  // ---- serving
  // Returns the method that a request calls. If the method has no number, fills and returns
  // `unnumbered`. Sets `new_id` to the number that the answer has to tell the peer; 0: none.
  // kUnimplemented: the method has another signature than the request requires. kCorrupt: an
  // invalid number or name.
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
