/* What the files of the stand-in share. Order of locks: streams_lock, then a stream's own. */
#ifndef STAND_IN_INTERNAL_H
#define STAND_IN_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "rivermax_stand_in.h"

#include <pthread.h>

enum { BLOCKS = RMX_MAX_SUB_BLOCKS_PER_MEM_BLOCK, MAX_FLOWS = 64, CACHE_LINE = 64, PAGE = 4096 };

/* --- process.c --- */
bool initialised(void);
/* What a call was told to answer, else RMX_OK. */
rmx_status injected(uint32_t ip, const char *call);
rmx_stand_in_device device_switches(uint32_t ip);
void misuse(void);
void run_where_asked(pthread_t thread);

/* --- signals.c --- */
bool stop_asked(void);
int stop_event(void); /* readable once a stop is asked; -1: signals are not handled */
void forget_stop(void);

/* --- device.c --- */
bool find_device(uint32_t ip, unsigned *index);
void forget_clock(void);
uint64_t now_ns(clockid_t clock);
int64_t tai_minus_utc_ns(void);

/* --- memory.c --- */
bool registered(uint32_t ip, rmx_mkey mkey, const void *addr, size_t length);
rmx_status use_memory(rmx_mkey mkey, int by); /* +1, -1: streams over it */

/* --- cuda.c --- */
struct cuda; /* the driver's view of one stream */
/* NULL: not memory of a GPU, or there is no CUDA. False: memory of a GPU that cannot be written. */
bool cuda_for(const void *addr, struct cuda **cuda);
bool cuda_write(struct cuda *cuda, void *to, const void *from, size_t length);
bool cuda_finish(struct cuda *cuda); /* all writes are done */
void cuda_close(struct cuda *cuda);

/* --- stream.c --- */
struct record {
    uint64_t time, arrived; /* ns: UTC, and monotonic */
    uint32_t slot, tag, size[BLOCKS];
};

struct flow {
    rmx_input_flow key;
    int fd; /* -1: none; flows of one unicast address share theirs */
};

struct block {
    uint8_t *addr;
    size_t max, stride, length;
    void *owned;
    rmx_mkey mkey;
    struct cuda *cuda;
};

struct stream {
    pthread_mutex_t lock;
    uint32_t ip;
    unsigned index; /* of the interface */
    uint32_t options, timestamp_format;
    rmx_stand_in_device switches;
    size_t capacity, sub_blocks;
    struct block block[BLOCKS];

    struct flow flows[MAX_FLOWS];
    size_t flow_count;
    bool was_attached;
    pthread_t thread;
    bool has_thread, stop;
    int wake; /* event for the thread */

    /* Completions: a circle of 2 x capacity records; [taken, shown) can be had, [shown, written) are being written. */
    struct record *records;
    uint64_t taken, shown, written;
    uint64_t next; /* packet in order of arrival */
    rmx_input_packet_info *infos;
    size_t infos_used;
    size_t idle_polls; /* since the last chunk */
    bool moderated;
    size_t min, max;
    uint64_t timeout_ns;
    rmx_stand_in_counts counts;

    int event, epoll; /* -1: no event channel */
    bool armed;
    bool copies_failed; /* to memory of a GPU, since the last chunk */
};

extern pthread_rwlock_t streams_lock;
/* Under streams_lock. */
struct stream *find_stream(rmx_stream_id id);
struct stream *stream_at(size_t slot); /* of any number below MAX_STREAMS; NULL: none */
enum { MAX_STREAMS = 256 };
size_t streams_left(void);

/* --- ring.c: under the stream's lock --- */
bool write_packet(struct stream *s, const uint8_t *data, size_t length, uint32_t tag, uint64_t time);
void show_written(struct stream *s);

/* --- flow.c --- */
/* The flow that a packet belongs to, the most specific one; fd -2: any. Under the stream's lock. */
const struct flow *flow_of(const struct stream *s, int fd, uint32_t destination, uint16_t destination_port,
                           uint32_t source, uint16_t source_port);
void close_flows(struct stream *s);

/* --- event.c: under the stream's lock --- */
void tell(struct stream *s);
void close_events(struct stream *s);

/* --- source.c --- */
void play_capture_once(uint32_t ip); /* of the environment */
void forget_queues(void);

/* --- capture.c --- */
/* Calls `with` for each UDP packet. */
bool read_capture(const char *path, void (*with)(void *context, const rmx_stand_in_packet *packet), void *context);

#endif
