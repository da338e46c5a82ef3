/* The list of devices, open ones, and what they say of themselves. */
#include "internal.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct card *card_at(struct ibv_device *device) { return container_of(device, struct card, ibv); }

STAND_IN_EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
    pthread_mutex_lock(&lock);
    describe_from_environment();
    size_t n = 0;
    int error = list_refused();
    for (struct card *card = cards; card; card = card->next) n += !card->pulled;
    struct ibv_device **list = error ? NULL : calloc(n + 1, sizeof *list);
    n = 0;
    for (struct card *card = cards; list && card; card = card->next) {
        if (card->pulled) continue;
        card->refs++;
        list[n++] = &card->ibv;
    }
    pthread_mutex_unlock(&lock);
    if (count) *count = (int)n;
    if (error) errno = error;
    return list;
}

STAND_IN_EXPORT void ibv_free_device_list(struct ibv_device **list)
{
    pthread_mutex_lock(&lock);
    for (struct ibv_device **at = list; list && *at; at++) drop_card(card_at(*at));
    pthread_mutex_unlock(&lock);
    free(list);
}

STAND_IN_EXPORT const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

STAND_IN_EXPORT int ibv_get_device_index(struct ibv_device *device)
{
    (void)device;
    return -1; /* as without netlink */
}

static uint64_t guid_of(const struct card *card)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = card->ibv.name; *c; c++) hash = (hash ^ (uint8_t)*c) * 0x100000001b3u;
    return hash;
}

STAND_IN_EXPORT __be64 ibv_get_device_guid(struct ibv_device *device) { return guid_of(card_at(device)); }

static int query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *attr, size_t length);
static int query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t length);
static int query_rt_values(struct ibv_context *ibv, struct ibv_values_ex *values);

/* Under the lock, `opening` too. */
static int open_card(struct card *card, struct context **opened)
{
    int ends[2];
    if (card->pulled || !card->listed) return ENODEV;
    if (card->is.flags & STAND_IN_NO_ACCESS) return EACCES;
    int error = refused(card, NULL, CALL_OPEN_DEVICE);
    if (!error && !card->has_thread) error = start_source(card);
    if (error) return error;
    struct context *made = calloc(1, sizeof *made);
    if (!made) return ENOMEM;
    if (pipe2(ends, O_CLOEXEC)) {
        error = errno;
        free(made);
        return error;
    }
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    struct ibv_context *ibv = &made->verbs.context;
    made->card = card;
    made->events = ends[1];
    made->next = card->contexts;
    card->contexts = made;
    card->refs++;
    card->counts.devices++;
    made->verbs.sz = sizeof made->verbs;
    made->verbs.query_port = query_port;
    made->verbs.query_device_ex = query_device_ex;
    made->verbs.query_rt_values = query_rt_values;
    add_queue_calls(&made->verbs);
    add_completion_calls(&made->verbs, card);
    add_rule_calls(&made->verbs);
    ibv->device = &card->ibv;
    ibv->cmd_fd = -1;
    ibv->async_fd = ends[0];
    ibv->num_comp_vectors = COMP_VECTORS;
    ibv->abi_compat = __VERBS_ABI_IS_EXTENDED;
    pthread_mutex_init(&ibv->mutex, NULL);
    *opened = made;
    return 0;
}

STAND_IN_EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct context *opened = NULL;
    struct card *card = card_at(device);
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    int error = open_card(card, &opened);
    bool idle = !card->contexts && card->has_thread;
    pthread_mutex_unlock(&lock);
    if (idle) stop_source(card);
    pthread_mutex_unlock(&opening);
    if (error) errno = error;
    return error ? NULL : &opened->verbs.context;
}

static void leave_behind(struct context *context)
{
    struct card *card = context->card;
    unsigned long queues = 0, cqs = 0;
    for (struct queue *q = card->queues; q; q = q->next) queues += q->context == context;
    for (struct cq *cq = context->cqs; cq; cq = cq->next) cqs++;
    if (queues || cqs) misuse(card, "ibv_close_device with %lu queues and %lu completion queues left", queues, cqs);
    /* As the kernel does: nothing arrives any more. What the program has not freed stays with it. */
    remove_rules_of(card, context);
    for (struct queue **at = &card->queues; *at;)
        if ((*at)->context == context) *at = (*at)->next;
        else at = &(*at)->next;
}

STAND_IN_EXPORT int ibv_close_device(struct ibv_context *ibv)
{
    struct context *context = context_of(ibv);
    struct card *card = context->card;
    pthread_mutex_lock(&opening);
    pthread_mutex_lock(&lock);
    leave_behind(context);
    struct context **at = &card->contexts;
    while (*at != context) at = &(*at)->next;
    *at = context->next;
    card->counts.devices--;
    bool last = !card->contexts;
    pthread_mutex_unlock(&lock);
    if (last) stop_source(card);
    pthread_mutex_lock(&lock);
    drop_card(card);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&opening);
    close(ibv->async_fd);
    close(context->events);
    pthread_mutex_destroy(&ibv->mutex);
    free(context);
    return 0;
}

/* --- what was to be freed --- */

static struct grave {
    struct grave *next;
    void *memory;
} *graves;

int after_pull(const struct context *context)
{
    return context->dead && !getenv("RDMAV_ALLOW_DISASSOC_DESTROY") ? EIO : 0;
}

void bury(void *memory, bool *gone)
{
    struct grave *grave = malloc(sizeof *grave);
    *gone = true;
    if (!grave) return;
    *grave = (struct grave){graves, memory};
    graves = grave;
}

__attribute__((destructor)) static void clear_graves(void)
{
    for (struct grave *next; graves; graves = next) {
        next = graves->next;
        free(graves->memory);
        free(graves);
    }
}

/* --- clocks --- */

uint64_t wall_now(const struct card *card)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec + (uint64_t)card->is.wall_ahead_ns;
}

uint64_t raw_ticks(const struct card *card, uint64_t wall_ns)
{
    const __int128 billion = 1000000000;
    __int128 since = (__int128)wall_ns - card->is.wall_ahead_ns - (__int128)card->is.clock_origin_ns;
    __int128 ticks = since * (__int128)card->is.clock_khz / 1000000;
    return (uint64_t)(ticks + ticks * card->is.clock_ppb / billion) & card->is.clock_mask;
}

static int query_rt_values(struct ibv_context *ibv, struct ibv_values_ex *values)
{
    pthread_mutex_lock(&lock);
    struct card *card = card_of(ibv);
    int error = refused(card, context_of(ibv), CALL_QUERY_RT_VALUES);
    if (!error && card->is.flags & STAND_IN_NO_STAMPS) error = EOPNOTSUPP;
    if (!error && values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) {
        values->raw_clock.tv_sec = 0;
        values->raw_clock.tv_nsec = (long)raw_ticks(card, wall_now(card));
    }
    if (!error) values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
    pthread_mutex_unlock(&lock);
    return error;
}

/* --- queries --- */

static bool raw_packets(const struct card *card)
{
    return !(card->is.flags & (STAND_IN_NO_RAW_PACKET | STAND_IN_INFINIBAND));
}

static void say_device(const struct card *card, struct ibv_device_attr *a)
{
    const stand_in_device *is = &card->is;
    memset(a, 0, sizeof *a);
    snprintf(a->fw_ver, sizeof a->fw_ver, "22.39.1002");
    a->node_guid = a->sys_image_guid = guid_of(card);
    a->max_mr_size = UINT64_MAX;
    a->page_size_cap = 0xfffffffffffff000u;
    a->vendor_id = is->vendor_id;
    a->vendor_part_id = is->vendor_part_id;
    a->max_qp = 131072;
    a->max_qp_wr = (int)is->max_qp_wr;
    a->device_cap_flags = IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_MANAGED_FLOW_STEERING
                          | IBV_DEVICE_RC_IP_CSUM | IBV_DEVICE_MEM_MGT_EXTENSIONS;
    if (!(is->flags & STAND_IN_NO_CSUM)) a->device_cap_flags |= IBV_DEVICE_RAW_IP_CSUM;
    a->max_sge = a->max_sge_rd = (int)is->max_sge;
    a->max_cq = 16777216;
    a->max_cqe = (int)is->max_cqe;
    a->max_mr = 16777216;
    a->max_pd = 8388608;
    a->max_raw_ethy_qp = 0; /* as mlx5 says, which has them */
    a->max_pkeys = 1;
    a->phys_port_cnt = 1;
}

STAND_IN_EXPORT int ibv_query_device(struct ibv_context *ibv, struct ibv_device_attr *attr)
{
    pthread_mutex_lock(&lock);
    int error = refused(card_of(ibv), context_of(ibv), CALL_QUERY_DEVICE);
    if (!error) say_device(card_of(ibv), attr);
    pthread_mutex_unlock(&lock);
    return error;
}

static int query_device_ex(struct ibv_context *ibv, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t length)
{
    struct ibv_device_attr_ex a;
    if (input && input->comp_mask) return EINVAL;
    memset(&a, 0, sizeof a);
    pthread_mutex_lock(&lock);
    struct card *card = card_of(ibv);
    const stand_in_device *is = &card->is;
    int error = refused(card, context_of(ibv), CALL_QUERY_DEVICE);
    say_device(card, &a.orig_attr);
    if (!(is->flags & STAND_IN_NO_STAMPS)) {
        a.completion_timestamp_mask = is->clock_mask;
        a.hca_core_clock = is->clock_khz;
    }
    a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
    a.phys_port_cnt_ex = 1;
    if (raw_packets(card)) {
        a.raw_packet_caps = IBV_RAW_PACKET_CAP_CVLAN_STRIPPING;
        if (!(is->flags & STAND_IN_NO_CSUM)) a.raw_packet_caps |= IBV_RAW_PACKET_CAP_IP_CSUM;
        a.rss_caps.supported_qpts = 1u << IBV_QPT_RAW_PACKET;
        a.rss_caps.max_rwq_indirection_tables = 1048576;
        a.rss_caps.max_rwq_indirection_table_size = 512;
        a.rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
        a.rss_caps.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_UDP
                                         | IBV_RX_HASH_DST_PORT_UDP;
        a.max_wq_type_rq = 8388608;
    }
    pthread_mutex_unlock(&lock);
    if (!error) memcpy(attr, &a, length < sizeof a ? length : sizeof a);
    return error;
}

static int query_port(struct ibv_context *ibv, uint8_t port, struct ibv_port_attr *attr, size_t length)
{
    struct ibv_port_attr a;
    memset(&a, 0, sizeof a);
    pthread_mutex_lock(&lock);
    struct card *card = card_of(ibv);
    int error = refused(card, context_of(ibv), CALL_QUERY_PORT);
    if (!error && port != PORT) error = EINVAL;
    a.state = card->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    a.max_mtu = IBV_MTU_4096;
    a.active_mtu = card->mtu >= 4200 ? IBV_MTU_4096 : card->mtu >= 2200 ? IBV_MTU_2048 : IBV_MTU_1024;
    a.gid_tbl_len = 255;
    a.max_msg_sz = 1073741824;
    a.pkey_tbl_len = 1;
    a.active_width = 2;  /* 4X */
    a.active_speed = 32; /* EDR */
    a.phys_state = card->up ? 5 : 3;
    a.link_layer = card->is.flags & STAND_IN_INFINIBAND ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    pthread_mutex_unlock(&lock);
    if (!error) memcpy(attr, &a, length < sizeof a ? length : sizeof a);
    return error;
}

/* Of programs that were built with an old header: what the structure had then. */
STAND_IN_EXPORT int ibv_query_port(struct ibv_context *ibv, uint8_t port, struct _compat_ibv_port_attr *attr)
{
    return query_port(ibv, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

/* The interface's addresses as a card has them: the link-local one, then each IPv4 address. */
static int gid_at(const struct card *card, uint32_t index, struct ibv_gid_entry *entry)
{
    struct ifaddrs *all, *at;
    uint32_t found = 0;
    int error = ENODATA;
    if (!*card->net || getifaddrs(&all)) return ENODATA;
    memset(entry, 0, sizeof *entry);
    for (at = all; at && error; at = at->ifa_next) {
        if (!at->ifa_addr || strcmp(at->ifa_name, card->net)) continue;
        uint8_t *raw = entry->gid.raw;
        if (at->ifa_addr->sa_family == AF_PACKET) {
            const uint8_t *mac = ((const struct sockaddr_ll *)(const void *)at->ifa_addr)->sll_addr;
            const uint8_t local[16] = {0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
            memcpy(raw, local, 16);
        } else if (at->ifa_addr->sa_family == AF_INET) {
            memset(raw, 0, 10);
            memset(raw + 10, 0xff, 2);
            memcpy(raw + 12, &((const struct sockaddr_in *)(const void *)at->ifa_addr)->sin_addr, 4);
        } else {
            continue;
        }
        if (found++ == index) error = 0;
    }
    freeifaddrs(all);
    entry->gid_index = index;
    entry->port_num = PORT;
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    entry->ndev_ifindex = if_nametoindex(card->net);
    return error;
}

STAND_IN_EXPORT int _ibv_query_gid_ex(struct ibv_context *ibv, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                                      uint32_t wanted, size_t size)
{
    struct ibv_gid_entry e;
    if (port != PORT || wanted || size < sizeof e) return EINVAL;
    pthread_mutex_lock(&lock);
    int error = refused(card_of(ibv), context_of(ibv), CALL_QUERY_GID);
    if (!error) error = gid_at(card_of(ibv), index, &e);
    pthread_mutex_unlock(&lock);
    if (!error) memcpy(entry, &e, sizeof e);
    return error;
}

STAND_IN_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *ibv, struct ibv_gid_entry *entries, size_t room,
                                             uint32_t wanted, size_t size)
{
    size_t n = 0;
    if (wanted || size != sizeof *entries) return -EINVAL;
    while (n < room && !_ibv_query_gid_ex(ibv, PORT, (uint32_t)n, &entries[n], 0, size)) n++;
    return (ssize_t)n;
}

STAND_IN_EXPORT int ibv_query_gid(struct ibv_context *ibv, uint8_t port, int index, union ibv_gid *gid)
{
    struct ibv_gid_entry entry;
    if (index < 0 || _ibv_query_gid_ex(ibv, port, (uint32_t)index, &entry, 0, sizeof entry)) return -1;
    *gid = entry.gid;
    return 0;
}
