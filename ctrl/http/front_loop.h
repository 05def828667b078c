#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "ctrl/audit.h"
#include "ctrl/http/framing.h"
#include "ctrl/http/front.h"
#include "ctrl/http/front_mailbox.h"
#include "ctrl/http/parking.h"
#include "ctrl/http/rates.h"
#include "ctrl/http/tls.h"

namespace slime::ctrl {

// What the loop counts, for whoever looks. Thread: any.
struct FrontGauges {
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> parked{0};
  std::atomic<std::size_t> refused{0};
};

// The event loop of a Front: its connections, their deadlines and their parked requests. Thread: the one that
// calls run().
class FrontLoop {
 public:
  // All outlive this. `parked` is kept up to date for others to read.
  FrontLoop(const FrontLimits& limits, UniqueFd epoll, UniqueFd listener, const TlsServer* tls,
            IsScan is_scan, FrontMailbox& mailbox, FrontWorkers& workers, FrontGauges& gauges);
  // Until the mailbox says stop and everything under way is answered.
  void run();

 private:
  enum class State {
    kHandshaking,  // TLS
    kIdle,         // between requests
    kReading,      // a part of a request is here
    kWorking,      // a thread has the request; not closed before it is done, so that what it holds is counted
    kParked,
    kWriting,
    kHeld,      // it asked too often, and is read again a little later
    kDraining,  // the last reply is sent; what still comes is thrown away, so that it is not lost
  };
  struct Connection {
    Connection(std::uint64_t number, FrontSocket accepted) : id(number), socket(std::move(accepted)) {}
    const std::uint64_t id;
    FrontSocket socket;
    std::string client;
    std::string tenant;  // the token of who has proved to be its bearer, else the client's address
    State state = State::kIdle;
    Framing framing;
    std::string input;  // from the first byte that no request has taken
    std::string output;
    std::size_t written = 0;           // of output
    std::size_t timed = 0;             // of output, when its deadline was set
    std::unique_ptr<FrontJob> parked;  // in kParked
    std::string parked_key;
    std::size_t job_bytes = 0;  // of a request that was taken and is not answered
    std::size_t counted = 0;    // in buffered_
    std::size_t drained = 0;
    unsigned too_often = 0;  // how many of its requests were refused with 429
    TimePoint deadline = kNever;
    std::list<std::uint64_t>::iterator idle_at;
    std::list<std::uint64_t>::iterator queued_at;  // in queue_; its end: not there
    // What the events said that was not used up yet.
    bool readable = false;
    bool writable = true;
    bool gone = false;  // the other end has said that it sends nothing more
    bool closes = false;
    bool drains = false;
    bool holds = false;  // the reply is a 429
    bool waits = false;  // counts as parked until it is answered
    bool extra = false;  // beyond the limit of connections: only told so
  };
  // What a connection may have before others are looked at. Whoever wants more has it in one of the turns
  // that follow, of which there are few between two looks at everybody: a heartbeat waits for these, not for
  // a hundred replies of a megabyte.
  struct Turn {
    std::size_t bytes = 0;
    bool queued = false;  // one that follows
    bool over = false;
  };

  // Accepting (front_accept.cc).
  void accept_some();
  bool accept_one();
  void admit(UniqueFd fd, std::string client);
  void pause_accepting(bool pause);
  bool evict_idle();

  // One connection. drive() does what can be done now, or what is of one turn; those that return bool say
  // whether to go on, and false may mean that the connection is no more.
  void drive(Connection& c, bool queued = false);
  void drive_queued();
  void line_up(Connection& c);  // for a turn that follows
  // Whether the turn is over; then it says so.
  bool over(bool enough);
  bool advance(Connection& c);
  bool handshake(Connection& c);
  bool read_request(Connection& c);
  bool read_more(Connection& c);
  bool write_reply(Connection& c);
  bool drain(Connection& c);
  void close(Connection& c);

  bool dispatch(Connection& c);
  void submit(Connection& c, std::unique_ptr<FrontJob> job);
  void take_done(std::unique_ptr<FrontJob> job);
  bool park(Connection& c, std::unique_ptr<FrontJob>& job);
  void unpark(Connection& c, bool answer_now);
  void wake(const std::string& key);
  static void note_answer(Connection& c, int status);
  bool refuse_too_often(Connection& c, std::string_view message, bool head, bool closes);
  void begin_reply(Connection& c, std::string reply, bool closes);
  void refuse(Connection& c, int status, std::string_view message);
  ApiReply refusal(int status, std::string_view message);  // which is counted

  void enter(Connection& c, State state);
  void set_deadline(Connection& c, TimePoint deadline);
  void expire();
  void count_bytes(Connection& c);
  void stop_waiting(Connection& c);

  void handle_event(std::uint64_t id, std::uint32_t events);
  void handle_mail();
  void begin_stop();
  [[nodiscard]] bool finished() const;
  [[nodiscard]] int wait_ms() const;

  const FrontLimits limits_;
  const TlsServer* const tls_;
  const IsScan is_scan_;
  FrontMailbox& mailbox_;
  FrontWorkers& workers_;
  FrontGauges& gauges_;
  UniqueFd listener_;
  UniqueFd epoll_;
  TimePoint now_;
  std::uint64_t next_id_;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::size_t extras_ = 0;
  std::size_t jobs_ = 0;  // with the workers
  std::size_t buffered_ = 0;
  std::list<std::uint64_t> idle_;  // the longest idle first
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;
  std::list<std::uint64_t> queue_;  // those whose turn was over, and that are there still
  Turn turn_;                       // of the connection that is driven
  std::size_t handshakes_ = 0;      // steps in this round
  Parking parking_;
  Rates rates_;
  Audit refusals_{Audit::kRefusals};
  TimePoint accept_again_ = kNever;  // not kNever: no file descriptor was left
  bool stopping_ = false;
  TimePoint stop_by_ = kNever;
  std::vector<char> scratch_;
};

}  // namespace slime::ctrl
