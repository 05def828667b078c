// "Matrix" of the C++ server: contents and endings of calls.
#include <chrono>
#include <cstdint>
#include <map>
#include <msgpack/unpack.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/str.h"
#include "tests/matrix/server.h"

namespace slime::matrix {
namespace {

template <class T>
Status add_echo(rpc::Service& service, std::string_view name) {
  return service.add(name, [](T value) { return value; });
}

// Returns the msgpack type of an argument.
std::string kind_of(const msgpack::object& value) {
  switch (value.type) {
    case msgpack::type::NIL:
      return "none";
    case msgpack::type::BOOLEAN:
      return "bool";
    case msgpack::type::POSITIVE_INTEGER:
    case msgpack::type::NEGATIVE_INTEGER:
      return "int";
    case msgpack::type::FLOAT32:
    case msgpack::type::FLOAT64:
      return "float";
    case msgpack::type::STR:
      return "str";
    case msgpack::type::BIN:
      return "bytes";
    case msgpack::type::ARRAY:
      return "list";
    case msgpack::type::MAP:
      return "map";
    default:
      return "ext";
  }
}

void answer_kinds(rpc::Request request) {
  const Bytes body = request.body();
  const auto unpacked = msgpack::unpack(reinterpret_cast<const char*>(body.data()), body.size());
  std::vector<std::string> kinds;
  for (const msgpack::object& each : unpacked->as<std::vector<msgpack::object>>())
    kinds.push_back(kind_of(each));
  request.reply(rpc::encode_value(kinds));
}

Status add_values(rpc::Service& service) {
  SLIME_TRY(add_echo<bool>(service, "echo_bool"));
  SLIME_TRY(add_echo<std::int64_t>(service, "echo_int"));
  SLIME_TRY(add_echo<std::uint64_t>(service, "echo_uint"));
  SLIME_TRY(add_echo<double>(service, "echo_float"));
  SLIME_TRY(add_echo<std::string>(service, "echo_str"));
  SLIME_TRY(add_echo<ByteVector>(service, "echo_bytes"));
  SLIME_TRY(add_echo<std::optional<std::int64_t>>(service, "echo_optional"));
  using Nested = std::vector<std::map<std::string, std::vector<std::int64_t>>>;
  SLIME_TRY(add_echo<Nested>(service, "echo_nested"));
  using Numbered = std::map<std::int64_t, std::string>;
  SLIME_TRY(add_echo<Numbered>(service, "echo_numbered"));
  SLIME_TRY(service.add_raw("kinds", answer_kinds));
  SLIME_TRY(service.add("nothing", [] {}));
  return service.add("mirror", [](const Point& point) {
    return Point{point.y, point.x, point.name + "'", point.tags};
  });
}

ByteVector reversed(Bytes bytes) { return {bytes.rbegin(), bytes.rend()}; }

// Methods of bytes; "raw_place" returns where the bytes were stored.
Status add_raw(rpc::Service& service) {
  SLIME_TRY(service.add_bytes("raw_reverse", reversed));
  SLIME_TRY(service.add_bytes("raw_inline", reversed, {rpc::Run::kInline}));
  return service.add_bytes("raw_place", [](Bytes bytes) {
    return ByteVector{static_cast<std::byte>(reinterpret_cast<std::uintptr_t>(bytes.data()) % 8)};
  });
}

Status add_time(rpc::Service& service) {
  SLIME_TRY(service.add("left_ms", [](const rpc::CallInfo& info) -> std::int64_t {
    if (info.deadline == kNever) return -1;
    return std::chrono::duration_cast<std::chrono::milliseconds>(info.deadline - steady_clock().now())
        .count();
  }));
  return service.add("take_ms", [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); });
}

Status add_context(rpc::Service& service) {
  SLIME_TRY(service.add("metadata", [](const rpc::CallInfo& info, const std::string& key) {
    const auto value = info.metadata(key);
    return value ? std::optional<std::string>(*value) : std::nullopt;
  }));
  return service.add("trace", [] {
    const auto trace = rpc::current_trace();
    return trace ? trace->traceparent() : std::string();
  });
}

// Notes calls with metadata "watch", under its value, and refuses calls with "refuse".
class Watcher final : public rpc::ServerInterceptor {
 public:
  explicit Watcher(Board& board) : board_(board) {}
  Status before(rpc::ServerCall& call) override {
    if (call.info.metadata("refuse")) return {Code::kPermissionDenied, "refused by an interceptor"};
    if (const auto watch = call.info.metadata("watch")) {
      board_.note(*watch, str("before ", call.info.method));
      SLIME_TRY(call.metadata.set("stamp", "by the server"));
    }
    return {};
  }
  void after(const rpc::CallInfo& info, const Status& outcome, const rpc::CallTiming&) override {
    if (const auto watch = info.metadata("watch"))
      board_.note(*watch, str("after ", info.method, " ", code_name(outcome.code())));
  }

 private:
  Board& board_;
};

}  // namespace

std::shared_ptr<rpc::ServerInterceptor> watcher(Board& board) { return std::make_shared<Watcher>(board); }

Status add_calls(World&, rpc::Service& service) {
  SLIME_TRY(service.add("add", [](std::int64_t a, std::int64_t b) { return a + b; },
                        {.parameters = {"a", "b"}, .doc = "The sum."}));
  SLIME_TRY(add_values(service));
  SLIME_TRY(add_raw(service));
  SLIME_TRY(add_time(service));
  SLIME_TRY(add_context(service));
  SLIME_TRY(service.add(
      "fail", [](int code, const std::string& text) { return Status(static_cast<Code>(code), text); }));
  return service.add("throws", [](const std::string& text) { throw std::runtime_error(text); });
}

}  // namespace slime::matrix
