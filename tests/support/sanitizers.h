// The sanitizer that a test was built with, for the few tests that need a smaller load under one.
#pragma once

namespace slime::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
inline constexpr bool kThreadSanitizer = false;
#endif

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kAddressSanitizer = true;
#elif defined(__has_feature)
inline constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#else
inline constexpr bool kAddressSanitizer = false;
#endif

// Both need more memory and time, and abort where malloc() would return null.
inline constexpr bool kSanitized = kThreadSanitizer || kAddressSanitizer;

}  // namespace slime::test
