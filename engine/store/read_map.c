/* Reading through maps, without dying of them.
 *
 * A page that is gone (the file was cut, or the disk failed) is SIGBUS, and looking at the size
 * before each copy does not help: the cut may come during it. So the handler puts a page of zeros
 * where the window was and notes that; the copy goes on with zeros, the note is seen after it, and
 * the bytes are asked for once more with pread, which says what is wrong as an ordinary error.
 * Wayland's compositors treat the memory of their clients so. The signal is of the thread that
 * touched the page, so what it may touch is kept by thread; any other SIGBUS is as deadly as ever.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "reader.h"

static _Thread_local struct {
    uint8_t *at; /* what is being copied from */
    size_t size;
    volatile sig_atomic_t lost;
} looked_at;

static void page_lost(int number, siginfo_t *info, void *context)
{
    (void)context;
    const int sys = errno;
    const uintptr_t at = (uintptr_t)info->si_addr, start = (uintptr_t)looked_at.at;
    if (looked_at.size && at >= start && at - start < looked_at.size &&
        mmap(looked_at.at, looked_at.size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != MAP_FAILED)
        looked_at.lost = 1;
    else
        signal(number, SIG_DFL); /* the instruction is run again, and that is the end */
    errno = sys;
}

static void catch_lost_pages(void)
{
    struct sigaction action = {.sa_sigaction = page_lost, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

static void give_up(cf_read_window *w)
{
    if (w->input) munmap(w->at, w->size);
    *w = (cf_read_window){0};
}

/* The window that holds byte `at`; NULL where the file cannot be mapped. */
static cf_read_window *window_at(cf_reader *r, const cf_input *input, uint64_t at)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    cf_read_window *w = cf_read_window_of(r, input, at);
    if (w) return w;
    w = cf_read_window_free(r);
    give_up(w);
    pthread_once(&once, catch_lost_pages);
    const uint64_t start = at - at % r->window, left = input->size - start;
    const size_t size = left < r->window ? (size_t)left : r->window;
    uint8_t *map = mmap(NULL, size, PROT_READ, MAP_SHARED, input->fd, (off_t)start);
    if (map == MAP_FAILED) return NULL;
    *w = (cf_read_window){.input = input, .at = map, .start = start, .size = size, .used = true};
    return w;
}

size_t cf_read_map(cf_reader *r, cf_input *input, uint64_t at, void *to, size_t n)
{
    size_t done = 0;
    if (at > input->size || n > input->size - at) return 0;
    while (done < n) {
        cf_read_window *w = window_at(r, input, at + done);
        if (!w) {
            atomic_store(&input->plain, true);
            break;
        }
        const size_t skip = (size_t)(at + done - w->start), left = w->size - skip;
        const size_t part = n - done < left ? n - done : left;
        looked_at.lost = 0;
        looked_at.at = w->at;
        looked_at.size = w->size;
        atomic_signal_fence(memory_order_seq_cst);
        memcpy((uint8_t *)to + done, w->at + skip, part);
        atomic_signal_fence(memory_order_seq_cst);
        looked_at.size = 0;
        if (looked_at.lost) {
            give_up(w);
            break;
        }
        done += part;
    }
    return done;
}

void cf_read_map_end(cf_reader *r)
{
    for (int i = 0; i < CF_READ_WINDOWS; i++) give_up(&r->windows[i]);
}
