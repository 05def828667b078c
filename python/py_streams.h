#pragma once

#include <memory>
#include <utility>

#include "agent/peer_agent.h"
#include "python/binding.h"
#include "python/py_agent.h"

namespace slime::python {

// One end of a stream for Python, with messages as bytes. Thread: holds the GIL.
class PyStreamEnd {
 public:
  // `result`: for the caller's end, the future of the call; dropping that future cancels a stream
  // that has not ended. Invalid for a handler's end: the answer of the request ends the stream.
  // `agent`: makes progress for the futures, or None.
  PyStreamEnd(std::shared_ptr<rpc::StreamEnd> end, Future<Payload> result, nb::object agent)
      : held_(std::make_shared<Held>(std::move(end), std::move(result))), agent_(std::move(agent)) {}
  PyStreamEnd(PyStreamEnd&&) = default;

  nb::object write(nb::handle message) const;
  nb::object read(nb::handle decode) const;
  void close_writing() const { held_->end->close_writing(); }
  void start_reading() const { held_->end->start_reading(); }
  void cancel() const { held_->result.cancel(); }
  void drop() const {
    if (!held_.forked()) held_->drop();
  }
  static int traverse(PyObject* self, visitproc visit, void* arg);
  static int clear(PyObject* self);

 private:
  struct Held {
    std::shared_ptr<rpc::StreamEnd> end;
    Future<Payload> result;
    Held(std::shared_ptr<rpc::StreamEnd> e, Future<Payload> r) : end(std::move(e)), result(std::move(r)) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { drop(); }
    void drop() {
      if (!result.valid()) return;
      result.cancel();
      end->discard();
    }
  };
  ForkGuarded<Held> held_;
  nb::object agent_;
};

// Returns the handler's end of the stream that the request opened. Returns None if the request
// opened no stream, or the stream has ended.
nb::object stream_of(rpc::Request& request);
void bind_streams(nb::module_& m, nb::class_<PyPeer>& peer);

}  // namespace slime::python
