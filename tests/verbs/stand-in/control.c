/* What tests steer. */
#include "internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, opening = PTHREAD_MUTEX_INITIALIZER;
struct card *cards;

static struct {
    int error;
    uint32_t times;
} list_fail;

static const char *const names[CALLS] = {
    "ibv_get_device_list", "ibv_open_device",      "ibv_query_device",
    "ibv_query_port",      "ibv_query_gid",        "ibv_query_rt_values_ex",
    "ibv_alloc_pd",        "ibv_reg_mr",           "ibv_reg_dmabuf_mr",
    "ibv_dereg_mr",        "ibv_create_comp_channel", "ibv_create_cq",
    "ibv_create_cq_ex",    "ibv_req_notify_cq",    "ibv_poll_cq",
    "ibv_start_poll",      "ibv_get_cq_event",     "ibv_create_qp",
    "ibv_create_qp_ex",    "ibv_modify_qp",        "ibv_query_qp",
    "ibv_create_wq",       "ibv_modify_wq",        "ibv_create_rwq_ind_table",
    "ibv_post_recv",       "ibv_post_wq_recv",     "ibv_create_flow",
    "ibv_destroy_flow",    "ibv_destroy_qp",       "ibv_destroy_cq",
    "ibv_dealloc_pd",      "ibv_destroy_comp_channel", "ibv_destroy_wq",
    "ibv_destroy_rwq_ind_table",
};

struct card *card_named(const char *name)
{
    struct card *card = cards;
    while (card && (!name || strcmp(card->ibv.name, name))) card = card->next;
    return card;
}

static int spend(int error, uint32_t *times)
{
    if (!*times) return 0;
    if (*times != UINT32_MAX) --*times;
    return error;
}

int refused(struct card *card, const struct context *context, enum call call)
{
    if (context && context->dead) return EIO;
    return spend(card->fail[call].error, &card->fail[call].times);
}

int list_refused(void) { return spend(list_fail.error, &list_fail.times); }

void misuse(struct card *card, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(card->counts.last_misuse, sizeof card->counts.last_misuse, format, list);
    va_end(list);
    card->counts.misuse++;
}

void drop_card(struct card *card)
{
    if (--card->refs || card->listed) return;
    free(card->mrs);
    free(card);
}

int stand_in_add(const stand_in_device *device)
{
    struct card *card;
    if (!device) return EINVAL;
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    describe_from_environment();
    int error = describe(device, NULL, &card);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&opening);
    return error;
}

static bool left(const stand_in_counts *c)
{
    return c->devices || c->pds || c->mrs || c->channels || c->cqs || c->qps || c->wqs || c->tables || c->flows;
}

int stand_in_remove(const char *name)
{
    int error = 0;
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    struct card *card = card_named(name);
    if (!card) error = ENODEV;
    else if (card->contexts) error = EBUSY;
    if (!error) {
        if (card->counts.misuse || left(&card->counts)) error = EINVAL;
        struct card **at = &cards;
        while (*at != card) at = &(*at)->next;
        *at = card->next;
        if (card->counter >= 0) close(card->counter);
        card->listed = false;
        card->refs++;
        drop_card(card);
    }
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&opening);
    return error;
}

/* Runs `with` on the card under the lock. */
static int on_card(const char *name, int (*with)(struct card *card, const void *context), const void *context)
{
    pthread_mutex_lock(&lock);
    struct card *card = card_named(name);
    int error = card ? with(card, context) : ENODEV;
    pthread_mutex_unlock(&lock);
    return error;
}

static int set_flags(struct card *card, const void *flags)
{
    card->is.flags = *(const uint32_t *)flags;
    return 0;
}

int stand_in_set_flags(const char *name, uint32_t flags) { return on_card(name, set_flags, &flags); }

int fail_call(struct card *card, const char *call, int error, uint32_t times)
{
    size_t at = 0;
    while (at < CALLS && (!call || strcmp(names[at], call))) at++;
    if (at == CALLS) return EINVAL;
    if (at == CALL_GET_DEVICE_LIST) {
        list_fail.error = error;
        list_fail.times = times;
        return 0;
    }
    if (!card) return ENODEV;
    card->fail[at].error = error;
    card->fail[at].times = times;
    return 0;
}

int stand_in_fail(const char *name, const char *call, int error, uint32_t times)
{
    pthread_mutex_lock(&lock);
    int result = fail_call(card_named(name), call, error, times);
    pthread_mutex_unlock(&lock);
    return result;
}

int stand_in_inject(const char *name, const void *frame, size_t length, uint64_t stamp_ns)
{
    int written = -1;
    pthread_mutex_lock(&lock);
    struct card *card = card_named(name);
    if (card && (frame || !length)) {
        written = arrive(card, frame, length, stamp_ns ? stamp_ns : wall_now(card), false);
        write_counter(card);
    }
    pthread_mutex_unlock(&lock);
    return written;
}

static bool inject_one(void *context, const uint8_t *frame, size_t length, uint64_t ns)
{
    return stand_in_inject(context, frame, length, ns) >= 0;
}

int64_t stand_in_inject_capture(const char *name, const char *path)
{
    pthread_mutex_lock(&lock);
    bool there = card_named(name);
    pthread_mutex_unlock(&lock);
    return there && path ? read_capture(path, inject_one, (void *)(uintptr_t)name) : -1;
}

static int set_port(struct card *card, const void *context)
{
    bool up = *(const int *)context;
    if (card->up == up) return 0;
    card->up = up;
    write_state(card);
    tell_port(card, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    return 0;
}

int stand_in_port(const char *name, int up) { return on_card(name, set_port, &up); }

static int pull(struct card *card, const void *context)
{
    (void)context;
    card->pulled = true;
    for (struct queue *q = card->queues; q; q = q->next) fail_queue(q);
    for (struct context *c = card->contexts; c; c = c->next) {
        if (c->dead) continue;
        c->dead = true;
        tell_device(c);
    }
    return 0;
}

int stand_in_pull(const char *name) { return on_card(name, pull, NULL); }

static int put_back(struct card *card, const void *context)
{
    (void)context;
    card->pulled = false;
    return 0;
}

int stand_in_put_back(const char *name) { return on_card(name, put_back, NULL); }

static int break_queues(struct card *card, const void *context)
{
    (void)context;
    for (struct queue *q = card->queues; q; q = q->next) {
        if (q->context->dead) continue;
        fail_queue(q);
        tell_queue(q);
    }
    return 0;
}

int stand_in_fatal(const char *name) { return on_card(name, break_queues, NULL); }

static int overrun_all(struct card *card, const void *context)
{
    (void)context;
    for (struct context *c = card->contexts; c; c = c->next)
        for (struct cq *cq = c->cqs; cq; cq = cq->next)
            if (!c->dead) overrun(cq);
    return 0;
}

int stand_in_overrun(const char *name) { return on_card(name, overrun_all, NULL); }

int stand_in_count(const char *name, stand_in_counts *counts)
{
    int error = ENODEV;
    pthread_mutex_lock(&lock);
    struct card *card = card_named(name);
    if (card && counts) {
        error = 0;
        *counts = card->counts;
        for (struct queue *q = card->queues; q; q = q->next) counts->posted += q->posted - q->used;
        for (struct context *c = card->contexts; c; c = c->next)
            for (struct cq *cq = c->cqs; cq; cq = cq->next) counts->waiting += cq->count;
    }
    pthread_mutex_unlock(&lock);
    return error;
}
