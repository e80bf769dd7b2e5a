/* Whether this build runs under a sanitizer, which costs time, keeps freed memory, and needs calls
 * of its own: filters and limits make room for it. gcc defines the first two, clang has features.
 */
#ifndef CF_SANITIZED_H
#define CF_SANITIZED_H

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define CF_SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) ||                         \
    __has_feature(thread_sanitizer)
#define CF_SANITIZED 1
#endif
#endif
#ifndef CF_SANITIZED
#define CF_SANITIZED 0
#endif

#endif
