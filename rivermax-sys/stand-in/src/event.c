/* Waiting for data: an event of ours in the caller's epoll set. */
#include "internal.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static bool add(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return !epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

static rmx_status establish(struct stream *s, int epoll)
{
    rmx_status status = injected(s->ip, "rmx_establish_event_channel");
    if (status) return status;
    if (s->event >= 0) return RMX_BUSY;
    s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->event < 0 || !add(epoll, s->event) || (stop_event() >= 0 && !add(epoll, stop_event()))) {
        close_events(s);
        return RMX_INVALID_PARAM_1;
    }
    s->epoll = epoll;
    return RMX_OK;
}

rmx_status rmx_establish_event_channel(const rmx_event_channel_params *channel)
{
    if (!channel || !channel->epoll) return RMX_INVALID_PARAM_1;
    pthread_rwlock_rdlock(&streams_lock);
    struct stream *s = find_stream(channel->id);
    rmx_status status = RMX_INVALID_PARAM_1;
    if (s) {
        pthread_mutex_lock(&s->lock);
        status = establish(s, *channel->epoll);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_rwlock_unlock(&streams_lock);
    return status;
}

static rmx_status request(struct stream *s)
{
    rmx_status status = injected(s->ip, "rmx_request_notification");
    if (status) return status;
    if (s->event < 0) return RMX_NOT_INITIALIZED;
    uint64_t count;
    if (read(s->event, &count, sizeof count) < 0) { /* nothing has been told since */
    }
    s->armed = false;
    if (stop_asked()) return RMX_SIGNAL;
    if (s->taken < s->shown) return RMX_BUSY;
    s->armed = true;
    return RMX_OK;
}

rmx_status rmx_request_notification(const rmx_notification_params *notification)
{
    if (!notification) return RMX_INVALID_PARAM_1;
    pthread_rwlock_rdlock(&streams_lock);
    struct stream *s = find_stream(notification->id);
    rmx_status status = RMX_INVALID_PARAM_1;
    if (s) {
        pthread_mutex_lock(&s->lock);
        status = request(s);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_rwlock_unlock(&streams_lock);
    return status;
}

void tell(struct stream *s)
{
    uint64_t one = 1;
    if (s->armed && write(s->event, &one, sizeof one) > 0) s->armed = false;
}

void close_events(struct stream *s)
{
    if (s->event < 0) return;
    close(s->event); /* and so it leaves the set */
    s->event = s->epoll = -1;
}
