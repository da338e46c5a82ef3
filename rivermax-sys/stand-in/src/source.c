/* Packets from memory or a capture in place of the network, with faults that a seed decides. */
#include "internal.h"

#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    MAX_QUEUES = 128,
    NAP_NS = 1000000,
    WAIT_NS = 200000000, /* between the first flow and a capture of the environment: others may follow */
};

struct queued {
    rmx_stand_in_packet packet; /* its data is ours */
    uint64_t order, index;
};

struct queue {
    uint32_t ip;
    struct queued *packets;
    size_t count, room, next;
    uint64_t seen; /* packets queued, lost ones included */
    rmx_stand_in_faults faults;
    uint64_t random, wait_ns;
    pthread_t thread;
    bool has_thread, failed;
    atomic_bool stop;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue *queues[MAX_QUEUES];

size_t rmx_stand_in_deliver(uint32_t ip, const rmx_stand_in_packet *packets, size_t count)
{
    size_t written = 0;
    pthread_rwlock_rdlock(&streams_lock);
    for (size_t slot = 0; slot < MAX_STREAMS; slot++) {
        struct stream *s = stream_at(slot);
        if (!s || s->ip != ip) continue;
        pthread_mutex_lock(&s->lock);
        for (size_t i = 0; i < count; i++) {
            const rmx_stand_in_packet *p = &packets[i];
            const struct flow *f = flow_of(s, -2, p->destination, p->destination_port, p->source, p->source_port);
            if (f) written += write_packet(s, p->data, p->length, f->key.tag, p->time ? p->time : now_ns(CLOCK_REALTIME));
        }
        show_written(s);
        pthread_mutex_unlock(&s->lock);
    }
    pthread_rwlock_unlock(&streams_lock);
    return written;
}

/* Under the lock; made where there is none. */
static struct queue *queue_of(uint32_t ip)
{
    size_t at = 0;
    while (at < MAX_QUEUES && queues[at] && queues[at]->ip != ip) at++;
    if (at == MAX_QUEUES) return NULL;
    if (!queues[at]) queues[at] = calloc(1, sizeof **queues);
    if (queues[at]) queues[at]->ip = ip;
    return queues[at];
}

/* splitmix64 */
static uint64_t draw(struct queue *q)
{
    uint64_t z = q->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool one_in(struct queue *q, uint32_t n)
{
    uint64_t drawn = draw(q); /* always, so that faults do not depend on each other */
    return n && drawn % n == 0;
}

static void add(struct queue *q, const rmx_stand_in_packet *packet, uint64_t order)
{
    if (q->count == q->room) {
        size_t room = q->room ? 2 * q->room : 256;
        struct queued *more = realloc(q->packets, room * sizeof *more);
        if (!more) {
            q->failed = true;
            return;
        }
        q->packets = more;
        q->room = room;
    }
    uint8_t *data = malloc(packet->length ? packet->length : 1);
    if (!data) {
        q->failed = true;
        return;
    }
    if (packet->length) memcpy(data, packet->data, packet->length);
    struct queued *to = &q->packets[q->count];
    *to = (struct queued){*packet, order, q->count};
    to->packet.data = data;
    q->count++;
}

/* Lost, doubled, moved behind others (by count) or late (by time). */
static void add_with_faults(void *context, const rmx_stand_in_packet *packet)
{
    struct queue *q = context;
    const rmx_stand_in_faults *f = &q->faults;
    bool lost = one_in(q, f->lose), twice = one_in(q, f->duplicate), moved = one_in(q, f->reorder), late = one_in(q, f->delay);
    uint64_t by = draw(q);
    uint64_t order = 2 * q->seen++;
    if (lost) return;
    if (twice) add(q, packet, order);
    /* Odd: behind the one that has the place. */
    if (moved) order += 2 * (1 + by % (f->reorder_by ? f->reorder_by : 1)) + 1;
    rmx_stand_in_packet copy = *packet;
    if (late) copy.time += f->delay_ns;
    add(q, &copy, order);
}

static int by_order(const void *a, const void *b)
{
    const struct queued *x = a, *y = b;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_time(const void *a, const void *b)
{
    const struct queued *x = a, *y = b;
    if (x->packet.time != y->packet.time) return x->packet.time < y->packet.time ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* From `first` on: in the order that the faults make; with delays, that of the time stamps then. */
static void put_in_order(struct queue *q, size_t first)
{
    size_t n = q->count - first;
    if (!n) return;
    qsort(q->packets + first, n, sizeof *q->packets, by_order);
    for (size_t i = first; i < q->count; i++) q->packets[i].index = i;
    if (q->faults.delay) qsort(q->packets + first, n, sizeof *q->packets, by_time);
}

static struct queue *begin(uint32_t ip, const rmx_stand_in_faults *faults)
{
    struct queue *q = queue_of(ip);
    if (!q) return NULL;
    q->faults = faults ? *faults : (rmx_stand_in_faults){0};
    q->random = q->faults.seed;
    q->failed = false;
    return q;
}

int64_t rmx_stand_in_queue(uint32_t ip, const rmx_stand_in_packet *packets, size_t count, const rmx_stand_in_faults *faults)
{
    int64_t now = -1;
    pthread_mutex_lock(&lock);
    struct queue *q = begin(ip, faults);
    if (q) {
        size_t first = q->count;
        for (size_t i = 0; i < count; i++) add_with_faults(q, &packets[i]);
        put_in_order(q, first);
        if (!q->failed) now = (int64_t)(q->count - q->next);
    }
    pthread_mutex_unlock(&lock);
    return now;
}

int64_t rmx_stand_in_queue_capture(uint32_t ip, const char *path, const rmx_stand_in_faults *faults)
{
    int64_t now = -1;
    pthread_mutex_lock(&lock);
    struct queue *q = begin(ip, faults);
    if (q) {
        size_t first = q->count;
        bool read = read_capture(path, add_with_faults, q);
        put_in_order(q, first);
        if (read && !q->failed) now = (int64_t)(q->count - q->next);
    }
    pthread_mutex_unlock(&lock);
    return now;
}

size_t rmx_stand_in_step(uint32_t ip, size_t count)
{
    pthread_mutex_lock(&lock);
    struct queue *q = queue_of(ip);
    size_t n = 0;
    while (q && n < count && q->next < q->count) {
        rmx_stand_in_packet *p = &q->packets[q->next++].packet;
        rmx_stand_in_deliver(ip, p, 1);
        free((void *)p->data);
        p->data = NULL;
        n++;
    }
    pthread_mutex_unlock(&lock);
    return n;
}

/* Says when the next packet is due, by the clock that began with the first one; 0: there is none. */
static uint64_t due(struct queue *q, bool *began, uint64_t *first, uint64_t *start)
{
    pthread_mutex_lock(&lock);
    bool empty = q->next == q->count;
    uint64_t time = empty ? 0 : q->packets[q->next].packet.time;
    pthread_mutex_unlock(&lock);
    if (empty) {
        *began = false;
        return 0;
    }
    if (!*began) {
        *began = true;
        *first = time;
        *start = now_ns(CLOCK_MONOTONIC) + q->wait_ns;
    }
    return *start + (time > *first ? time - *first : 0);
}

static void *play(void *context)
{
    struct queue *q = context;
    bool began = false;
    uint64_t first = 0, start = 0;
    while (!q->stop) {
        uint64_t then = due(q, &began, &first, &start), now = now_ns(CLOCK_MONOTONIC);
        if (then && then <= now) {
            rmx_stand_in_step(q->ip, 1);
        } else {
            /* Short, to see that it is to stop, or that there is something to play. */
            uint64_t ns = then && then - now < NAP_NS ? then - now : NAP_NS;
            nanosleep(&(struct timespec){0, (long)ns}, NULL);
        }
    }
    return NULL;
}

rmx_status rmx_stand_in_play(uint32_t ip)
{
    pthread_mutex_lock(&lock);
    struct queue *q = queue_of(ip);
    rmx_status status = q ? RMX_OK : RMX_NO_HARDWARE_RESOURCES;
    if (q && q->has_thread) status = RMX_BUSY;
    else if (q) q->has_thread = !pthread_create(&q->thread, NULL, play, q);
    pthread_mutex_unlock(&lock);
    return status;
}

static rmx_stand_in_faults faults_of_environment(void)
{
    rmx_stand_in_faults f = {0};
    const char *text = getenv("RIVERMAX_STAND_IN_FAULTS");
    char *copy = strdup(text ? text : ""), *rest = NULL;
    for (char *word = strtok_r(copy, ", ", &rest); word; word = strtok_r(NULL, ", ", &rest)) {
        unsigned long long n;
        if (sscanf(word, "seed=%llu", &n) == 1) f.seed = n;
        else if (sscanf(word, "lose=%llu", &n) == 1) f.lose = (uint32_t)n;
        else if (sscanf(word, "duplicate=%llu", &n) == 1) f.duplicate = (uint32_t)n;
        else if (sscanf(word, "reorder=%llu", &n) == 1) f.reorder = (uint32_t)n;
        else if (sscanf(word, "reorder-by=%llu", &n) == 1) f.reorder_by = (uint32_t)n;
        else if (sscanf(word, "delay=%llu", &n) == 1) f.delay = (uint32_t)n;
        else if (sscanf(word, "delay-ns=%llu", &n) == 1) f.delay_ns = n;
        else fprintf(stderr, "rivermax stand-in: RIVERMAX_STAND_IN_FAULTS has no fault %s\n", word);
    }
    free(copy);
    return f;
}

void play_capture_once(uint32_t ip)
{
    const char *path = getenv("RIVERMAX_STAND_IN_CAPTURE");
    if (!path || !*path) return;
    pthread_mutex_lock(&lock);
    struct queue *q = queue_of(ip);
    bool again = !q || q->seen;
    if (q) q->wait_ns = WAIT_NS;
    pthread_mutex_unlock(&lock);
    if (again) return;
    rmx_stand_in_faults faults = faults_of_environment();
    if (rmx_stand_in_queue_capture(ip, path, &faults) < 0) fprintf(stderr, "rivermax stand-in: %s cannot be read\n", path);
    rmx_stand_in_play(ip);
}

void forget_queues(void)
{
    for (size_t i = 0; i < MAX_QUEUES; i++) {
        pthread_mutex_lock(&lock);
        struct queue *q = queues[i];
        pthread_mutex_unlock(&lock);
        if (!q) continue;
        q->stop = true;
        if (q->has_thread) pthread_join(q->thread, NULL);
        pthread_mutex_lock(&lock);
        for (size_t n = q->next; n < q->count; n++) free((void *)q->packets[n].packet.data);
        free(q->packets);
        free(q);
        queues[i] = NULL;
        pthread_mutex_unlock(&lock);
    }
}
