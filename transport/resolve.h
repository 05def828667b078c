#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/function.h"
#include "base/mutex.h"
#include "base/result.h"
#include "transport/loop.h"

namespace slime::transport {

using Addresses = std::vector<SocketAddress>;

// One question to a Resolver; destroying it withdraws the question. Thread: the loop that asked.
class Lookup {
 public:
  virtual ~Lookup() = default;
};

// Looks up host names on threads of its own, at most limits::kResolverThreads, which end when no
// question waits. getaddrinfo() cannot be interrupted: if a question is withdrawn while its thread
// is inside that call, the thread stays occupied until the call returns. Thread: any.
class Resolver {
 public:
  using Function = std::function<Result<Addresses>(const Address&)>;
  using Answer = UniqueFunction<void(Result<Addresses>)>;

  explicit Resolver(Function function);
  ~Resolver();  // waits for the lookups that are in progress

  // Looks up `address` and calls `answer` once on the loop, in a later turn. The loop must outlive
  // the returned Lookup.
  std::unique_ptr<Lookup> ask(Loop& loop, const Address& address, Answer answer);

 private:
  struct Question;
  class Handle;
  struct Shared {
    explicit Shared(Function f) : function(std::move(f)) {}
    const Function function;
    Mutex mutex;
    CondVar idle;
    std::deque<std::shared_ptr<Question>> waiting SLIME_GUARDED_BY(mutex);
    std::size_t threads SLIME_GUARDED_BY(mutex) = 0;
  };
  static void deliver(const std::shared_ptr<Question>& question, Result<Addresses> found);
  static void work(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;
};

// Calls getaddrinfo(), which blocks. If it fails, returns kUnavailable, because a later attempt may
// succeed.
Result<Addresses> look_up(const Address& address);

// Returns the resolver of this process, which uses look_up(). It is never destroyed, because
// look-ups may last until the process ends.
Resolver& system_resolver();

}  // namespace slime::transport
