// Empty: precompiled.h is compiled with it, since main.cc does without.
