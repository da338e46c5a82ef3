/* Ctrl-C, when the program lets the library handle it. */
#include "internal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

static atomic_bool stop;
static atomic_int event = -1;
static struct sigaction before[NSIG];

static void on_signal(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    stop = true;
    uint64_t one = 1;
    if (write(event, &one, sizeof one) < 0) { /* it is readable already */
    }
    struct sigaction *old = &before[number];
    if (old->sa_flags & SA_SIGINFO) old->sa_sigaction(number, info, context);
    else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) old->sa_handler(number);
    errno = kept;
}

rmx_status rmx_enable_system_signal_handling(void)
{
    if (initialised()) return RMX_BUSY;
    if (event >= 0) return RMX_OK;
    event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event < 0) return RMX_NO_HARDWARE_RESOURCES;
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before[SIGINT]);
    sigaction(SIGTERM, &action, &before[SIGTERM]);
    return RMX_OK;
}

bool stop_asked(void) { return stop; }
int stop_event(void) { return event; }

void forget_stop(void)
{
    uint64_t count;
    stop = false;
    if (event >= 0 && read(event, &count, sizeof count) < 0) { /* none was asked */
    }
}
