#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/str.h"
#include "cli/commands.h"
#include "cli/one_peer.h"
#include "cli/stub_text.h"
#include "rpc/service.h"

namespace slime::cli {
namespace {

constexpr std::string_view kStubs = "stubs";

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

Status write(const std::string& path, const std::string& text) {
  const auto failed = [&path] {
    return Status(Code::kUnavailable, str("cannot write ", path, ": ", std::strerror(errno)));
  };
  std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "w"));
  if (!file) return failed();
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) return failed();
  return std::fclose(file.release()) == 0 ? Status() : failed();
}

// Accepts "a" and "a::b".
bool is_namespace(std::string_view text) {
  for (;;) {
    const std::size_t end = text.find("::");
    if (!is_identifier(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 2);
  }
}

}  // namespace

int stubs(const StubsOptions& options) {
  if (!is_namespace(options.name_space))
    return fail(kStubs, {Code::kInvalidArgument, str("--namespace: '", options.name_space, "' is none")});
  auto peer = OnePeer::open(options.at);
  if (!peer) return fail(kStubs, peer.error());
  auto list = options.at.service.empty() ? (*peer)->services() : (*peer)->service(options.at.service);
  if (!list) {
    const int exit_code = fail(kStubs, list.error());
    if (list.error().code() == Code::kNotFound) (*peer)->suggest(options.at.service, "");
    return OnePeer::interrupted() ? kExitInterrupted : exit_code;
  }
  // Removes the reserved services, which every peer serves: their stubs are made only if --service
  // names one.
  if (options.at.service.empty())
    std::erase_if(*list, [](const auto& each) { return each.name.rfind(rpc::kReservedPrefix, 0) == 0; });
  if (list->empty())
    return fail(kStubs, {Code::kNotFound, str(options.at.peer, " serves nothing of its own")});
  const std::string text = options.language == "cpp"
                               ? cpp_stubs(*list, StubOptions{.name_space = options.name_space})
                               : python_stubs(*list);
  if (options.out.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }
  const Status written = write(options.out, text);
  return written.ok() ? kExitOk : fail(kStubs, written);
}

}  // namespace slime::cli
