// Empty: the library exists to precompile precompiled_rpc.h.
