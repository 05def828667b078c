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

// Looks up host names on threads of its own, at most limits::kResolverThreads, which end when there
// is nothing to do. getaddrinfo() cannot be interrupted: a question that is withdrawn while its
// thread is in there costs that thread until it returns, and nothing else. Thread: any.
class Resolver {
 public:
  using Function = std::function<Result<Addresses>(const Address&)>;
  using Answer = UniqueFunction<void(Result<Addresses>)>;

  explicit Resolver(Function function);
  ~Resolver();  // waits for the lookups that are under way

  // Calls `answer` once on the loop, in a later turn. The loop outlives the Lookup.
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

// Calls getaddrinfo(), which blocks. Returns kUnavailable with the reason: names come and go.
Result<Addresses> look_up(const Address& address);

// Returns the resolver of the process, over look_up(). Lives as long as the process, because
// look-ups may.
Resolver& system_resolver();

}  // namespace slime::transport
