#include "reader.h"

#include <errno.h>
#include <unistd.h>

#include "span.h"

void cf_input_open(cf_input *input, cf_io io, int fd, uint64_t size)
{
    *input = (cf_input){.fd = fd, .direct = -1, .size = size};
    if (io == CF_IO_DIRECT) cf_read_direct_open(input);
}

void cf_input_close(cf_input *input)
{
    if (input->direct >= 0) close(input->direct);
    input->direct = -1;
}

uint64_t cf_reader_memory(cf_io io)
{
    enum { WINDOW = 1 << 20 };
    return io == CF_IO_MMAP || io == CF_IO_DIRECT ? CF_READ_WINDOWS * WINDOW : 0;
}

void cf_reader_start(cf_reader *reader, cf_io io, uint64_t memory)
{
    *reader = (cf_reader){.io = io == CF_IO_AUTO ? CF_IO_PREAD : io,
                          .window = (size_t)memory / CF_READ_WINDOWS};
}

void cf_reader_end(cf_reader *reader)
{
    if (reader->io == CF_IO_MMAP) cf_read_map_end(reader);
    if (reader->io == CF_IO_DIRECT) cf_read_direct_end(reader);
}

cf_read_window *cf_read_window_of(cf_reader *reader, const cf_input *input, uint64_t at)
{
    for (cf_read_window *w = reader->windows; w < reader->windows + CF_READ_WINDOWS; w++)
        if (w->input == input && at >= w->start && at - w->start < w->size) {
            w->used = true;
            return w;
        }
    return NULL;
}

cf_read_window *cf_read_window_free(cf_reader *reader)
{
    for (;;) {
        cf_read_window *w = &reader->windows[reader->hand];
        reader->hand = (reader->hand + 1) % CF_READ_WINDOWS;
        if (!w->used) return w;
        w->used = false;
    }
}

bool cf_reader_read(cf_reader *reader, cf_input *input, uint64_t at, void *to, size_t n,
                    cf_err *err)
{
    size_t done = 0;
    if (reader->io != CF_IO_PREAD && !atomic_load_explicit(&input->plain, memory_order_relaxed))
        done = (reader->io == CF_IO_MMAP ? cf_read_map : cf_read_direct)(reader, input, at, to, n);
    return done == n || cf_read_all(input->fd, 0, at + done, (uint8_t *)to + done, n - done, err);
}

bool cf_reader_scatter(cf_reader *reader, cf_input *input, uint64_t at, struct iovec *iov,
                       int count, cf_err *err)
{
    int i = 0;
    if (reader->io == CF_IO_PREAD || atomic_load_explicit(&input->plain, memory_order_relaxed)) {
        ssize_t got;
        do got = preadv(input->fd, iov, count, (off_t)at);
        while (got < 0 && errno == EINTR);
        if (got < 0) return cf_fail_sys(err, errno, "cannot read");
        at += (uint64_t)got;
        /* short: what is missing, run by run */
        for (; i < count && iov[i].iov_len <= (size_t)got; i++) got -= (ssize_t)iov[i].iov_len;
        if (i < count) {
            iov[i].iov_base = (uint8_t *)iov[i].iov_base + got;
            iov[i].iov_len -= (size_t)got;
        }
    }
    for (; i < count; at += iov[i++].iov_len)
        if (!cf_reader_read(reader, input, at, iov[i].iov_base, iov[i].iov_len, err)) return false;
    return true;
}
