/* Receive queues: those of QPs for raw packets, and work queues behind an indirection table. */
#include "internal.h"

#include <stdlib.h>

static struct qp *qp_of(struct ibv_qp *ibv) { return container_of(ibv, struct qp, ibv); }
static struct wq *wq_of(struct ibv_wq *ibv) { return container_of(ibv, struct wq, ibv); }
static struct cq *cq_of(struct ibv_cq *ibv) { return container_of(ibv, struct cq, ibv); }
static struct pd *pd_of(struct ibv_pd *ibv) { return container_of(ibv, struct pd, ibv); }

static size_t round_up(size_t n)
{
    size_t power = 1;
    while (power < n) power *= 2;
    return power;
}

/* --- the queue itself --- */

/* Sizes as mlx5 rounds them: both to powers of two. */
static int make_queue(struct queue *q, struct context *context, struct ibv_pd *pd, struct ibv_cq *cq, uint32_t *wr, uint32_t *sge)
{
    const stand_in_device *is = &context->card->is;
    if (!cq || *wr > is->max_qp_wr || *sge > is->max_sge || (*wr && !*sge)) return EINVAL;
    q->context = context;
    q->pd = pd_of(pd);
    q->cq = cq_of(cq);
    q->size = *wr ? round_up(*wr) : 0;
    q->max_segments = *wr ? round_up(*sge) : 0;
    if (q->size) {
        q->ring = calloc(q->size, sizeof *q->ring);
        q->segments = calloc(q->size * q->max_segments, sizeof *q->segments);
    }
    if (q->size && (!q->ring || !q->segments)) {
        free(q->ring);
        free(q->segments);
        return ENOMEM;
    }
    *wr = (uint32_t)q->size;
    *sge = (uint32_t)q->max_segments;
    q->number = ++context->card->next_number;
    q->handle = ++context->card->next_handle;
    q->next = context->card->queues;
    context->card->queues = q;
    q->pd->users++;
    q->cq->users++;
    return 0;
}

static void free_queue(struct queue *q)
{
    struct queue **at = &q->context->card->queues;
    while (*at && *at != q) at = &(*at)->next;
    if (*at) *at = q->next;
    forget_completions(q->cq, q);
    q->pd->users--;
    q->cq->users--;
    free(q->ring);
    free(q->segments);
    q->ring = NULL;
    q->segments = NULL;
    q->size = 0;
}

static void flush(struct queue *q)
{
    while (q->used < q->posted) {
        struct completion c = {.wr_id = q->ring[q->used++ % q->size].wr_id, .queue = q, .status = IBV_WC_WR_FLUSH_ERR};
        q->context->card->counts.flushed++;
        complete(q->cq, &c);
    }
}

void fail_queue(struct queue *q)
{
    bool was_ready = q->ready;
    q->ready = false;
    q->error = true;
    if (q->qp) q->qp->state = IBV_QPS_ERR;
    else q->wq->state = IBV_WQS_ERR;
    if (was_ready || q->used < q->posted) flush(q);
}

void fail_queues_of(struct cq *cq)
{
    for (struct queue *q = cq->context->card->queues; q; q = q->next) {
        if (q->cq != cq || q->error) continue;
        fail_queue(q);
        tell_queue(q);
    }
}

static void reset_queue(struct queue *q)
{
    forget_completions(q->cq, q);
    q->posted = q->used = q->freed = 0;
    q->ready = q->error = false;
}

/* Under the lock. */
static int post_one(struct queue *q, const struct ibv_recv_wr *wr)
{
    if (wr->num_sge < 0 || (size_t)wr->num_sge > q->max_segments) return EINVAL;
    if (q->posted - q->freed >= q->size) return ENOMEM;
    size_t at = q->posted++ % q->size;
    q->ring[at].wr_id = wr->wr_id;
    q->ring[at].segments = wr->num_sge;
    for (int i = 0; i < wr->num_sge; i++) q->segments[at * q->max_segments + (size_t)i] = wr->sg_list[i];
    return 0;
}

static int post(struct queue *q, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad, enum call call, bool in_reset)
{
    struct card *card = q->context->card;
    pthread_mutex_lock(&lock);
    int error = refused(card, q->context, call);
    if (!error && in_reset) {
        misuse(card, "posted to a queue in RESET");
        error = EINVAL;
    }
    while (!error && wr) {
        error = post_one(q, wr);
        if (!error) wr = wr->next;
    }
    if (q->error) flush(q);
    pthread_mutex_unlock(&lock);
    if (error) *bad = wr;
    return error;
}

static int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    struct qp *qp = qp_of(ibv);
    if (qp->table || !qp->queue.size) {
        *bad = wr;
        return EINVAL;
    }
    return post(&qp->queue, wr, bad, CALL_POST_RECV, ibv->state == IBV_QPS_RESET);
}

static int post_wq_recv(struct ibv_wq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return post(&wq_of(ibv)->queue, wr, bad, CALL_POST_WQ_RECV, ibv->state == IBV_WQS_RESET);
}

static int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    (void)ibv;
    *bad = wr;
    return EOPNOTSUPP; /* this card only receives */
}

/* --- QPs --- */

static int may_have_raw(const struct card *card, enum ibv_qp_type type)
{
    if (type != IBV_QPT_RAW_PACKET) return EOPNOTSUPP;
    if (card->is.flags & STAND_IN_NO_NET_RAW) return EPERM;
    return card->is.flags & (STAND_IN_NO_RAW_PACKET | STAND_IN_INFINIBAND) ? EOPNOTSUPP : 0;
}

static uint32_t qp_flags(const struct ibv_qp_init_attr_ex *attr)
{
    return attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS ? attr->create_flags : 0;
}

/* Under the lock. */
static int make_qp(struct context *context, struct ibv_qp_init_attr_ex *attr, struct qp **made)
{
    struct card *card = context->card;
    int error = may_have_raw(card, attr->qp_type);
    if (error) return error;
    bool rss = attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE;
    if (attr->srq || (!rss && !attr->send_cq) || attr->cap.max_send_wr > card->is.max_qp_wr) return EINVAL;
    struct qp *qp = calloc(1, sizeof *qp);
    if (!qp) return ENOMEM;
    if (rss) {
        qp->table = container_of(attr->rwq_ind_tbl, struct table, ibv);
        qp->table->users++;
        qp->queue.context = context;
        qp->queue.number = ++card->next_number;
        pd_of(attr->pd)->users++;
        qp->queue.pd = pd_of(attr->pd);
        qp->hash_fields = attr->rx_hash_conf.rx_hash_fields_mask;
        memcpy(qp->hash_key, attr->rx_hash_conf.rx_hash_key, sizeof qp->hash_key);
    } else {
        qp->send_cq = cq_of(attr->send_cq);
        struct ibv_qp_cap *cap = &attr->cap;
        error = make_queue(&qp->queue, context, attr->pd, attr->recv_cq, &cap->max_recv_wr, &cap->max_recv_sge);
        if (error) {
            free(qp);
            return error;
        }
        qp->send_cq->users++;
        qp->queue.qp = &qp->ibv;
        qp->queue.strip_vlan = qp_flags(attr) & IBV_QP_CREATE_CVLAN_STRIPPING;
    }
    struct ibv_qp *ibv = &qp->ibv;
    ibv->context = &context->verbs.context;
    ibv->qp_context = attr->qp_context;
    ibv->pd = attr->pd;
    ibv->send_cq = attr->send_cq;
    ibv->recv_cq = attr->recv_cq;
    ibv->qp_num = qp->queue.number;
    ibv->handle = (uint32_t)qp->queue.handle;
    ibv->qp_type = attr->qp_type;
    ibv->state = rss ? IBV_QPS_RTS : IBV_QPS_RESET;
    pthread_mutex_init(&ibv->mutex, NULL);
    pthread_cond_init(&ibv->cond, NULL);
    memcpy(&qp->made, attr, sizeof qp->made); /* begins like it */
    card->counts.qps++;
    *made = qp;
    return 0;
}

STAND_IN_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct qp *qp = NULL;
    struct ibv_qp_init_attr_ex ex = {.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd};
    memcpy(&ex, attr, offsetof(struct ibv_qp_init_attr_ex, comp_mask)); /* begins like it */
    pthread_mutex_lock(&lock);
    struct context *context = context_of(pd->context);
    int error = refused(context->card, context, CALL_CREATE_QP);
    if (!error) error = make_qp(context, &ex, &qp);
    pthread_mutex_unlock(&lock);
    if (error) errno = error;
    else attr->cap = ex.cap;
    return error ? NULL : &qp->ibv;
}

static int check_rss(const struct ibv_qp_init_attr_ex *attr)
{
    const struct ibv_rx_hash_conf *hash = &attr->rx_hash_conf;
    const size_t key = sizeof((struct qp *)0)->hash_key;
    if (!(attr->comp_mask & IBV_QP_INIT_ATTR_RX_HASH) || !attr->rwq_ind_tbl) return EINVAL;
    if (attr->recv_cq || attr->cap.max_recv_wr) return EINVAL;
    if (hash->rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ || hash->rx_hash_key_len != key) return EINVAL;
    bool one = container_of(attr->rwq_ind_tbl, struct table, ibv)->count == 1;
    return !hash->rx_hash_key || (!hash->rx_hash_fields_mask && !one) ? EINVAL : 0;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *ibv, struct ibv_qp_init_attr_ex *attr)
{
    const uint32_t rss = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | rss;
    struct qp *qp = NULL;
    pthread_mutex_lock(&lock);
    int error = refused(card_of(ibv), context_of(ibv), CALL_CREATE_QP_EX);
    if (!error && (attr->comp_mask & ~known || !(attr->comp_mask & IBV_QP_INIT_ATTR_PD))) error = EINVAL;
    if (!error && qp_flags(attr) & ~(uint32_t)IBV_QP_CREATE_CVLAN_STRIPPING) error = EOPNOTSUPP;
    if (!error && attr->comp_mask & rss)
        error = attr->comp_mask & IBV_QP_INIT_ATTR_IND_TABLE ? check_rss(attr) : EINVAL;
    if (!error) error = make_qp(context_of(ibv), attr, &qp);
    pthread_mutex_unlock(&lock);
    if (error) errno = error;
    return error ? NULL : &qp->ibv;
}

/* What a raw packet QP may do, and with which attributes. */
static int change(struct qp *qp, const struct ibv_qp_attr *attr, int mask)
{
    enum ibv_qp_state from = qp->ibv.state, to = attr->qp_state;
    if (qp->table) return EOPNOTSUPP;
    if (!(mask & IBV_QP_STATE) || (mask & IBV_QP_CUR_STATE && attr->cur_qp_state != from)) return EINVAL;
    int rest = mask & ~(IBV_QP_STATE | IBV_QP_CUR_STATE);
    if (to == IBV_QPS_RESET) {
        reset_queue(&qp->queue);
    } else if (to == IBV_QPS_ERR) {
        qp->ibv.state = to;
        fail_queue(&qp->queue);
    } else if (from == IBV_QPS_RESET && to == IBV_QPS_INIT) {
        if (rest != IBV_QP_PORT || attr->port_num != PORT) return EINVAL;
    } else if (from == IBV_QPS_INIT && to == IBV_QPS_RTR) {
        if (rest) return EINVAL;
        qp->queue.ready = true;
    } else if (!(from == IBV_QPS_RTR && to == IBV_QPS_RTS) || rest & ~IBV_QP_RATE_LIMIT) {
        return EINVAL;
    }
    qp->ibv.state = to;
    return 0;
}

STAND_IN_EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
    struct context *context = context_of(ibv->context);
    pthread_mutex_lock(&lock);
    int error = refused(context->card, context, CALL_MODIFY_QP);
    if (!error) error = change(qp_of(ibv), attr, mask);
    pthread_mutex_unlock(&lock);
    return error;
}

STAND_IN_EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
    struct context *context = context_of(ibv->context);
    (void)mask;
    pthread_mutex_lock(&lock);
    int error = refused(context->card, context, CALL_QUERY_QP);
    if (!error) {
        memset(attr, 0, sizeof *attr);
        attr->qp_state = attr->cur_qp_state = ibv->state;
        attr->port_num = PORT;
        attr->cap = qp_of(ibv)->made.cap;
        *init = qp_of(ibv)->made;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

STAND_IN_EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
    struct qp *qp = qp_of(ibv);
    struct context *context = context_of(ibv->context);
    struct card *card = context->card;
    pthread_mutex_lock(&lock);
    int error = qp->gone ? EIO : refused(card, NULL, CALL_DESTROY_QP);
    if (!error && qp->users) {
        misuse(card, "ibv_destroy_qp under %u rules", qp->users);
        error = EBUSY;
    }
    if (error) {
        pthread_mutex_unlock(&lock);
        return error;
    }
    if (qp->table) {
        qp->table->users--;
        qp->queue.pd->users--;
    } else {
        free_queue(&qp->queue);
        qp->send_cq->users--;
        wait_for_acks(card, &qp->queue.async_events, &ibv->events_completed, "ibv_destroy_qp");
    }
    card->counts.qps--;
    error = after_pull(context);
    if (error) {
        bury(qp, &qp->gone);
    } else {
        pthread_mutex_destroy(&ibv->mutex);
        pthread_cond_destroy(&ibv->cond);
        free(qp);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* --- work queues and their tables --- */

static struct ibv_wq *create_wq(struct ibv_context *ibv, struct ibv_wq_init_attr *attr)
{
    struct context *context = context_of(ibv);
    pthread_mutex_lock(&lock);
    int error = refused(context->card, context, CALL_CREATE_WQ);
    bool flags = attr->comp_mask & IBV_WQ_INIT_ATTR_FLAGS;
    if (!error && context->card->is.flags & (STAND_IN_NO_RAW_PACKET | STAND_IN_INFINIBAND)) error = EOPNOTSUPP;
    if (!error && (attr->wq_type != IBV_WQT_RQ || !attr->max_wr)) error = EINVAL;
    if (!error && attr->comp_mask & ~(uint32_t)IBV_WQ_INIT_ATTR_FLAGS) error = EINVAL;
    if (!error && flags && attr->create_flags & ~(uint32_t)IBV_WQ_FLAGS_CVLAN_STRIPPING) error = EOPNOTSUPP;
    struct wq *wq = error ? NULL : calloc(1, sizeof *wq);
    if (!error) error = wq ? make_queue(&wq->queue, context, attr->pd, attr->cq, &attr->max_wr, &attr->max_sge) : ENOMEM;
    if (!error) {
        wq->queue.wq = &wq->ibv;
        wq->queue.strip_vlan = flags && attr->create_flags;
        wq->ibv.context = ibv;
        wq->ibv.pd = attr->pd;
        wq->ibv.cq = attr->cq;
        wq->ibv.wq_num = wq->queue.number;
        wq->ibv.handle = (uint32_t)wq->queue.handle;
        wq->ibv.state = IBV_WQS_RESET;
        wq->ibv.wq_type = IBV_WQT_RQ;
        wq->ibv.post_recv = post_wq_recv;
        context->card->counts.wqs++;
    }
    pthread_mutex_unlock(&lock);
    if (!error) return &wq->ibv;
    free(wq);
    errno = error;
    return NULL;
}

static int modify_wq(struct ibv_wq *ibv, struct ibv_wq_attr *attr)
{
    struct wq *wq = wq_of(ibv);
    struct context *context = context_of(ibv->context);
    pthread_mutex_lock(&lock);
    int error = refused(context->card, context, CALL_MODIFY_WQ);
    if (!error && attr->attr_mask & ~(uint32_t)(IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE)) error = EINVAL;
    if (!error && attr->attr_mask & IBV_WQ_ATTR_CURR_STATE && attr->curr_wq_state != ibv->state) error = EINVAL;
    if (!error && attr->attr_mask & IBV_WQ_ATTR_STATE) {
        if (attr->wq_state == IBV_WQS_RESET) reset_queue(&wq->queue);
        else if (attr->wq_state == IBV_WQS_ERR) fail_queue(&wq->queue);
        else if (attr->wq_state == IBV_WQS_RDY && ibv->state != IBV_WQS_ERR) wq->queue.ready = true;
        else error = EINVAL;
        if (!error) ibv->state = attr->wq_state;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static int destroy_wq(struct ibv_wq *ibv)
{
    struct wq *wq = wq_of(ibv);
    struct context *context = context_of(ibv->context);
    pthread_mutex_lock(&lock);
    int error = wq->gone ? EIO : refused(context->card, NULL, CALL_DESTROY_WQ);
    if (!error && wq->users) {
        misuse(context->card, "ibv_destroy_wq under %u tables", wq->users);
        error = EBUSY;
    }
    if (!error) {
        free_queue(&wq->queue);
        wait_for_acks(context->card, &wq->queue.async_events, &ibv->events_completed, "ibv_destroy_wq");
        context->card->counts.wqs--;
        error = after_pull(context);
        if (error) bury(wq, &wq->gone);
        else free(wq);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static struct ibv_rwq_ind_table *create_table(struct ibv_context *ibv, struct ibv_rwq_ind_table_init_attr *attr)
{
    struct context *context = context_of(ibv);
    size_t count = attr->log_ind_tbl_size <= 9 ? (size_t)1 << attr->log_ind_tbl_size : 0;
    pthread_mutex_lock(&lock);
    int error = refused(context->card, context, CALL_CREATE_RWQ_IND_TABLE);
    if (!error && (!count || attr->comp_mask)) error = EINVAL;
    struct table *table = error ? NULL : calloc(1, sizeof *table);
    if (table) table->wqs = calloc(count, sizeof *table->wqs);
    if (!error && (!table || !table->wqs)) error = ENOMEM;
    if (!error) {
        table->count = count;
        table->ibv.context = ibv;
        table->ibv.ind_tbl_num = table->ibv.ind_tbl_handle = (int)++context->card->next_number;
        for (size_t i = 0; i < count; i++) {
            table->wqs[i] = wq_of(attr->ind_tbl[i]);
            table->wqs[i]->users++;
        }
        context->card->counts.tables++;
    }
    pthread_mutex_unlock(&lock);
    if (!error) return &table->ibv;
    free(table);
    errno = error;
    return NULL;
}

static int destroy_table(struct ibv_rwq_ind_table *ibv)
{
    struct table *table = container_of(ibv, struct table, ibv);
    struct context *context = context_of(ibv->context);
    pthread_mutex_lock(&lock);
    int error = table->gone ? EIO : refused(context->card, NULL, CALL_DESTROY_RWQ_IND_TABLE);
    if (!error && table->users) {
        misuse(context->card, "ibv_destroy_rwq_ind_table under %u QPs", table->users);
        error = EBUSY;
    }
    if (!error) {
        for (size_t i = 0; i < table->count; i++) table->wqs[i]->users--;
        free(table->wqs);
        table->wqs = NULL;
        context->card->counts.tables--;
        error = after_pull(context);
        if (error) bury(table, &table->gone);
        else free(table);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

void add_queue_calls(struct verbs_context *verbs)
{
    verbs->context.ops.post_recv = post_recv;
    verbs->context.ops.post_send = post_send;
    verbs->create_qp_ex = create_qp_ex;
    verbs->create_wq = create_wq;
    verbs->modify_wq = modify_wq;
    verbs->destroy_wq = destroy_wq;
    verbs->create_rwq_ind_table = create_table;
    verbs->destroy_rwq_ind_table = destroy_table;
}
