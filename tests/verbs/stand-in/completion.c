/* Completion queues, of both kinds. */
#include "internal.h"

#include <stdlib.h>
#include <unistd.h>

static struct cq *cq_of(struct ibv_cq *ibv) { return container_of(ibv, struct cq, ibv); }
static struct cq *cq_of_ex(struct ibv_cq_ex *ex) { return container_of(ex, struct cq, ex); }

/* --- what arrives --- */

void complete(struct cq *cq, const struct completion *completion)
{
    if (cq->failed) return;
    if (cq->count == cq->size) {
        if (!cq->ignore_overrun) {
            overrun(cq);
            return;
        }
        cq->first = (cq->first + 1) % cq->size;
        cq->count--;
    }
    cq->ring[(cq->first + cq->count++) % cq->size] = *completion;
    if (!cq->armed || !cq->ibv.channel) return;
    struct channel *channel = container_of(cq->ibv.channel, struct channel, ibv);
    cq->armed = false;
    if (write(channel->events, &cq->handle, sizeof cq->handle) != sizeof cq->handle)
        misuse(cq->context->card, "completion events are not read: one is lost");
}

void overrun(struct cq *cq)
{
    if (cq->failed) return;
    cq->failed = true;
    cq->context->card->counts.overruns++;
    tell_cq(cq);
    fail_queues_of(cq);
}

void forget_completions(struct cq *cq, const struct queue *queue)
{
    size_t kept = 0;
    for (size_t i = 0; i < cq->count; i++) {
        const struct completion *c = &cq->ring[(cq->first + i) % cq->size];
        if (c->queue != queue) cq->ring[(cq->first + kept++) % cq->size] = *c;
    }
    cq->count = kept;
}

/* --- polling --- */

static bool take(struct cq *cq, struct completion *completion)
{
    if (!cq->count) return false;
    *completion = cq->ring[cq->first];
    cq->first = (cq->first + 1) % cq->size;
    cq->count--;
    completion->queue->freed++;
    if (completion->status == IBV_WC_SUCCESS && cq->context->card->is.flags & STAND_IN_LONG_LENGTHS) completion->octets += 65536;
    return true;
}

static int poll_cq(struct ibv_cq *ibv, int room, struct ibv_wc *wc)
{
    struct cq *cq = cq_of(ibv);
    struct completion c;
    int n = 0;
    pthread_mutex_lock(&lock);
    int error = refused(cq->context->card, NULL, CALL_POLL_CQ);
    if (cq->polling) misuse(cq->context->card, "ibv_poll_cq between ibv_start_poll and ibv_end_poll");
    for (; !error && n < room && take(cq, &c); n++) {
        memset(&wc[n], 0, sizeof *wc);
        wc[n].wr_id = c.wr_id;
        wc[n].status = c.status;
        wc[n].opcode = IBV_WC_RECV;
        wc[n].vendor_err = c.status;
        wc[n].byte_len = c.octets;
        wc[n].qp_num = c.queue->number;
        wc[n].wc_flags = c.flags;
    }
    pthread_mutex_unlock(&lock);
    return error ? -error : n;
}

/* Under the lock. */
static int next(struct cq *cq)
{
    if (!take(cq, &cq->now)) return ENOENT;
    cq->ex.wr_id = cq->now.wr_id;
    cq->ex.status = cq->now.status;
    return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
    struct cq *cq = cq_of_ex(ex);
    pthread_mutex_lock(&lock);
    int error = refused(cq->context->card, NULL, CALL_START_POLL);
    if (!error && attr && attr->comp_mask) error = EINVAL;
    if (!error && cq->polling) {
        misuse(cq->context->card, "ibv_start_poll without ibv_end_poll before it");
        error = EBUSY;
    }
    if (!error) error = next(cq);
    if (!error) cq->polling = true;
    pthread_mutex_unlock(&lock);
    return error;
}

static int next_poll(struct ibv_cq_ex *ex)
{
    struct cq *cq = cq_of_ex(ex);
    pthread_mutex_lock(&lock);
    if (!cq->polling) misuse(cq->context->card, "ibv_next_poll without ibv_start_poll");
    int error = cq->polling ? next(cq) : EINVAL;
    pthread_mutex_unlock(&lock);
    return error;
}

static void end_poll(struct ibv_cq_ex *ex)
{
    struct cq *cq = cq_of_ex(ex);
    pthread_mutex_lock(&lock);
    if (!cq->polling) misuse(cq->context->card, "ibv_end_poll where ibv_start_poll gave nothing");
    cq->polling = false;
    pthread_mutex_unlock(&lock);
}

/* `now` belongs to the one thread between start_poll and end_poll. */
static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
    (void)ex;
    return IBV_WC_RECV;
}
static uint32_t read_vendor_err(struct ibv_cq_ex *ex) { return cq_of_ex(ex)->now.status; }
static unsigned read_wc_flags(struct ibv_cq_ex *ex) { return cq_of_ex(ex)->now.flags; }
static uint32_t read_byte_len(struct ibv_cq_ex *ex) { return cq_of_ex(ex)->now.octets; }
static uint32_t read_qp_num(struct ibv_cq_ex *ex) { return cq_of_ex(ex)->now.queue->number; }
static uint64_t read_completion_ts(struct ibv_cq_ex *ex) { return cq_of_ex(ex)->now.raw; }
static uint64_t read_wallclock(struct ibv_cq_ex *ex) { return cq_of_ex(ex)->now.wall; }
static uint16_t read_cvlan(struct ibv_cq_ex *ex) { return cq_of_ex(ex)->now.vlan; }
static uint32_t read_flow_tag(struct ibv_cq_ex *ex) { return cq_of_ex(ex)->now.flow_tag; }

/* As mlx5: what was not asked for at creation has no function. */
static void give_readers(struct ibv_cq_ex *ex, uint64_t wanted)
{
    ex->start_poll = start_poll;
    ex->next_poll = next_poll;
    ex->end_poll = end_poll;
    ex->read_opcode = read_opcode;
    ex->read_vendor_err = read_vendor_err;
    ex->read_wc_flags = read_wc_flags;
    if (wanted & IBV_WC_EX_WITH_BYTE_LEN) ex->read_byte_len = read_byte_len;
    if (wanted & IBV_WC_EX_WITH_QP_NUM) ex->read_qp_num = read_qp_num;
    if (wanted & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) ex->read_completion_ts = read_completion_ts;
    if (wanted & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) ex->read_completion_wallclock_ns = read_wallclock;
    if (wanted & IBV_WC_EX_WITH_CVLAN) ex->read_cvlan = read_cvlan;
    if (wanted & IBV_WC_EX_WITH_FLOW_TAG) ex->read_flow_tag = read_flow_tag;
}

static int req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
    struct cq *cq = cq_of(ibv);
    (void)solicited_only;
    pthread_mutex_lock(&lock);
    int error = refused(cq->context->card, cq->context, CALL_REQ_NOTIFY_CQ);
    if (!error && !ibv->channel) {
        misuse(cq->context->card, "ibv_req_notify_cq without a channel");
        error = EINVAL;
    }
    if (!error) cq->armed = true;
    pthread_mutex_unlock(&lock);
    return error;
}

/* --- creation --- */

static int make(struct context *context, uint32_t wanted, void *user, struct ibv_comp_channel *channel, uint32_t vector,
                struct cq **made)
{
    struct card *card = context->card;
    if (!wanted || wanted > card->is.max_cqe || vector >= COMP_VECTORS) return EINVAL;
    size_t size = 1;
    while (size < (size_t)wanted + 1) size *= 2; /* as mlx5, which then says one less */
    struct cq *cq = calloc(1, sizeof *cq);
    struct completion *ring = calloc(size, sizeof *ring);
    if (!cq || !ring) {
        free(cq);
        free(ring);
        return ENOMEM;
    }
    cq->size = size - 1;
    cq->ring = ring;
    cq->context = context;
    cq->handle = ++card->next_handle;
    cq->ibv.context = &context->verbs.context;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = user;
    cq->ibv.handle = (uint32_t)cq->handle;
    cq->ibv.cqe = (int)cq->size;
    pthread_mutex_init(&cq->ibv.mutex, NULL);
    pthread_cond_init(&cq->ibv.cond, NULL);
    if (channel) channel->refcnt++;
    cq->next = context->cqs;
    context->cqs = cq;
    card->counts.cqs++;
    *made = cq;
    return 0;
}

STAND_IN_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *ibv, int cqe, void *user, struct ibv_comp_channel *channel,
                                             int vector)
{
    struct cq *cq = NULL;
    pthread_mutex_lock(&lock);
    int error = refused(card_of(ibv), context_of(ibv), CALL_CREATE_CQ);
    if (!error && (cqe <= 0 || vector < 0)) error = EINVAL;
    if (!error) error = make(context_of(ibv), (uint32_t)cqe, user, channel, (uint32_t)vector, &cq);
    pthread_mutex_unlock(&lock);
    if (error) errno = error;
    return error ? NULL : &cq->ibv;
}

static int allowed(const struct card *card, const struct ibv_cq_init_attr_ex *attr)
{
    const uint64_t raw = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, wall = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    const uint32_t cq_flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    uint64_t refused_flags = IBV_WC_EX_WITH_TM_INFO | ~(uint64_t)IBV_CREATE_CQ_SUP_WC_FLAGS;
    if (card->is.flags & STAND_IN_NO_STAMPS) refused_flags |= raw | wall;
    if (card->is.flags & STAND_IN_NO_WALLCLOCK) refused_flags |= wall;
    if (attr->wc_flags & refused_flags) return EOPNOTSUPP;
    if (attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS) return EOPNOTSUPP;
    return attr->comp_mask && attr->flags & ~cq_flags ? EOPNOTSUPP : 0;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ibv, struct ibv_cq_init_attr_ex *attr)
{
    struct cq *cq = NULL;
    pthread_mutex_lock(&lock);
    int error = refused(card_of(ibv), context_of(ibv), CALL_CREATE_CQ_EX);
    if (!error) error = allowed(card_of(ibv), attr);
    if (!error) error = make(context_of(ibv), attr->cqe, attr->cq_context, attr->channel, attr->comp_vector, &cq);
    if (!error) {
        cq->ignore_overrun = attr->comp_mask && attr->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
        give_readers(&cq->ex, attr->wc_flags);
    }
    pthread_mutex_unlock(&lock);
    if (error) errno = error;
    return error ? NULL : &cq->ex;
}

void add_completion_calls(struct verbs_context *verbs, const struct card *card)
{
    verbs->create_cq_ex = card->is.flags & STAND_IN_NO_CQ_EX ? NULL : create_cq_ex;
    verbs->context.ops.poll_cq = poll_cq;
    verbs->context.ops.req_notify_cq = req_notify_cq;
}

STAND_IN_EXPORT int ibv_destroy_cq(struct ibv_cq *ibv)
{
    struct cq *cq = cq_of(ibv);
    pthread_mutex_lock(&lock);
    struct context *context = cq->context;
    int error = cq->gone ? EIO : refused(context->card, NULL, CALL_DESTROY_CQ);
    if (!error && cq->users) {
        misuse(context->card, "ibv_destroy_cq under %u queues", cq->users);
        error = EBUSY;
    }
    if (error) {
        pthread_mutex_unlock(&lock);
        return error;
    }
    if (cq->polling) misuse(context->card, "ibv_destroy_cq between ibv_start_poll and ibv_end_poll");
    struct cq **at = &context->cqs;
    while (*at && *at != cq) at = &(*at)->next;
    if (*at) *at = cq->next; /* no more events from here on */
    wait_for_acks(context->card, &cq->comp_events, &ibv->comp_events_completed, "ibv_destroy_cq");
    wait_for_acks(context->card, &cq->async_events, &ibv->async_events_completed, "ibv_destroy_cq");
    if (ibv->channel) ibv->channel->refcnt--;
    context->card->counts.cqs--;
    error = after_pull(context);
    free(cq->ring);
    if (error) {
        bury(cq, &cq->gone);
    } else {
        pthread_mutex_destroy(&ibv->mutex);
        pthread_cond_destroy(&ibv->cond);
        free(cq);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

STAND_IN_EXPORT int ibv_resize_cq(struct ibv_cq *ibv, int cqe)
{
    (void)ibv;
    (void)cqe;
    return EOPNOTSUPP;
}
