#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "ctrl/api.h"
#include "ctrl/wire.h"

// Requests into nanoctrl's routes, without sockets: the input is "METHOD TARGET\nBODY", several of them
// separated by a zero byte, all to one server, so that later ones meet what earlier ones left.
namespace {

using namespace slime;

void send(ctrl::Api& api, std::string_view request) {
  const std::size_t line_end = request.find('\n');
  const std::string_view line = request.substr(0, line_end);
  const std::string_view body = line_end == std::string_view::npos ? "" : request.substr(line_end + 1);
  const std::size_t space = line.find(' ');
  const std::string_view method = line.substr(0, space);
  const std::string_view target = space == std::string_view::npos ? "" : line.substr(space + 1);
  const ctrl::ApiReply reply = api.handle({method, target, "application/json", body});
  // Whatever came in, what goes out is a success or our shape of an error, and never a bug of ours.
  if (reply.status == 500) std::abort();
  if (reply.status != 200 && !ctrl::wire::decode_error(reply.body)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ManualClock kClock;
  ctrl::ApiOptions options;
  options.watch_wait_max = Nanos::zero();
  ctrl::Api api(options, std::make_unique<ctrl::MemoryEngine>(ctrl::RegistryOptions{}, kClock), kClock,
                [](const std::string&, const InstanceId&) { return ctrl::ProbeResult::kSilent; });
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (true) {
    const std::size_t end = rest.find('\0');
    send(api, rest.substr(0, end));
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return 0;
}
