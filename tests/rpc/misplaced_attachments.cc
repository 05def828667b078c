// An attachment in a place that does not take one does not compile. Each value of SLIME_CASE
// compiles one such mistake; 0 compiles none.
#include "rpc/stream.h"

using namespace slime;
using namespace slime::rpc;

struct Picture {
  std::vector<Attachment> layers;
  MSGPACK_DEFINE(layers)
};

void misplace(Stream<Picture, None>& stream, ServerStream<None, Attachment>& served, const Picture& picture) {
#if SLIME_CASE == 0
  encode_attached_arguments(picture);
  served.finish({});
#elif SLIME_CASE == 1
  stream.write(picture);
#elif SLIME_CASE == 2
  served.write(picture.layers[0]);
#elif SLIME_CASE == 3
  encode_value(picture);
#elif SLIME_CASE == 4
  encode_arguments(1, picture);
#endif
}
