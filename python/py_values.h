#pragma once

#include <memory>
#include <utility>

#include "python/binding.h"
#include "rpc/attachment.h"
#include "rpc/payload.h"

// Converts common Python values to msgpack and back. slime._attachments (in Python) handles all
// other values, and all values that these functions find invalid.
namespace slime::python {

// Encodes None, bool, int, float, str, bytes, bytearray, list, tuple, dict and NumPy arrays of
// plain numbers in C order, of exactly these types. Returns false for other values, which
// slime._attachments.pack() must encode; the contents of `out` are undefined then. Raises the
// errors of lent(). Thread: holds the GIL.
bool encode_value(nb::handle value, rpc::AttachedBody& out);

// Decodes a body. Returns an invalid object if slime._attachments.unpack() must decode the body;
// the payload is unchanged then. Thread: holds the GIL.
nb::object decode_value(const rpc::Payload& payload);

// Function object that decodes a reply, for make_call_future(). May be called again, also on
// another thread at the same time.
class ReplyValue {
 public:
  nb::object operator()(rpc::Payload& payload);
  // Drops the payload's references to the attachments, so that only the decoded value keeps them.
  void value_taken() {
    if (kept_) kept_->drop_attachments();
  }

 private:
  std::shared_ptr<rpc::Payload> kept_;
};

void bind_values(nb::module_& m);

}  // namespace slime::python
