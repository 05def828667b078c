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

// Counters that the loop writes and any thread may read.
struct FrontGauges {
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> parked{0};
  std::atomic<std::size_t> refused{0};
};

// The event loop of a Front: holds the connections, their deadlines and their parked requests.
// Thread: the thread that calls run().
class FrontLoop {
 public:
  // All objects passed by reference or pointer outlive this loop. The loop keeps `gauges` up to
  // date for other threads.
  FrontLoop(const FrontLimits& limits, UniqueFd epoll, UniqueFd listener, const TlsServer* tls,
            IsScan is_scan, FrontMailbox& mailbox, FrontWorkers& workers, FrontGauges& gauges);
  // Runs until FrontMailbox::stop() was called and all requests under way are answered.
  void run();

 private:
  enum class State {
    kHandshaking,  // TLS
    kIdle,         // between requests
    kReading,      // a part of a request has arrived
    // a thread handles the request; the connection stays until the thread is done, even if the
    // client leaves
    kWorking,
    kParked,
    kWriting,
    kHeld,  // exceeded its rate; read again after kHoldTime
    // the last reply was sent; reads and discards input, since a reset could overtake the reply
    kDraining,
  };
  struct Connection {
    Connection(std::uint64_t number, FrontSocket accepted) : id(number), socket(std::move(accepted)) {}
    const std::uint64_t id;
    FrontSocket socket;
    std::string client;
    // ^key of FairQueue: the id of the authenticated token; before a request was authenticated, the
    // client's address
    std::string tenant;
    State state = State::kIdle;
    Framing framing;
    std::string input;  // bytes received that do not belong to a dispatched request
    std::string output;
    std::size_t written = 0;  // of output
    // value of `written` when the deadline of the reply was last set
    std::size_t timed = 0;
    std::unique_ptr<FrontJob> parked;  // in kParked
    std::string parked_key;
    std::size_t job_bytes = 0;  // bytes of the dispatched request, until it is answered
    std::size_t counted = 0;    // this connection's part of buffered_
    std::size_t drained = 0;
    unsigned too_often = 0;  // number of its requests refused with 429
    TimePoint deadline = kNever;
    std::list<std::uint64_t>::iterator idle_at;
    std::list<std::uint64_t>::iterator queued_at;  // in queue_; end() if absent
    // True: epoll has reported the socket as readable, and no read has emptied it since.
    bool readable = false;
    bool writable = true;
    bool gone = false;  // the client sends nothing more
    bool closes = false;
    bool drains = false;
    bool holds = false;  // the reply is a 429
    bool waits = false;  // counts as parked until answered
    // accepted beyond the limit of connections: gets only a refusal
    bool extra = false;
  };
  // How much one connection has done before the others get their turn. A connection with more to do
  // continues in a queued turn. Only a few queued turns run between two calls of epoll_wait(), so
  // that a heartbeat waits for a few turns and not for a hundred replies of a megabyte.
  struct Turn {
    std::size_t bytes = 0;
    bool queued = false;  // a queued turn
    bool over = false;
  };

  // Accepting (front_accept.cc).
  void accept_some();
  bool accept_one();
  void admit(UniqueFd fd, std::string client);
  void pause_accepting(bool pause);
  bool evict_idle();

  // drive() and the functions below do the work of one connection; drive() does as much as one turn
  // allows. A function that returns false tells its caller to stop: the connection may have been
  // destroyed.
  void drive(Connection& c, bool queued = false);
  void drive_queued();
  void line_up(Connection& c);  // for a queued turn
  // Ends the current turn if `enough` is true. Returns whether the turn has ended.
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
  ApiReply refusal(int status, std::string_view message);  // counts the refusal

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
  std::list<std::uint64_t> idle_;  // longest idle first
  std::set<std::pair<TimePoint, std::uint64_t>> deadlines_;
  std::list<std::uint64_t> queue_;  // connections that wait for a queued turn
  Turn turn_;                       // of the connection that is driven
  std::size_t handshakes_ = 0;      // handshake steps in this round
  Parking parking_;
  Rates rates_;
  Audit refusals_{Audit::kRefusals};
  // when to accept connections again, after no file descriptor was left; kNever: accepting now
  TimePoint accept_again_ = kNever;
  bool stopping_ = false;
  TimePoint stop_by_ = kNever;
  std::vector<char> scratch_;
};

}  // namespace slime::ctrl
