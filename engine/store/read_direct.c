/* Reading past the page cache: O_DIRECT, in aligned pieces through an aligned buffer.
 *
 * The file is opened once more, through /proc/self/fd: the same file whatever its name is by now,
 * and a descriptor with flags of its own, as parsers read unaligned bytes with the first one. What
 * must be aligned to what, statx tells since Linux 6.1; 4096 is right for every disk before.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reader.h"

enum { ALIGN = 4096, MOST = 16 << 10 }; /* bytes; more is not asked for by any disk */

#ifdef STATX_DIOALIGN
static uint64_t alignment(int fd)
{
    struct statx st;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) != 0 || !(st.stx_mask & STATX_DIOALIGN))
        return ALIGN;
    if (!st.stx_dio_offset_align) return 0; /* none for this file */
    const uint64_t most = st.stx_dio_offset_align > st.stx_dio_mem_align ? st.stx_dio_offset_align
                                                                         : st.stx_dio_mem_align;
    return most > ALIGN ? most : ALIGN;
}
#else
static uint64_t alignment(int fd)
{
    (void)fd;
    return ALIGN;
}
#endif

void cf_read_direct_open(cf_input *input)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", input->fd);
    input->align = alignment(input->fd);
    if (input->align && input->align <= MOST && (input->align & (input->align - 1)) == 0)
        input->direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    input->plain = input->direct < 0;
}

/* The window that ends where `at` is, or little before: whoever reads there reads on. */
static cf_read_window *left_behind(cf_reader *r, const cf_input *input, uint64_t at)
{
    enum { GAP = 64 << 10 };
    for (cf_read_window *w = r->windows; w < r->windows + CF_READ_WINDOWS; w++) {
        const uint64_t end = w->start + w->size;
        if (w->input == input && at >= end && at - end < GAP) return w;
    }
    return NULL;
}

/* A window with byte `at` in it, and n bytes from there if they fit; NULL where that fails. */
static cf_read_window *fill(cf_reader *r, cf_input *input, uint64_t at, size_t n)
{
    const uint64_t align = input->align, start = at - at % align;
    cf_read_window *w = left_behind(r, input, at);
    uint64_t want = w ? r->window : (at - start + n + align - 1) / align * align;
    if (want > r->window) want = r->window; /* a multiple of align */
    if (!w) w = cf_read_window_free(r);
    void *buffer = w->at;
    if (!buffer && posix_memalign(&buffer, MOST, r->window) != 0) return NULL;
    *w = (cf_read_window){.at = buffer, .start = start, .used = true};
    ssize_t got;
    do got = pread(input->direct, buffer, want, (off_t)start);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EINVAL) atomic_store(&input->plain, true); /* not here after all */
    if (got <= 0 || start + (uint64_t)got <= at) return NULL;
    w->input = input;
    w->size = (size_t)got;
    return w;
}

size_t cf_read_direct(cf_reader *r, cf_input *input, uint64_t at, void *to, size_t n)
{
    size_t done = 0;
    while (done < n) {
        cf_read_window *w = cf_read_window_of(r, input, at + done);
        if (!w && !(w = fill(r, input, at + done, n - done))) break;
        const size_t skip = (size_t)(at + done - w->start), left = w->size - skip;
        const size_t part = n - done < left ? n - done : left;
        memcpy((uint8_t *)to + done, w->at + skip, part);
        done += part;
    }
    return done;
}

void cf_read_direct_end(cf_reader *r)
{
    for (int i = 0; i < CF_READ_WINDOWS; i++) free(r->windows[i].at);
}
