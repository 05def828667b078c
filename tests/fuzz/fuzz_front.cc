#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "ctrl/http/answer.h"
#include "ctrl/http/framing.h"

// Feeds a connection's bytes to the framing of nanoctrl's HTTP: the requests and the refusal must
// not depend on how the bytes are split. The first byte chooses the pieces. Each request is also
// answered.
namespace {

using namespace slime;

struct Found {
  std::vector<ctrl::RawRequest> requests;
  int refused = 0;  // the HTTP status
};

// `piece` returns the size of the next piece, at least 1.
template <class Piece>
Found split(std::string_view stream, Piece piece) {
  Found out;
  ctrl::Framing framing;
  std::string input;
  while (true) {
    const ctrl::Framing::State state = framing.look(input);
    if (state == ctrl::Framing::State::kRefused) {
      out.refused = framing.status();
      return out;
    }
    if (state == ctrl::Framing::State::kComplete) {
      out.requests.push_back(framing.take(input));
      continue;
    }
    framing.takes_continue();
    if (stream.empty()) return out;
    const std::string_view part = stream.substr(0, piece());
    input += part;
    stream.remove_prefix(part.size());
  }
}

void check(bool condition) {
  if (!condition) std::abort();
}

void compare(const Found& a, const Found& b) {
  check(a.refused == b.refused);
  check(a.requests.size() == b.requests.size());
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    const ctrl::RawRequest& x = a.requests[i];
    const ctrl::RawRequest& y = b.requests[i];
    check(x.bytes == y.bytes && x.header_bytes == y.header_bytes && x.head == y.head);
    check(x.part(x.method) == y.part(y.method) && x.part(x.target) == y.part(y.target));
    for (std::size_t h = 0; h < ctrl::kHeaders; ++h) check(x.part(x.headers[h]) == y.part(y.headers[h]));
    check(x.old == y.old && x.keeps_open == y.keeps_open);
  }
}

void answer(const ctrl::RawRequest& request) {
  const ctrl::ApiHandler handler = [&](const ctrl::ApiRequest& api) {
    check(!api.method.empty() && !api.target.empty() && request.header().starts_with(api.method));
    ctrl::ApiReply reply;
    if (api.answer_now) {
      reply.body = api.body;
    } else {
      reply.parked = ctrl::Parked{"key", Nanos(1)};
    }
    return reply;
  };
  check(request.header().ends_with("\r\n\r\n"));
  const ctrl::Handled handled = ctrl::answer(handler, request, {.client = "127.0.0.1", .answer_now = true});
  check(!handled.parked && handled.reply.starts_with("HTTP/1.1 200 OK\r\n"));
  check(handled.close == !request.keeps_open);
  const ctrl::Handled first = ctrl::answer(handler, request, {.client = "127.0.0.1"});
  check(first.parked.has_value() && first.reply.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  Rng rng(data[0]);
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Found whole = split(stream, [&] { return stream.size(); });
  compare(whole, split(stream, [] { return std::size_t{1}; }));
  compare(whole, split(stream, [&] {
            return static_cast<std::size_t>(1 + rng.below(rng.chance(1, 4) ? 5000 : 16));
          }));
  for (const ctrl::RawRequest& request : whole.requests) answer(request);
  return 0;
}
