/* Our own face of the user's header: each call that the Rust side makes, as a plain function. bindgen reads this file,
 * shim.c is compiled from it, and build.rs takes the list of names that the header must have from both.
 *
 * Stream ids go by address and numbers of the header's enumerations as int64_t, so that it does not matter what they are.
 */
#ifndef GDMEDIA_SHIM_H
#define GDMEDIA_SHIM_H

#include <stddef.h>
#include <stdint.h>
/* Made by build.rs: includes the user's header, and names gdmedia_flow and the like after the types that the header's
 * init calls take. */
#include "gdmedia_header.h"

enum {
    GDMEDIA_OK = RMX_OK,
    GDMEDIA_BUSY = RMX_BUSY,
    GDMEDIA_SIGNAL = RMX_SIGNAL,
    GDMEDIA_CHECKSUM_ISSUE = RMX_CHECKSUM_ISSUE,
    GDMEDIA_HW_COMPLETION_ISSUE = RMX_HW_COMPLETION_ISSUE,
    GDMEDIA_NOT_INITIALIZED = RMX_NOT_INITIALIZED,
    GDMEDIA_NOT_IMPLEMENTED = RMX_NOT_IMPLEMENTED,
    GDMEDIA_INVALID_PARAM_2 = RMX_INVALID_PARAM_2,
    GDMEDIA_NO_FREE_CHUNK = RMX_NO_FREE_CHUNK,
    GDMEDIA_HW_SEND_QUEUE_IS_FULL = RMX_HW_SEND_QUEUE_IS_FULL,
};
enum { GDMEDIA_APP_PROTOCOL_PACKET = RMX_INPUT_APP_PROTOCOL_PACKET };
enum {
    GDMEDIA_INFO_PER_PACKET = RMX_INPUT_STREAM_CREATE_INFO_PER_PACKET,
    GDMEDIA_SEQN_PLACEMENT = RMX_INPUT_STREAM_RTP_SEQN_PLACEMENT_ORDER,
    GDMEDIA_EXT_SEQN_PLACEMENT = RMX_INPUT_STREAM_RTP_EXT_SEQN_PLACEMENT_ORDER,
};
enum { GDMEDIA_TIMESTAMP_RAW_NANO = RMX_INPUT_TIMESTAMP_RAW_NANO, GDMEDIA_TIMESTAMP_SYNCED = RMX_INPUT_TIMESTAMP_SYNCED };
enum { GDMEDIA_FLAG_MORE = RMX_INPUT_COMPLETION_FLAG_MORE };
enum { GDMEDIA_TIME_PTP = RMX_TIME_PTP };

/* SHIM(type of the answer, name, its parameters, its arguments): the function gdmedia_<name>. */
#define SHIM(type, name, parameters, arguments) type gdmedia_##name parameters;
#define SHIM_VOID(name, parameters, arguments) void gdmedia_##name parameters;
#include "calls.h"
#undef SHIM
#undef SHIM_VOID

/* Regions, whose three fields the header has by name. */
void gdmedia_region_set(rmx_mem_region *region, void *addr, size_t length);
void gdmedia_region_give(rmx_mem_region *region, void *addr);
void gdmedia_region_give_registered(rmx_mem_region *region, const rmx_mem_region *registered);
size_t gdmedia_region_length(const rmx_mem_region *region);

#endif
