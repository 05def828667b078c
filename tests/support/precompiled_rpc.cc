// Empty: the library that precompiled_rpc.h is compiled for.
