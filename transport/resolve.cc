#include "transport/resolve.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fork.h"
#include "base/str.h"
#include "base/thread.h"
#include "transport/limits.h"

namespace slime::transport {

// One question, shared by its Lookup, the thread that looks the name up, and the posted task that
// delivers the answer.
struct Resolver::Question {
  Question(Loop& l, Address a, Answer f) : address(std::move(a)), answer(std::move(f)), loop(&l) {}
  const Address address;
  Answer answer;  // on the loop only
  Mutex mutex;
  // null after the Lookup was destroyed, so that no thread touches a loop that may be gone
  Loop* loop SLIME_GUARDED_BY(mutex);
};

class Resolver::Handle final : public Lookup {
 public:
  explicit Handle(std::shared_ptr<Question> question) : question_(std::move(question)) {}
  ~Handle() override {
    const MutexLock lock(question_->mutex);
    question_->loop = nullptr;
  }

 private:
  const std::shared_ptr<Question> question_;
};

Resolver::Resolver(Function function) : shared_(std::make_shared<Shared>(std::move(function))) {}

Resolver::~Resolver() {
  const MutexLock lock(shared_->mutex);
  shared_->waiting.clear();
  shared_->idle.wait(shared_->mutex,
                     [this]() SLIME_REQUIRES(shared_->mutex) { return shared_->threads == 0; });
}

std::unique_ptr<Lookup> Resolver::ask(Loop& loop, const Address& address, Answer answer) {
  auto question = std::make_shared<Question>(loop, address, std::move(answer));
  const MutexLock lock(shared_->mutex);
  if (shared_->threads < limits::kResolverThreads) {
    try {
      make_thread(&Resolver::work, shared_).detach();
      ++shared_->threads;
    } catch (const std::system_error& error) {
      if (shared_->threads == 0) {
        deliver(question,
                Status(Code::kResourceExhausted, str("no thread to look up a name: ", error.what())));
        return std::make_unique<Handle>(std::move(question));
      }
    }
  }
  shared_->waiting.push_back(question);
  return std::make_unique<Handle>(std::move(question));
}

// Posts the answer to the question's loop, unless the question was withdrawn.
void Resolver::deliver(const std::shared_ptr<Question>& question, Result<Addresses> found) {
  const MutexLock lock(question->mutex);
  if (question->loop == nullptr) return;
  question->loop->post([question, result = std::move(found)]() mutable {
    {
      const MutexLock inner(question->mutex);
      if (question->loop == nullptr) return;
    }
    question->answer(std::move(result));
  });
}

void Resolver::work(const std::shared_ptr<Shared>& shared) {
  for (;;) {
    std::shared_ptr<Question> question;
    {
      const MutexLock lock(shared->mutex);
      if (shared->waiting.empty()) {
        --shared->threads;
        shared->idle.notify_all();
        return;
      }
      question = std::move(shared->waiting.front());
      shared->waiting.pop_front();
    }
    {
      const MutexLock lock(question->mutex);
      if (question->loop == nullptr) continue;
    }
    deliver(question, shared->function(question->address));
  }
}

Result<Addresses> look_up(const Address& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    const std::string why =
        error == EAI_SYSTEM ? from_errno("getaddrinfo", errno).text() : ::gai_strerror(error);
    return Status(Code::kUnavailable, str("the name '", address.host, "' could not be looked up: ", why));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Addresses out;
  for (const addrinfo* a = found; a != nullptr && out.size() < limits::kResolvedAddresses; a = a->ai_next)
    out.emplace_back(a->ai_addr, a->ai_addrlen);
  return out;
}

namespace {

struct SystemResolver {
  Resolver resolver{&look_up};
};
// One resolver per process: a child of fork() needs its own, because its parent's threads do not
// exist in the child.
constinit PerProcess<SystemResolver> system;

}  // namespace

Resolver& system_resolver() { return system.get().resolver; }

}  // namespace slime::transport
