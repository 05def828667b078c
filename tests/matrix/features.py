"""The features of SlimeRPC that the matrix tests between programs of each language."""

from __future__ import annotations

from typing import List, NamedTuple

LANGUAGES = ("cpp", "python")


class Feature(NamedTuple):
    name: str
    does: str  # what the client does
    sees: str  # the expected result


FEATURES: List[Feature] = [
    # ---- contents of calls
    Feature("call_ints", "echoes ints at the edges of 5 to 64 bits, and bools", "the same numbers"),
    Feature("call_floats", "echoes floats: smallest, largest, infinite, -0.0, NaN", "the same floats"),
    Feature("call_texts", "echoes texts of 0 to 70,000 bytes, with NUL and beyond ASCII", "the same texts"),
    Feature("call_bytes", "echoes all byte values", "bytes, not a text"),
    Feature("call_none", "sends none, gets none, calls what has no result", "none"),
    Feature("call_nested", "echoes lists of maps of lists, and a map by number", "the same"),
    Feature("call_kinds", "sends one value of each kind", "that the server got these kinds"),
    Feature("call_struct", "sends named fields in another order, with one too many", "the fields by their names"),
    Feature("metadata", "calls with texts beside the arguments", "the handler has them, and no other call does"),
    Feature("metadata_limit", "sends more than 4,096 bytes of them", "resource_exhausted; not executed"),
    Feature("signature", "calls a method as what it is, and as another one", "unimplemented, with both; not executed"),
    Feature("trace", "sends a traceparent, by hand and by an interceptor", "the same trace, a new span"),
    Feature("interceptors_server", "calls what an interceptor watches, adds to, refuses", "before, after, outcome"),
    Feature("interceptors_client", "has an interceptor add metadata, and refuse", "what it added, and each outcome"),
    Feature("timing", "asks where the time of a 20 ms call went", "queue, handler, network; their sum"),
    # ---- endings of calls
    Feature("error_codes", "lets the handler fail with each code", "the code, the text, maybe_executed"),
    Feature("error_thrown", "lets the handler throw", "internal with the text; the next call works"),
    Feature("error_unknown", "calls an unknown method, an unknown service", "not_found that names it; not executed"),
    Feature("error_arguments", "sends too few, too many, no array, no msgpack", "invalid_argument; not executed"),
    Feature("deadline_expires", "calls what outlives its deadline", "deadline_exceeded, maybe executed"),
    Feature("deadline_travels", "calls with a minute, with an hour", "the handler knows what is left"),
    Feature("deadline_drops_queued", "lets a call expire in the server's queue", "it never ran"),
    Feature("cancel", "cancels a call that runs", "cancelled, and the handler is told"),
    Feature("cancel_by_disconnect", "closes the agent of a call that runs", "the handler is told"),
    Feature("one_way", "calls ten times without answers", "ten executions, no failure"),
    Feature("one_way_failure", "makes such a call fail, another one reach no method", "both counted"),
    # ---- servers
    Feature("limit_queue", "fills a server's queue", "resource_exhausted for one more; the others run"),
    Feature("limit_running", "calls a method twice that runs once at a time", "one runs; other methods go on"),
    Feature("priorities", "queues calls of low, normal and high priority", "the high one runs first"),
    Feature("drain", "drains a server while a call runs", "unavailable and not executed meanwhile; the call ends well"),
    Feature("stuck_handler", "drains a server one of whose handlers does not return", "the bound holds; others run"),
    Feature("health", "asks for the health of server, service, nobody", "serving, serving, unknown"),
    Feature("reflection", "asks what is served", "names and types of parameters, result and doc"),
    Feature("proxy_round_robin", "calls a service of two providers", "an equal share for each"),
    Feature("proxy_idempotent", "calls what fails twice, idempotent and not", "three executions; one and the error"),
    Feature("proxy_failover", "kills a provider by its pid", "every call after that answered by another"),
    # ---- bytes
    Feature("large_bodies", "echoes 0 B, 1 B, all around 8 KiB, 1 MiB, 16 MiB + 1", "the same bytes"),
    Feature("raw", "calls methods of bytes, with none to 1 MiB", "them reversed, at a multiple of 8"),
    Feature("raw_refused", "calls one with arguments, another method with bytes", "unimplemented; not executed"),
    Feature("big_refused", "sends more than the inbox takes", "resource_exhausted that says so; calls go on"),
    Feature("messages", "sends by tag, has it sent back reversed", "the bytes, of 0 B to 3 MiB"),
    Feature("regions", "reads and writes published memory, two blocks at once", "the server's bytes, and its view"),
    Feature("region_refusals", "writes what is read-only, reads beyond, asks for none", "one code for each"),
    Feature("notify", "writes with a notification", "the number, once the bytes are there"),
    Feature("atomics", "adds and swaps in published memory", "what was there before"),
    Feature("call_backs", "calls 50 handlers that each call back", "the results, over one connection"),
    # ---- streams
    Feature("stream_server", "reads a stream of 1,000", "each, in order; the end"),
    Feature("stream_client", "writes a stream of 1,000", "their sum"),
    Feature("stream_both", "writes and reads in turns, up to 300 kB", "the same messages"),
    Feature("stream_half_close", "closes its direction, then reads", "the answer behind that"),
    Feature("stream_error", "reads what fails behind five messages", "the five, then the error"),
    Feature("stream_unknown", "opens a stream to no method", "not_found; not executed"),
    Feature("stream_credits", "does not read, then does", "the writer stops at the window, and goes on"),
    Feature("stream_cancel", "cancels a stream, drops another", "both handlers are told"),
    # ---- attachments
    Feature("attach_small", "echoes attachments of 0 to 3,000 B", "the same; nothing read apart"),
    Feature("attach_large", "echoes 4 MiB + 1", "the same; no byte copied"),
    Feature("attach_into", "names memory for the reply, too small for another", "it lies there; refused"),
    Feature("attach_release", "lends memory for a call", "it is free again; nothing is lent"),
]
