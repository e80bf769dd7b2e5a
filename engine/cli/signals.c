#include "signals.h"

#include <errno.h>
#include <stddef.h>

volatile sig_atomic_t cf_stop_signal;
static volatile sig_atomic_t child;

static const struct {
    int number;
    bool later; /* the same command at another time */
} STOPS[] = {{SIGINT, false}, {SIGTERM, false}, {SIGHUP, false},
             {SIGUSR1, true}, {SIGUSR2, true},  {SIGXCPU, true}};

enum { N_STOPS = sizeof STOPS / sizeof *STOPS };

static void note(int number)
{
    const int sys = errno;
    if (!cf_stop_signal) cf_stop_signal = number;
    if (child) kill((pid_t)child, SIGKILL);
    errno = sys;
}

static void set_all(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < N_STOPS; i++) sigaction(STOPS[i].number, &action, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, NULL); /* a closed stdout is a write error */
    sigaction(SIGXFSZ, &ignore, NULL); /* a file limit is E_SPACE */
}

void cf_signals_catch(void)
{
    set_all(note);
}

void cf_signals_leave(void)
{
    set_all(SIG_IGN);
}

void cf_signals_child(pid_t pid)
{
    child = (sig_atomic_t)pid;
    if (pid && cf_stop_signal) kill(pid, SIGKILL); /* it came before */
}

int cf_signals_exit(void)
{
    for (int i = 0; i < N_STOPS; i++)
        if (STOPS[i].number == cf_stop_signal && STOPS[i].later) return 75;
    return 128 + (int)cf_stop_signal;
}
