#include "tests/e2e/world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/str.h"
#include "base/unique_fd.h"
#include "tests/support/files.h"

namespace slime::test {
namespace {

// A port that is free now. Another program may take it before we do; the start then fails and says
// so.
std::uint16_t free_port() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

bool listens(std::uint16_t port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

}  // namespace

Nanoctrl::Nanoctrl(std::vector<std::string> flags) : flags_(std::move(flags)), port_(free_port()) { start(); }

void Nanoctrl::start() {
  std::vector<std::string> command = {test::built_file("ctrl/nanoctrl"), "server", "--port", str(port_)};
  command.insert(command.end(), flags_.begin(), flags_.end());
  auto process = Process::spawn(command);
  REQUIRE_MESSAGE(process.has_value(), process.status().to_string());
  process_ = std::make_unique<Process>(std::move(*process));
  REQUIRE(eventually([this] { return listens(port_); }, kReady));
}

void Nanoctrl::kill() {
  REQUIRE(process_->kill().ok());
  REQUIRE(process_->wait(kReady).has_value());
  process_.reset();
}

std::string Nanoctrl::url() const { return str("http://127.0.0.1:", port_); }

Process start_peer(const std::string& name, const std::string& ctrl_url, std::uint64_t region_bytes) {
  auto process = Process::spawn({program_beside_this("e2e_peer"), name, ctrl_url, str(region_bytes)});
  REQUIRE_MESSAGE(process.has_value(), process.status().to_string());
  const auto ready = process->read_line(kReady);
  REQUIRE_MESSAGE(ready.has_value(), ready.status().to_string());
  REQUIRE_MESSAGE(ready->rfind("READY ", 0) == 0, *ready);
  return std::move(*process);
}

std::unique_ptr<PeerAgent> start_agent(const std::string& name, const std::string& ctrl_url,
                                       Progress progress) {
  PeerAgentOptions options;
  options.name = name;
  options.provider = provider();
  options.ctrl_url = ctrl_url;
  options.progress = progress;
  options.heartbeat = std::chrono::milliseconds(500);
  auto agent = PeerAgent::start(options);
  REQUIRE_MESSAGE(agent.has_value(), agent.status().to_string());
  return std::move(*agent);
}

}  // namespace slime::test
