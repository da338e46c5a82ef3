/* The stand-in's header: the receive calls of Rivermax by the names that public, Apache-2.0-licensed programs call them
 * by. All layouts, numbers and words here are our own; nothing is taken from NVIDIA's header, and programs built with
 * one do not run with the other's library.
 *
 * Some calls are functions, some inline functions and some macros, so that a caller finds out if it depends on which.
 *
 * Not here: sending, lists of devices, user clocks, library parameters, Windows.
 */
#ifndef RIVERMAX_STAND_IN_API_H
#define RIVERMAX_STAND_IN_API_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release whose order of calls the stand-in insists on. */
#define RMX_VERSION_MAJOR 1
#define RMX_VERSION_MINOR 80
#define RMX_VERSION_PATCH 24

#define RMX_MAX_SUB_BLOCKS_PER_MEM_BLOCK 2
#define RMX_MAX_DUP_STREAMS 2

#define RMX_EXPORT __attribute__((visibility("default")))

typedef enum rmx_status {
    RMX_OK = 0,
    RMX_BUSY = 11,
    RMX_SIGNAL,
    RMX_CHECKSUM_ISSUE,
    RMX_HW_COMPLETION_ISSUE,
    RMX_NO_FREE_CHUNK,
    RMX_HW_SEND_QUEUE_IS_FULL,
    RMX_NOT_INITIALIZED = 31,
    RMX_NOT_IMPLEMENTED,
    RMX_INVALID_PARAM_1 = 41,
    RMX_INVALID_PARAM_2,
    RMX_NO_SUCH_DEVICE = 61,
    RMX_LICENSE_REFUSED,
    RMX_NO_HARDWARE_RESOURCES,
    RMX_MEMORY_NOT_REGISTERED,
    RMX_MEMORY_NOT_ALIGNED,
    RMX_ALREADY_ATTACHED,
    RMX_NOT_ATTACHED,
} rmx_status;

/* --- the process ------------------------------------------------------------------------------------------------- */

typedef uint64_t rmx_cpu_mask;

RMX_EXPORT const char *rmx_get_version_string(void);
static inline void rmx_mark_cpu_for_affinity(rmx_cpu_mask *mask, size_t cpu) { mask[cpu / 64] |= UINT64_C(1) << cpu % 64; }
/* count: how many CPUs the mask speaks of. */
RMX_EXPORT rmx_status rmx_set_cpu_affinity(const rmx_cpu_mask *mask, size_t count);
RMX_EXPORT rmx_status rmx_enable_system_signal_handling(void);
RMX_EXPORT rmx_status rmx_init(void);
RMX_EXPORT rmx_status rmx_cleanup(void);

/* --- devices and clocks ------------------------------------------------------------------------------------------ */

typedef struct rmx_device_iface {
    struct in_addr ip;
    unsigned index;
} rmx_device_iface;

RMX_EXPORT rmx_status rmx_retrieve_device_iface_ipv4(rmx_device_iface *iface, const struct in_addr *ip);

typedef struct rmx_ptp_clock_params {
    rmx_device_iface iface;
    bool has_device;
} rmx_ptp_clock_params;

typedef enum rmx_time_type { RMX_TIME_SYSTEM = 3, RMX_TIME_PTP = 7 } rmx_time_type;

static inline void rmx_init_ptp_clock(rmx_ptp_clock_params *clock) { memset(clock, 0, sizeof *clock); }
static inline void rmx_set_ptp_clock_device(rmx_ptp_clock_params *clock, const rmx_device_iface *iface)
{
    clock->iface = *iface;
    clock->has_device = true;
}
RMX_EXPORT rmx_status rmx_use_ptp_clock(const rmx_ptp_clock_params *clock);
RMX_EXPORT rmx_status rmx_check_clock_steady(void);
RMX_EXPORT rmx_status rmx_get_time(rmx_time_type type, uint64_t *ns);

/* --- memory ------------------------------------------------------------------------------------------------------ */

typedef uint32_t rmx_mkey;
#define RMX_MKEY_INVALID ((rmx_mkey)0xffffffffu)

typedef struct rmx_mem_region {
    rmx_mkey mkey;
    size_t length;
    void *addr;
} rmx_mem_region;

typedef struct rmx_mem_registry_params {
    rmx_device_iface iface;
} rmx_mem_registry_params;

static inline void rmx_init_mem_registry(rmx_mem_registry_params *registry, const rmx_device_iface *iface)
{
    registry->iface = *iface;
}
RMX_EXPORT rmx_status rmx_register_memory(rmx_mem_region *region, const rmx_mem_registry_params *registry);
RMX_EXPORT rmx_status rmx_deregister_memory(const rmx_mem_region *region, const rmx_device_iface *iface);

/* --- streams ----------------------------------------------------------------------------------------------------- */

typedef struct rmx_stream_id {
    uint32_t slot, generation;
} rmx_stream_id;

typedef enum rmx_input_stream_type { RMX_INPUT_APP_PROTOCOL_PACKET = 5 } rmx_input_stream_type;

typedef enum rmx_input_option {
    RMX_INPUT_STREAM_CREATE_INFO_PER_PACKET = 2,
    RMX_INPUT_STREAM_RTP_SEQN_PLACEMENT_ORDER = 4,
    RMX_INPUT_STREAM_RTP_EXT_SEQN_PLACEMENT_ORDER = 6,
} rmx_input_option;

typedef enum rmx_input_timestamp_format { RMX_INPUT_TIMESTAMP_RAW_NANO = 1, RMX_INPUT_TIMESTAMP_SYNCED = 4 } rmx_input_timestamp_format;

typedef struct rmx_input_stream_params {
    const void *determined_at; /* the library checks that the record has not moved */
    struct sockaddr_in nic;
    uint32_t type, options, timestamp_format;
    size_t capacity, sub_blocks;
    struct {
        size_t min, max, stride;
        rmx_mem_region region;
    } block[RMX_MAX_SUB_BLOCKS_PER_MEM_BLOCK];
} __attribute__((aligned(64))) rmx_input_stream_params;

RMX_EXPORT void rmx_input_init_stream(rmx_input_stream_params *params, rmx_input_stream_type type);
RMX_EXPORT void rmx_input_set_stream_nic_address(rmx_input_stream_params *params, const struct sockaddr *address);
RMX_EXPORT void rmx_input_enable_stream_option(rmx_input_stream_params *params, rmx_input_option option);
static inline void rmx_input_set_mem_capacity_in_packets(rmx_input_stream_params *params, size_t packets)
{
    params->capacity = packets;
}
#define rmx_input_set_mem_sub_block_count(params, count) ((void)((params)->sub_blocks = (count)))
RMX_EXPORT void rmx_input_set_entry_size_range(rmx_input_stream_params *params, size_t sub_block, size_t min, size_t max);
#define rmx_input_set_entry_uniform_size(params, sub_block, size) \
    rmx_input_set_entry_size_range((params), (sub_block), (size), (size))
RMX_EXPORT void rmx_input_set_timestamp_format(rmx_input_stream_params *params, rmx_input_timestamp_format format);
RMX_EXPORT rmx_status rmx_input_determine_mem_layout(rmx_input_stream_params *params);
static inline size_t rmx_input_get_mem_capacity_in_packets(const rmx_input_stream_params *params)
{
    return params->capacity;
}
static inline size_t rmx_input_get_stride_size(const rmx_input_stream_params *params, size_t sub_block)
{
    return params->block[sub_block].stride;
}
static inline rmx_mem_region *rmx_input_get_mem_block_buffer(rmx_input_stream_params *params, size_t sub_block)
{
    return &params->block[sub_block].region;
}

RMX_EXPORT rmx_status rmx_input_create_stream(rmx_input_stream_params *params, rmx_stream_id *id);
RMX_EXPORT rmx_status rmx_input_destroy_stream(rmx_stream_id id);
RMX_EXPORT rmx_status rmx_input_set_completion_moderation(rmx_stream_id id, size_t min_packets, size_t max_packets,
                                                          int timeout_usec);

/* --- flows ------------------------------------------------------------------------------------------------------- */

typedef struct rmx_input_flow {
    struct sockaddr_in local, remote;
    uint32_t tag;
} rmx_input_flow;

static inline void rmx_input_init_flow(rmx_input_flow *flow) { memset(flow, 0, sizeof *flow); }
static inline void rmx_input_set_flow_local_addr(rmx_input_flow *flow, const struct sockaddr *address)
{
    memcpy(&flow->local, address, sizeof flow->local);
}
static inline void rmx_input_set_flow_remote_addr(rmx_input_flow *flow, const struct sockaddr *address)
{
    memcpy(&flow->remote, address, sizeof flow->remote);
}
#define rmx_input_set_flow_tag(flow, value) ((void)((flow)->tag = (value)))
RMX_EXPORT rmx_status rmx_input_attach_flow(rmx_stream_id id, const rmx_input_flow *flow);
RMX_EXPORT rmx_status rmx_input_detach_flow(rmx_stream_id id, const rmx_input_flow *flow);

/* --- chunks ------------------------------------------------------------------------------------------------------ */

typedef struct rmx_input_packet_info {
    uint64_t timestamp;
    uint32_t tag;
    uint32_t size[RMX_MAX_SUB_BLOCKS_PER_MEM_BLOCK];
} rmx_input_packet_info;

typedef enum rmx_input_completion_flag { RMX_INPUT_COMPLETION_FLAG_MORE = 16 } rmx_input_completion_flag;

typedef struct rmx_input_completion {
    uint32_t flags;
    size_t packets;
    const void *ptr[RMX_MAX_SUB_BLOCKS_PER_MEM_BLOCK];
    uint64_t first, last;
} rmx_input_completion;

typedef struct rmx_input_chunk_handle {
    rmx_stream_id id;
    rmx_input_completion completion;
    const rmx_input_packet_info *infos; /* the stream's; none without the option */
} rmx_input_chunk_handle;

RMX_EXPORT void rmx_input_init_chunk_handle(rmx_input_chunk_handle *chunk, rmx_stream_id id);
RMX_EXPORT rmx_status rmx_input_get_next_chunk(rmx_input_chunk_handle *chunk);
#define rmx_input_get_chunk_completion(chunk) (&(chunk)->completion)
static inline size_t rmx_input_get_completion_chunk_size(const rmx_input_completion *completion)
{
    return completion->packets;
}
static inline const void *rmx_input_get_completion_ptr(const rmx_input_completion *completion, size_t sub_block)
{
    return completion->ptr[sub_block];
}
static inline bool rmx_input_get_completion_flag(const rmx_input_completion *completion, rmx_input_completion_flag flag)
{
    return (completion->flags & flag) != 0;
}
#define rmx_input_get_completion_timestamp_first(completion) ((completion)->first)
#define rmx_input_get_completion_timestamp_last(completion) ((completion)->last)
RMX_EXPORT const rmx_input_packet_info *rmx_input_get_packet_info(const rmx_input_chunk_handle *chunk, size_t packet);
static inline size_t rmx_input_get_packet_size(const rmx_input_packet_info *info, size_t sub_block)
{
    return info->size[sub_block];
}
#define rmx_input_get_packet_flow_tag(info) ((info)->tag)
static inline uint64_t rmx_input_get_packet_timestamp(const rmx_input_packet_info *info) { return info->timestamp; }

/* --- events ------------------------------------------------------------------------------------------------------ */

typedef struct rmx_event_channel_params {
    rmx_stream_id id;
    const int *epoll;
} rmx_event_channel_params;

typedef struct rmx_notification_params {
    rmx_stream_id id;
} rmx_notification_params;

static inline void rmx_init_event_channel(rmx_event_channel_params *channel, rmx_stream_id id)
{
    channel->id = id;
    channel->epoll = NULL;
}
static inline void rmx_set_event_channel_handle(rmx_event_channel_params *channel, int *epoll) { channel->epoll = epoll; }
RMX_EXPORT rmx_status rmx_establish_event_channel(const rmx_event_channel_params *channel);
static inline void rmx_init_notification(rmx_notification_params *notification, rmx_stream_id id)
{
    notification->id = id;
}
RMX_EXPORT rmx_status rmx_request_notification(const rmx_notification_params *notification);

#ifdef __cplusplus
}
#endif

#endif
