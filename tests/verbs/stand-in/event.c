/* Events: asynchronous ones of a device, and those of completion channels. Each goes through a pipe, so that the program can
 * wait for the descriptor as for the kernel's. What a destroyed object has left in the pipe is passed over. */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct record {
    enum ibv_event_type type;
    int port;
    uint64_t handle;
};

static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;

static void put(struct context *context, enum ibv_event_type type, int port, uint64_t handle)
{
    struct record record;
    memset(&record, 0, sizeof record);
    record.type = type;
    record.port = port;
    record.handle = handle;
    if (write(context->events, &record, sizeof record) != sizeof record)
        misuse(context->card, "asynchronous events are not read: %s is lost", ibv_event_type_str(type));
}

void tell_port(struct card *card, enum ibv_event_type type)
{
    for (struct context *c = card->contexts; c; c = c->next)
        if (!c->dead) put(c, type, PORT, 0);
}

void tell_device(struct context *context) { put(context, IBV_EVENT_DEVICE_FATAL, 0, 0); }
void tell_cq(struct cq *cq) { put(cq->context, IBV_EVENT_CQ_ERR, 0, cq->handle); }

void tell_queue(struct queue *queue)
{
    put(queue->context, queue->qp ? IBV_EVENT_QP_FATAL : IBV_EVENT_WQ_FATAL, 0, queue->handle);
}

/* Whether the event's object is still there. Under the lock. */
static bool find_element(struct context *context, const struct record *record, struct ibv_async_event *event)
{
    event->event_type = record->type;
    event->element.port_num = record->port;
    if (!record->handle) return true;
    for (struct cq *cq = context->cqs; cq; cq = cq->next) {
        if (cq->handle != record->handle) continue;
        event->element.cq = &cq->ibv;
        cq->async_events++;
        return true;
    }
    for (struct queue *q = context->card->queues; q; q = q->next) {
        if (q->handle != record->handle) continue;
        if (q->qp) event->element.qp = q->qp;
        else event->element.wq = q->wq;
        q->async_events++;
        return true;
    }
    return false;
}

STAND_IN_EXPORT int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *event)
{
    struct record record;
    for (;;) {
        ssize_t got = read(ibv->async_fd, &record, sizeof record);
        if (got != sizeof record) {
            if (got >= 0) errno = EIO;
            return -1;
        }
        pthread_mutex_lock(&lock);
        bool there = find_element(context_of(ibv), &record, event);
        pthread_mutex_unlock(&lock);
        if (there) return 0;
    }
}

STAND_IN_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
    pthread_mutex_lock(&lock);
    switch (event->event_type) {
    case IBV_EVENT_CQ_ERR: event->element.cq->async_events_completed++; break;
    case IBV_EVENT_QP_FATAL: event->element.qp->events_completed++; break;
    case IBV_EVENT_WQ_FATAL: event->element.wq->events_completed++; break;
    default: break;
    }
    pthread_cond_broadcast(&acknowledged);
    pthread_mutex_unlock(&lock);
}

void wait_for_acks(struct card *card, const uint32_t *read, const uint32_t *acks, const char *what)
{
    enum { SECONDS = 2 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SECONDS;
    while (*acks != *read)
        if (pthread_cond_timedwait(&acknowledged, &lock, &until)) {
            misuse(card, "%s would wait for ever: %u events were read, %u acknowledged", what, *read, *acks);
            return;
        }
}

STAND_IN_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count)
{
    pthread_mutex_lock(&lock);
    cq->comp_events_completed += count;
    pthread_cond_broadcast(&acknowledged);
    pthread_mutex_unlock(&lock);
}

STAND_IN_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
    struct context *context = context_of(channel->context);
    uint64_t handle;
    for (;;) {
        pthread_mutex_lock(&lock);
        int error = refused(context->card, NULL, CALL_GET_CQ_EVENT);
        pthread_mutex_unlock(&lock);
        if (error) {
            errno = error;
            return -1;
        }
        ssize_t got = read(channel->fd, &handle, sizeof handle);
        if (got != sizeof handle) {
            if (got >= 0) errno = EIO;
            return -1;
        }
        pthread_mutex_lock(&lock);
        struct cq *at = context->cqs;
        while (at && at->handle != handle) at = at->next;
        if (at) {
            at->comp_events++;
            *cq = &at->ibv;
            *cq_context = at->ibv.cq_context;
        }
        pthread_mutex_unlock(&lock);
        if (at) return 0;
    }
}

STAND_IN_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ibv)
{
    int ends[2];
    pthread_mutex_lock(&lock);
    struct card *card = card_of(ibv);
    int error = refused(card, context_of(ibv), CALL_CREATE_COMP_CHANNEL);
    struct channel *made = error ? NULL : calloc(1, sizeof *made);
    if (!error && !made) error = ENOMEM;
    if (!error && pipe2(ends, O_CLOEXEC)) error = errno;
    if (!error) {
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        made->ibv.context = ibv;
        made->ibv.fd = ends[0];
        made->events = ends[1];
        card->counts.channels++;
    }
    pthread_mutex_unlock(&lock);
    if (!error) return &made->ibv;
    free(made);
    errno = error;
    return NULL;
}

STAND_IN_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
    struct channel *channel = container_of(ibv, struct channel, ibv);
    pthread_mutex_lock(&lock);
    struct card *card = card_of(ibv->context);
    int error = refused(card, NULL, CALL_DESTROY_COMP_CHANNEL);
    if (!error && ibv->refcnt) {
        misuse(card, "ibv_destroy_comp_channel under %d completion queues", ibv->refcnt);
        error = EBUSY;
    }
    if (!error) card->counts.channels--;
    pthread_mutex_unlock(&lock);
    if (error) return error;
    close(ibv->fd);
    close(channel->events);
    free(channel);
    return 0;
}
