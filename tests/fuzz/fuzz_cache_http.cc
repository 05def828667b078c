#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/str.h"
#include "cache/http_directory.h"
#include "cache/http_routes.h"

// Sends requests to the HTTP routes of a cache, without sockets. The input is "METHOD TARGET HOST
// ORIGIN\nBODY" (host and origin are optional), several requests separated by zero bytes. The
// method PUT is none of HTTP's: it writes BODY to the cache as the manifest of the version TARGET,
// as any peer of the cache may. All requests go to routes with a token, too, without it.
namespace {

using namespace slime;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kMemory = 1 << 20, kSlab = 4096;

class Objects final : public cache::HttpObjects {
 public:
  void put(const std::string& key, std::string_view text) {
    const Bytes bytes = as_bytes(text);
    all_.try_emplace(key, bytes.begin(), bytes.end());  // as in a cache: the first stays
  }
  Result<std::uint64_t> length(std::string_view key) override {
    const auto bytes = get(key);
    if (!bytes) return bytes.error();
    return bytes->size();
  }
  Result<ByteVector> get(std::string_view key) override {
    const auto it = all_.find(key);
    if (it == all_.end()) return none(key);
    return it->second;
  }
  Result<bool> exists(std::string_view key) override { return all_.find(key) != all_.end(); }
  Status remove(std::string_view key) override {
    const auto it = all_.find(key);
    if (it == all_.end()) return none(key);
    all_.erase(it);
    return {};
  }

 private:
  static Status none(std::string_view key) { return {Code::kNotFound, str("no object ", key)}; }
  std::map<std::string, ByteVector, std::less<>> all_;
};

cache::HttpOptions options(std::string token) {
  cache::HttpOptions out{.listen = "127.0.0.1:0", .token = std::move(token)};
  out.memory_bytes = kMemory;
  out.slab_bytes = kSlab;
  return out;
}

struct World {
  Objects objects;
  cache::HttpDirectory directory{objects, kMemory, kSlab};
  cache::HttpRoutes open{options({}), true, [] { return cache::StoreStats{}; }, directory};
  cache::HttpRoutes closed{options("a secret"), false, [] { return cache::StoreStats{}; }, directory};
};

// Checks that a plan is what store() promises to the writer.
void check_plan(const Json& plan) {
  std::uint64_t place = plan.at("version").get<std::uint64_t>() << 32;
  const std::uint64_t begin = place;
  for (const Json& piece : plan.at("assignments")) {
    const auto length = piece.at("length").get<std::uint64_t>();
    SLIME_CHECK(length > 0 && length <= kSlab);
    SLIME_CHECK(piece.at("source_offset").get<std::uint64_t>() == place);
    SLIME_CHECK(piece.at("target_offset").get<std::uint64_t>() <= UINT64_MAX - length);
    place += length;
  }
  SLIME_CHECK(place - begin == plan.at("total_bytes").get<std::uint64_t>() && place - begin <= kMemory);
  SLIME_CHECK(plan.at("slab_ids").size() == plan.at("assignments").size());
}

void check_reply(const ctrl::ApiRequest& request, const ctrl::ApiReply& reply) {
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  if (reply.content_type != "application/json") {
    SLIME_CHECK(path == "/metrics" && reply.status == 200);
    return;
  }
  const Json body = Json::parse(reply.body, nullptr, false);
  SLIME_CHECK(body.is_object());
  if (reply.status == 200) {
    if (path == "/store") check_plan(body);
    return;
  }
  SLIME_CHECK(body.contains("error") && reply.status >= 400);
  // A manifest that is none is the only fault of this side that a request can meet.
  if (reply.status >= 500) SLIME_CHECK(reply.status == 500 && (path == "/query" || path == "/delete"));
}

std::string_view word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view out = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return out;
}

void put(std::string_view target, std::string_view body, Objects& objects) {
  std::uint32_t version = 0;
  std::from_chars(target.data(), target.data() + target.size(), version);
  objects.put(str(version, ".manifest"), body);
  objects.put(std::to_string(version), body);
}

void send(std::string_view request, World& world) {
  const std::size_t line_end = std::min(request.find('\n'), request.size());
  std::string_view line = request.substr(0, line_end);
  const std::string_view body = request.substr(std::min(line_end + 1, request.size()));
  const std::string_view method = word(line), target = word(line), host = word(line);
  if (method == "PUT") return put(target, body, world.objects);
  ctrl::ApiRequest sent{.method = method, .target = target, .content_type = "application/json", .body = body};
  sent.host = host.empty() ? "localhost:80" : host;
  sent.origin = line;
  check_reply(sent, world.open.answer(sent));
  sent.authorization = line;
  const ctrl::ApiReply reply = world.closed.answer(sent);
  const bool health = target.substr(0, target.find('?')) == "/healthz";
  SLIME_CHECK(reply.status == 401 || health || line == "Bearer a secret");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  World world;
  while (true) {
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    send(rest.substr(0, end), world);
    if (end == rest.size()) break;
    rest.remove_prefix(end + 1);
  }
  return 0;
}
