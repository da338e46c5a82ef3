/* Streams: from parameters to memory, and completions as chunks. */
#include "internal.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

pthread_rwlock_t streams_lock = PTHREAD_RWLOCK_INITIALIZER;
static struct {
    struct stream *stream;
    uint32_t generation;
} streams[MAX_STREAMS];

struct stream *find_stream(rmx_stream_id id)
{
    return id.slot < MAX_STREAMS && streams[id.slot].generation == id.generation ? streams[id.slot].stream : NULL;
}

struct stream *stream_at(size_t slot) { return streams[slot].stream; }

size_t streams_left(void)
{
    size_t n = 0;
    pthread_rwlock_rdlock(&streams_lock);
    for (size_t i = 0; i < MAX_STREAMS; i++) n += streams[i].stream != NULL;
    pthread_rwlock_unlock(&streams_lock);
    return n;
}

/* Locked; unlock with leave. */
static struct stream *enter(rmx_stream_id id)
{
    pthread_rwlock_rdlock(&streams_lock);
    struct stream *s = find_stream(id);
    if (s) pthread_mutex_lock(&s->lock);
    else pthread_rwlock_unlock(&streams_lock);
    return s;
}

static void leave(struct stream *s)
{
    pthread_mutex_unlock(&s->lock);
    pthread_rwlock_unlock(&streams_lock);
}

static void release(struct stream *s)
{
    for (size_t i = 0; i < s->sub_blocks; i++) {
        struct block *b = &s->block[i];
        if (b->cuda) cuda_close(b->cuda);
        if (b->mkey != RMX_MKEY_INVALID) use_memory(b->mkey, -1);
        free(b->owned);
    }
    close_events(s);
    if (s->wake >= 0) close(s->wake);
    free(s->records);
    free(s->infos);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The caller's memory, registered by the caller or here, or our own. */
static rmx_status take_memory(struct stream *s, struct block *b, const rmx_mem_region *region)
{
    if (!b->length) return RMX_OK;
    if (!region->addr) {
        size_t whole = (b->length + PAGE - 1) / PAGE * PAGE;
        b->addr = b->owned = aligned_alloc(PAGE, whole);
        if (!b->owned) return RMX_NO_HARDWARE_RESOURCES;
        memset(b->owned, 0, whole);
        return RMX_OK;
    }
    bool placed = s->options >> RMX_INPUT_STREAM_RTP_SEQN_PLACEMENT_ORDER & 1
                  || s->options >> RMX_INPUT_STREAM_RTP_EXT_SEQN_PLACEMENT_ORDER & 1;
    if ((uintptr_t)region->addr % (placed ? PAGE : CACHE_LINE)) return RMX_MEMORY_NOT_ALIGNED;
    if (region->mkey == RMX_MKEY_INVALID) {
        /* Registered here, for as long as the stream lives. */
        rmx_status status = injected(s->ip, "rmx_register_memory");
        if (status) return status;
    } else {
        if (!registered(s->ip, region->mkey, region->addr, b->length)) return RMX_MEMORY_NOT_REGISTERED;
        use_memory(region->mkey, 1);
        b->mkey = region->mkey;
    }
    b->addr = region->addr;
    return cuda_for(b->addr, &b->cuda) ? RMX_OK : RMX_MEMORY_NOT_REGISTERED;
}

rmx_status rmx_input_create_stream(rmx_input_stream_params *params, rmx_stream_id *id)
{
    if (!params) return RMX_INVALID_PARAM_1;
    if (!id) return RMX_INVALID_PARAM_2;
    if (!initialised()) return RMX_NOT_INITIALIZED;
    if (params->determined_at != params) {
        misuse();
        return RMX_INVALID_PARAM_1;
    }
    uint32_t ip = params->nic.sin_addr.s_addr;
    rmx_status status = injected(ip, "rmx_input_create_stream");
    if (status) return status;

    struct stream *s = calloc(1, sizeof *s);
    if (!s) return RMX_NO_HARDWARE_RESOURCES;
    pthread_mutex_init(&s->lock, NULL);
    s->ip = ip;
    s->options = params->options;
    s->timestamp_format = params->timestamp_format;
    s->switches = device_switches(ip);
    s->capacity = params->capacity;
    s->sub_blocks = params->sub_blocks;
    s->event = s->epoll = -1;
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->records = calloc(2 * s->capacity, sizeof *s->records);
    s->infos = calloc(s->capacity, sizeof *s->infos);
    status = s->records && s->infos && s->wake >= 0 && find_device(ip, &s->index) ? RMX_OK : RMX_NO_HARDWARE_RESOURCES;
    for (size_t i = 0; i < s->sub_blocks; i++) {
        struct block *b = &s->block[i];
        b->max = params->block[i].max;
        b->stride = params->block[i].stride;
        b->length = params->block[i].region.length;
        b->mkey = RMX_MKEY_INVALID;
        if (!status) status = take_memory(s, b, &params->block[i].region);
    }
    if (!status) {
        pthread_rwlock_wrlock(&streams_lock);
        size_t slot = 0;
        while (slot < MAX_STREAMS && streams[slot].stream) slot++;
        if (slot == MAX_STREAMS) status = RMX_NO_HARDWARE_RESOURCES;
        else {
            streams[slot].stream = s;
            *id = (rmx_stream_id){(uint32_t)slot, ++streams[slot].generation};
        }
        pthread_rwlock_unlock(&streams_lock);
    }
    if (status) release(s);
    return status;
}

rmx_status rmx_input_destroy_stream(rmx_stream_id id)
{
    pthread_rwlock_wrlock(&streams_lock);
    struct stream *s = find_stream(id);
    rmx_status status = s ? injected(s->ip, "rmx_input_destroy_stream") : RMX_INVALID_PARAM_1;
    if (!status) streams[id.slot].stream = NULL;
    pthread_rwlock_unlock(&streams_lock);
    if (status) return status; /* it goes on */
    close_flows(s);
    release(s);
    return RMX_OK;
}

rmx_status rmx_input_set_completion_moderation(rmx_stream_id id, size_t min_packets, size_t max_packets, int timeout_usec)
{
    if (!max_packets || min_packets > max_packets) return RMX_INVALID_PARAM_2;
    struct stream *s = enter(id);
    if (!s) return RMX_INVALID_PARAM_1;
    rmx_status status = injected(s->ip, "rmx_input_set_completion_moderation");
    if (!status) {
        s->moderated = true;
        s->min = min_packets;
        s->max = max_packets;
        s->timeout_ns = timeout_usec > 0 ? (uint64_t)timeout_usec * 1000 : 0;
    }
    leave(s);
    return status;
}

void rmx_input_init_chunk_handle(rmx_input_chunk_handle *chunk, rmx_stream_id id)
{
    memset(chunk, 0, sizeof *chunk);
    chunk->id = id;
}

static const struct record *record(const struct stream *s, uint64_t i) { return &s->records[i % (2 * s->capacity)]; }

/* UTC becomes the clock that was asked for. */
static uint64_t stamp(const struct stream *s, uint64_t utc)
{
    return utc + (uint64_t)(s->timestamp_format == RMX_INPUT_TIMESTAMP_SYNCED ? tai_minus_utc_ns()
                                                                             : s->switches.raw_clock_offset);
}

/* One contiguous run, of at most `max`: it ends at the ring's end and where the next slot is not the next. */
static void take_run(struct stream *s, rmx_input_chunk_handle *chunk)
{
    rmx_input_completion *c = &chunk->completion;
    const struct record *first = record(s, s->taken), *last = first;
    size_t n = 1;
    while (n < s->max && n < s->capacity && s->taken + n < s->shown && record(s, s->taken + n)->slot == last->slot + 1)
        last = record(s, s->taken + n++);
    c->packets = n;
    c->first = stamp(s, first->time);
    c->last = stamp(s, last->time);
    for (size_t b = 0; b < s->sub_blocks; b++)
        c->ptr[b] = s->block[b].length ? s->block[b].addr + first->slot * s->block[b].stride : NULL;
    if (s->options >> RMX_INPUT_STREAM_CREATE_INFO_PER_PACKET & 1) {
        for (size_t i = 0; i < n; i++) {
            const struct record *r = record(s, s->taken + i);
            s->infos[i] = (rmx_input_packet_info){stamp(s, r->time), r->tag, {r->size[0], r->size[1]}};
        }
        chunk->infos = s->infos;
        s->infos_used = n;
    }
    s->taken += n;
    s->counts.taken += n;
    if (s->taken < s->shown) c->flags |= RMX_INPUT_COMPLETION_FLAG_MORE;
}

static rmx_status next_chunk(struct stream *s, rmx_input_chunk_handle *chunk)
{
    memset(s->infos, 0xee, s->infos_used * sizeof *s->infos); /* valid until the next call, and this is it */
    s->infos_used = 0;
    chunk->infos = NULL;
    memset(&chunk->completion, 0, sizeof chunk->completion);
    if (stop_asked()) return RMX_SIGNAL;
    if (!s->moderated) return RMX_NOT_INITIALIZED;
    if (s->copies_failed) {
        s->copies_failed = false;
        return RMX_HW_COMPLETION_ISSUE;
    }
    uint64_t waiting = s->shown - s->taken;
    bool held = waiting < s->min && waiting && now_ns(CLOCK_MONOTONIC) - record(s, s->taken)->arrived < s->timeout_ns;
    if (waiting && !held && s->idle_polls++ < s->switches.idle_polls) return RMX_OK;
    if (waiting && !held) {
        s->idle_polls = 0;
        rmx_status status = injected(s->ip, "rmx_input_get_next_chunk");
        if (!status || status == RMX_CHECKSUM_ISSUE) take_run(s, chunk);
        return status;
    }
    return waiting || s->flow_count || !s->was_attached ? RMX_OK : device_switches(s->ip).after_detach;
}

rmx_status rmx_input_get_next_chunk(rmx_input_chunk_handle *chunk)
{
    if (!chunk) return RMX_INVALID_PARAM_1;
    struct stream *s = enter(chunk->id);
    if (!s) return RMX_INVALID_PARAM_1;
    rmx_status status = next_chunk(s, chunk);
    leave(s);
    return status;
}

const rmx_input_packet_info *rmx_input_get_packet_info(const rmx_input_chunk_handle *chunk, size_t packet)
{
    return chunk->infos && packet < chunk->completion.packets ? &chunk->infos[packet] : NULL;
}

rmx_status rmx_stand_in_count(rmx_stream_id id, rmx_stand_in_counts *counts)
{
    struct stream *s = enter(id);
    if (!s) return RMX_INVALID_PARAM_1;
    *counts = s->counts;
    leave(s);
    return RMX_OK;
}
