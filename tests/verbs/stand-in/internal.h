/* What the files of the stand-in share. One lock guards everything; `opening` is taken before it, by those who open, close, add
 * and remove. Nothing waits for a thread under `lock`. */
#ifndef VERBS_STAND_IN_INTERNAL_H
#define VERBS_STAND_IN_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "control.h"

#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

/* The header has macros of these names, for callers. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum {
    PORT = 1,
    ETHERNET_HEAD = 14,
    VLAN_TAG = 4,
    LARGEST_FRAME = 65535 + ETHERNET_HEAD + 2 * VLAN_TAG,
    COMP_VECTORS = 8,
    LAST_PRIORITY = 15,
    MULTICAST_PRIORITY = 16, /* of rules for multicast alone */
    LEFTOVER_PRIORITY = 17,  /* of the default rules */
};

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* Calls that can be told to fail; the names are in control.c, in this order. */
enum call {
    CALL_GET_DEVICE_LIST,
    CALL_OPEN_DEVICE,
    CALL_QUERY_DEVICE,
    CALL_QUERY_PORT,
    CALL_QUERY_GID,
    CALL_QUERY_RT_VALUES,
    CALL_ALLOC_PD,
    CALL_REG_MR,
    CALL_REG_DMABUF_MR,
    CALL_DEREG_MR,
    CALL_CREATE_COMP_CHANNEL,
    CALL_CREATE_CQ,
    CALL_CREATE_CQ_EX,
    CALL_REQ_NOTIFY_CQ,
    CALL_POLL_CQ,
    CALL_START_POLL,
    CALL_GET_CQ_EVENT,
    CALL_CREATE_QP,
    CALL_CREATE_QP_EX,
    CALL_MODIFY_QP,
    CALL_QUERY_QP,
    CALL_CREATE_WQ,
    CALL_MODIFY_WQ,
    CALL_CREATE_RWQ_IND_TABLE,
    CALL_POST_RECV,
    CALL_POST_WQ_RECV,
    CALL_CREATE_FLOW,
    CALL_DESTROY_FLOW,
    CALL_DESTROY_QP,
    CALL_DESTROY_CQ,
    CALL_DEALLOC_PD,
    CALL_DESTROY_COMP_CHANNEL,
    CALL_DESTROY_WQ,
    CALL_DESTROY_RWQ_IND_TABLE,
    CALLS
};

struct card {
    struct card *next;
    struct ibv_device ibv;
    char interface[64], net[64], sysfs[200], capture[256];
    stand_in_device is; /* its defaults filled in; its strings are those above */
    bool listed, pulled, up, any_mac;
    size_t mtu;
    unsigned refs; /* of lists and open devices */
    struct context *contexts;
    struct queue *queues;
    struct rule *rules; /* in the order in which they match */
    struct mr **mrs;    /* by the lkey's upper 24 bits */
    size_t mr_room;
    uint64_t next_handle;
    uint32_t next_number; /* of queues */
    stand_in_counts counts;
    struct {
        int error;
        uint32_t times;
    } fail[CALLS];

    /* source.c: while a device is open */
    bool has_thread, played;
    pthread_t thread;
    int socket, stop;

    /* sysfs.c */
    int counter; /* hw_counters/out_of_buffer; -1: none */
    uint64_t counter_says;
};

struct context {
    struct verbs_context verbs;
    struct context *next;
    struct card *card;
    struct cq *cqs;
    int events; /* the end that is written */
    bool dead;  /* the card was pulled */
};

struct pd {
    struct ibv_pd ibv;
    unsigned users;
    bool gone; /* destroyed after the card was pulled; so for all that follow */
};

enum where { IN_HOST, IN_MAPPING, IN_GPU };

struct mr {
    struct ibv_mr ibv;
    uint64_t iova;
    unsigned access;
    enum where where;
    uint8_t *memory; /* of iova */
    void *mapping;
    size_t mapping_length;
    struct cuda *cuda;
    bool gone;
};

struct channel {
    struct ibv_comp_channel ibv;
    int events; /* the end that is written */
};

struct completion {
    uint64_t wr_id, raw, wall;
    struct queue *queue;
    enum ibv_wc_status status;
    uint32_t octets, flow_tag;
    unsigned flags;
    uint16_t vlan;
};

struct cq {
    union {
        struct ibv_cq ibv;
        struct ibv_cq_ex ex; /* begins like ibv_cq */
    };
    struct cq *next;
    struct context *context;
    uint64_t handle;
    struct completion *ring;
    size_t size, first, count;
    struct completion now; /* that which is read between start_poll and end_poll */
    bool polling, armed, failed, ignore_overrun, gone;
    unsigned users;
    uint32_t comp_events, async_events; /* read by the program */
};

struct entry {
    uint64_t wr_id;
    int segments;
};

/* The receive queue of a QP or a WQ. Entries: freed <= used <= posted. */
struct queue {
    struct queue *next;
    struct context *context;
    struct pd *pd;
    struct cq *cq;
    struct entry *ring;
    struct ibv_sge *segments; /* max_segments for each entry */
    size_t size, max_segments;
    uint64_t posted, used, freed;
    bool ready, error, strip_vlan;
    uint32_t number;
    uint64_t handle;
    struct ibv_qp *qp; /* one of the two */
    struct ibv_wq *wq;
    uint32_t async_events;
};

struct wq {
    struct ibv_wq ibv;
    struct queue queue;
    unsigned users;
    bool gone;
};

struct table {
    struct ibv_rwq_ind_table ibv;
    struct wq **wqs;
    size_t count;
    unsigned users;
    bool gone;
};

struct qp {
    struct ibv_qp ibv;
    struct queue queue;
    struct cq *send_cq;
    struct table *table; /* instead of its own queue */
    uint8_t hash_key[40];
    uint64_t hash_fields;
    unsigned users; /* rules */
    bool gone;
    struct ibv_qp_init_attr made;
};

/* What a rule looks at; all in the byte order of the network. */
struct headers {
    uint8_t dst_mac[6], src_mac[6];
    uint16_t ether_type; /* after the tags */
    uint16_t vlan_tag;
    bool has_vlan, is_ipv4, is_udp, is_tcp; /* the latter two: whole datagrams alone */
    uint32_t src_ip, dst_ip;
    uint8_t proto, tos, ttl;
    uint16_t src_port, dst_port;
    size_t ip_at, udp_at;
};

struct rule {
    struct ibv_flow ibv;
    struct rule *next;
    struct qp *qp;
    unsigned priority, asked_priority;
    enum ibv_flow_attr_type type;
    bool eth, ipv4, udp, tcp, drop, dont_trap;
    struct headers val, mask;
    uint32_t tag;
    bool gone;
};

extern pthread_mutex_t lock, opening;

/* --- control.c --- */
struct card *card_named(const char *name);
extern struct card *cards;
/* What the call was told to fail with, or EIO for a dead device; 0: go on. */
int refused(struct card *card, const struct context *context, enum call call);
int list_refused(void);
int fail_call(struct card *card, const char *call, int error, uint32_t times);
void misuse(struct card *card, const char *format, ...) __attribute__((format(printf, 2, 3)));
void drop_card(struct card *card); /* one ref less */

/* --- describe.c --- */
void describe_from_environment(void);
int describe(const stand_in_device *device, const char *capture, struct card **made);

/* --- device.c --- */
static inline struct context *context_of(struct ibv_context *ibv)
{
    return container_of(ibv, struct context, verbs.context);
}
static inline struct card *card_of(struct ibv_context *ibv) { return context_of(ibv)->card; }
/* Errors of calls that destroy after the card was pulled: EIO, or 0 where the environment wants that. */
int after_pull(const struct context *context);
/* Keeps what a call that failed so was to free, for it may be tried again: it is gone then. */
void bury(void *memory, bool *gone);
uint64_t raw_ticks(const struct card *card, uint64_t wall_ns);
uint64_t wall_now(const struct card *card);
/* Tables of calls that other files have. */
void add_queue_calls(struct verbs_context *verbs);
void add_completion_calls(struct verbs_context *verbs, const struct card *card);
void add_rule_calls(struct verbs_context *verbs);

/* --- event.c --- */
void tell_port(struct card *card, enum ibv_event_type type);
void tell_device(struct context *context);
void tell_cq(struct cq *cq);
void tell_queue(struct queue *queue);
/* Waits until what was read is acknowledged; a program that never does has misused it. */
void wait_for_acks(struct card *card, const uint32_t *read, const uint32_t *acknowledged, const char *what);

/* --- memory.c --- */
/* The memory of a segment, if the queue may write it. */
struct mr *memory_of(const struct queue *queue, const struct ibv_sge *segment, size_t length);
bool write_memory(struct mr *mr, uint64_t addr, const uint8_t *data, size_t length);

/* --- cuda.c --- */
struct cuda;
/* NULL: not memory of a GPU, or there is no CUDA. False: memory of a GPU that cannot be written. */
bool cuda_for(const void *addr, struct cuda **cuda);
bool cuda_write(struct cuda *cuda, void *to, const void *from, size_t length);
void cuda_close(struct cuda *cuda);

/* --- completion.c --- */
void complete(struct cq *cq, const struct completion *completion);
void overrun(struct cq *cq);
void forget_completions(struct cq *cq, const struct queue *queue);

/* --- queue.c --- */
void fail_queue(struct queue *queue); /* into error: entries are flushed */
void fail_queues_of(struct cq *cq);

/* --- frame.c --- */
void read_headers(const uint8_t *frame, size_t length, struct headers *headers);
bool checksums_hold(const uint8_t *frame, size_t length, const struct headers *headers);
void finish_checksum(uint8_t *frame, size_t length, size_t start, size_t offset);
typedef bool each_frame(void *context, const uint8_t *frame, size_t length, uint64_t ns);
/* Calls `with` for each until it says false. How many, or -1: cannot be read. */
int64_t read_capture(const char *path, each_frame *with, void *context);
/* Cuts what the kernel hands over in one piece. */
void cut_segments(const uint8_t *frame, size_t length, size_t payload, each_frame *with, void *context, uint64_t ns);

/* --- rule.c --- */
bool matches(const struct rule *rule, const struct headers *headers, bool any_mac);
bool same_match(const struct rule *a, const struct rule *b);
void remove_rules_of(struct card *card, const struct context *context);

/* --- arrival.c --- */
/* Under the lock. How many queues it was written to. */
int arrive(struct card *card, const uint8_t *frame, size_t length, uint64_t stamp_ns, bool checksums_done);

/* --- source.c: under `opening` --- */
int start_source(struct card *card);
void stop_source(struct card *card);

/* --- sysfs.c --- */
int make_files(struct card *card);
void write_state(const struct card *card);
void write_counter(struct card *card);

#endif
